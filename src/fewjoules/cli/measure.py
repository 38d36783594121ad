"""``fewjoules measure``: measure what steps and messages cost on this machine."""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fewjoules.cli import options
from fewjoules.cli.calibrate import calibrate_gpu
from fewjoules.cli.console import plain_errors
from fewjoules.cli.progress import phases
from fewjoules.cli.reading import read_scenario
from fewjoules.errors import InvalidInputError, require_number
from fewjoules.extras import require_extra
from fewjoules.files import require_place, whole_file
from fewjoules.metering.meter import Meter
from fewjoules.metering.protocol import LIMIT_SECONDS, Bench, Protocol
from fewjoules.metering.survey import AUTO, KINDS, in_words, open_meter

if TYPE_CHECKING:
    from fewjoules.reports.measured import Circumstances

measure = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help=(
        "Measure what steps and messages cost on this machine.\n\nExamples:\n\n\b\n"
        "  fewjoules measure step fleet.toml --out pi.toml\n"
        "  fewjoules measure codec fleet.toml\n"
    ),
)

_Scenario = Annotated[
    Optional[str],  # noqa: UP045 - typer reads the annotation at run time
    typer.Argument(help="Scenario file (TOML) with a [training] table. Left out: the embedded one."),
]
_Meter = Annotated[str, typer.Option(metavar="|".join((AUTO, *KINDS)), help="The meter; auto takes the nearest.")]
_WithIdle = Annotated[bool, typer.Option("--with-idle", help="Leave idle power in the joules of the table.")]
_SecondsOnly = Annotated[bool, typer.Option("--seconds-only", help="Measure seconds, and look for no meter.")]
_Out = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="FILE.toml", help="Also write the table to this new file."),
]
_Profile = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="NAME", help="Write and print a profile, the new file NAME.toml, in place of the table."),
]
_Name = Annotated[str, typer.Option(metavar="NAME", help="Name of the device in the table.")]
_MaxSeconds = Annotated[float, typer.Option(help="Limit of the trials of each size; at least five are made.")]


@measure.command("step")
def measure_step(
    scenario: _Scenario = None,
    clients: Annotated[int, typer.Option(help="Clients that train as one batch; costs are those of one of them.")] = 1,
    batch_sizes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="B,B,...", help="At least two. Default: half, once, twice and four times the scenario's."),
    ] = None,
    device: options.Device = "auto",
    meter: _Meter = AUTO,
    with_idle: _WithIdle = False,
    seconds_only: _SecondsOnly = False,
    out: _Out = None,
    profile: _Profile = None,
    name: _Name = "measured",
    max_seconds: _MaxSeconds = LIMIT_SECONDS,
    allow_outside: options.AllowOutside = False,
    clocks_from: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="FILE.csv", help="Measure nothing: fit the GPU model to recorded operating points."),
    ] = None,
) -> None:
    """Measure the local steps of a scenario, as a [[device]] table.

    Steps of its model and optimiser are taken as the simulator takes them, ten in a row, on random samples of the
    shape of its data. Idle power is measured first. Each batch size is warmed up and then tried until the 95 % interval
    of the mean is within 2 % of it. Joules and seconds are fitted as a fixed part of a step and a part for each sample.

    Without a meter only seconds are measured, and the exit code is 1. --clocks-from fits power and time at several
    clocks of a GPU, which you set and recorded, as fewjoules calibrate gpu does; clocks are never changed here.

    Examples:

    \b
      fewjoules measure step fleet.toml --out pi.toml       the table, also as a file for a node
      fewjoules measure step fleet.toml --device cuda --clients 100
      fewjoules measure step fleet.toml --batch-sizes 8,16,64 --meter rapl
      fewjoules measure step fleet.toml --profile my-board  a profile, my-board.toml, for scenarios
    """
    if clocks_from is not None:
        calibrate_gpu(clocks_from)
        return
    with plain_errors(), _new_file(out, profile, seconds_only) as write:
        require_extra("train", "fewjoules measure step")
        from fewjoules.reports.measured import shortfalls, step_profile, step_table
        from fewjoules.runs.device import choose_device, gpu_uuid
        from fewjoules.runs.measuring.machine import machine_name
        from fewjoules.runs.measuring.scenario import STEPS, flops_of, step_measurement, usual_batch_sizes

        chosen = read_scenario(scenario, allow_outside)
        sizes = usual_batch_sizes(chosen) if batch_sizes is None else _numbers("--batch-sizes", batch_sizes, int)
        where = choose_device(device)
        measured = step_measurement(
            chosen, where, clients=clients, batch_sizes=[int(size) for size in sizes], with_idle=with_idle
        )
        flops = None if profile is None else flops_of(chosen)
        with _bench(meter, gpu_uuid(where), seconds_only, max_seconds, needed=profile is not None) as bench:
            costs = measured(bench)
        together = "1 client" if clients == 1 else f"{clients} clients as one batch, costs of one of them"
        what = f"{chosen.architecture}, {together}, {STEPS} steps in a row, random samples"
        told = _circumstances(bench, name, machine_name(where), what, with_idle)
        table = step_table(costs, told) if flops is None else step_profile(costs, told, flops)
        _finish(table, shortfalls(costs, told), write, bench.meter, seconds_only)


@measure.command("codec")
def measure_codec(
    scenario: _Scenario = None,
    sparsities: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="S,S,...", help="At least two; one entry in S is sent. Default: 3,10,30,100,1000."),
    ] = None,
    meter: _Meter = AUTO,
    with_idle: _WithIdle = False,
    seconds_only: _SecondsOnly = False,
    out: _Out = None,
    profile: _Profile = None,
    name: _Name = "measured",
    max_seconds: _MaxSeconds = LIMIT_SECONDS,
    allow_outside: options.AllowOutside = False,
) -> None:
    """Measure coding the updates of a scenario, as a [[device]] table.

    Selection, encoding and decoding are measured with the scenario's compressor and kind of values; messages are
    written and read on the processor, as on a device.

    Joules and seconds are fitted as a part for each parameter of the model and a part for each entry that is sent: a
    parameter is passed in writing and in reading, an entry costs the mean of writing and reading one. The protocol is
    that of fewjoules measure step.

    Example:

    \b
      fewjoules measure codec fleet.toml --sparsities 10,100,1000
    """
    with plain_errors(), _new_file(out, profile, seconds_only) as write:
        require_extra("train", "fewjoules measure codec")
        from fewjoules.reports.measured import codec_profile, codec_table, shortfalls
        from fewjoules.runs.device import choose_device
        from fewjoules.runs.measuring.machine import machine_name
        from fewjoules.runs.measuring.scenario import codec_measurement, usual_sparsities

        chosen = read_scenario(scenario, allow_outside)
        wanted = usual_sparsities(chosen) if sparsities is None else _numbers("--sparsities", sparsities, float)
        measured = codec_measurement(chosen, sparsities=wanted, with_idle=with_idle)
        with _bench(meter, None, seconds_only, max_seconds, needed=profile is not None) as bench:
            writing, reading = measured(bench)
        what = f"{chosen.architecture}, {chosen.parameters} parameters, random updates"
        told = _circumstances(bench, name, machine_name(choose_device("cpu")), what, with_idle)
        short = [*shortfalls(writing, told), *shortfalls(reading, told)]
        table = (codec_table if profile is None else codec_profile)(writing, reading, told)
        _finish(table, short, write, bench.meter, seconds_only)


def _numbers(option: str, text: str, kind: type[int] | type[float]) -> list[float]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        wanted = "whole numbers" if kind is int else "numbers"
        raise InvalidInputError(f"{option} must be {wanted} with commas between them, got {text!r}") from error


@contextlib.contextmanager
def _new_file(out: str | None, profile: str | None, seconds_only: bool) -> Iterator[Callable[[str], None]]:
    """Refuse a file that exists or has no folder, before anything is measured; yield what writes it."""
    if profile is not None and (out is not None or seconds_only):
        other = "--out" if out is not None else "--seconds-only"
        raise InvalidInputError(f"--profile writes NAME.toml with joules and cannot be combined with {other}")
    if profile is not None and (not profile.isprintable() or Path(profile).name != profile):
        raise InvalidInputError(f"--profile must be the name of a file without folder and ending, got {profile!r}")
    option, file = ("--out", out) if profile is None else ("--profile", f"{profile}.toml")
    path = None if file is None else Path(file)
    if path is not None:
        if os.path.exists(path):
            raise InvalidInputError(f"{option} must name a new file, but {path} exists")
        require_place(option, path)

    def write(text: str) -> None:
        if path is not None:
            with whole_file(path) as stream:
                stream.write(text.encode())

    yield write


@contextlib.contextmanager
def _bench(kind: str, gpu: str | None, seconds_only: bool, max_seconds: float, *, needed: bool) -> Iterator[Bench]:
    """Open the meter, or say why none can be read, and show what is being measured; a meter may be ``needed``."""
    require_number("--max-seconds", max_seconds, low=0.0, above=True)
    meter, found = (None, []) if seconds_only else open_meter(kind, gpu)
    if needed and meter is None:
        raise InvalidInputError(f"--profile needs joules, but no meter can be read: {in_words(found)}")
    if found and meter is None:
        typer.echo("no meter can be read, so only seconds are measured:", err=True)
        for finding in found:
            typer.echo(f"  {finding}", err=True)
    try:
        with phases() as say:
            yield Bench(meter, Protocol(limit_seconds=max_seconds), say=say)
    finally:
        if meter is not None:
            meter.close()


def _circumstances(bench: Bench, name: str, machine: str, what: str, with_idle: bool) -> "Circumstances":
    from fewjoules.reports.measured import Circumstances

    return Circumstances(
        name=name,
        machine=machine,
        meter=None if bench.meter is None else bench.meter.described,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=shlex.join(["fewjoules", *sys.argv[1:]]),
        what=what,
        with_idle=with_idle,
        protocol=bench.protocol,
    )


def _finish(
    table: str, short: list[str], write: Callable[[str], None], meter: Meter | None, seconds_only: bool
) -> None:
    """Print and write the table; exit with code 1 if joules were wanted and no meter could be read."""
    write(table)
    for sentence in short:
        typer.echo(f"warning: {sentence}", err=True)
    typer.echo(table, nl=False)
    if meter is None and not seconds_only:
        raise typer.Exit(1)
