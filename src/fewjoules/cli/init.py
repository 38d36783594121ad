"""``fewjoules init``: write a first scenario from a few questions or options."""

import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import typer

from fewjoules.cli.console import plain_errors
from fewjoules.cli.questions import ask, can_ask
from fewjoules.errors import InvalidInputError, require_integer, require_number, shown
from fewjoules.files import require_place, whole_file

if TYPE_CHECKING:
    from fewjoules.scenario.start.answers import Start

Answer = TypeVar("Answer")
USUAL_FILE = "fleet.toml"


def init(
    file: Annotated[
        str, typer.Argument(help="The file to write, FILE.toml. Default: fleet.toml.", show_default=False)
    ] = USUAL_FILE,
    device: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option(
            metavar="PROFILE:COUNT",
            help="Devices by their profile, such as lte-phone:40; fewjoules profiles lists them, a file of your own "
            "ends in .toml. May be repeated. Default: wifi-phone:12.",
        ),
    ] = None,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME",
            help="An architecture such as cnn, lenet5, resnet20 or gpt; a network of your own, my_module:function; or "
            "parameters=N, which can be planned but not trained. Default: cnn.",
        ),
    ] = None,
    data: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME", help="Data set, or my_module:function. Default: the usual one of the model."),
    ] = None,
    target: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="VALUE", help="Accuracy to train to, such as 0.95; or loss=NUMBER or perplexity=NUMBER."),
    ] = None,
    round_seconds: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="SECONDS", help="Deadline of every round. Default: none."),
    ] = None,
    battery_joules: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="JOULES", help="What each device may spend on the whole training. Default: no limit."),
    ] = None,
    max_sparsity: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="DELTA", help="Most sparse that updates may be, one entry in DELTA. Default: 1000."),
    ] = None,
    max_local_steps: Annotated[
        int, typer.Option(metavar="H", help="Most local steps of a round. Default: 50.", show_default=False)
    ] = 50,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of everything random. Default: 0.", show_default=False)
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take the defaults.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a commented scenario from a few questions.

    On a terminal it asks for what no option says; elsewhere, and with --yes, it takes defaults. The file can be used
    at once by plan, tune, train and compare. Its costs are those of device profiles and its rounds law is rough; the
    comments say what is assumed and which command measures it.

    Examples:

    \b
      fewjoules init                                            asks, and writes fleet.toml
      fewjoules init --yes                                      12 phones on Wi-Fi, a small CNN, embedded digits
      fewjoules init city.toml --device lte-phone:40 --device jetson-orin:10 --model lenet5
      fewjoules init own.toml --model my_module:network --data mnist --target 0.98
      fewjoules init plan.toml --model parameters=25000000 --round-seconds 60
    """
    with plain_errors():
        path = _require_place(file, force)
        given = {"device": device, "model": model, "data": data, "target": target, "round_seconds": round_seconds}
        start = _answers(given, path.parent, asking=can_ask() and not yes)
        start = replace(start, **_require_limits(battery_joules, max_sparsity, max_local_steps, seed))
        text = _checked_text(start, path, file)
        _require_place(file, force)  # somebody may have made it while questions were answered
        with whole_file(path) as stream:
            stream.write(text.encode())
        typer.echo("\n".join(_farewell(start, path, file)))


def _require_place(file: str, force: bool) -> Path:
    """Return the path of the file, if it may be written."""
    path = Path(file)
    if not file.isprintable() or path.suffix != ".toml" or len(file) > 1000:
        raise InvalidInputError(f"FILE must be a name of printable characters that ends in .toml, got {shown(file)}")
    require_place("FILE", path)
    if os.path.lexists(path) and not force:
        raise InvalidInputError(f"{file} exists and is not overwritten; give another name, or --force to replace it")
    return path


def _answers(given: dict[str, Any], folder: Path, *, asking: bool) -> "Start":
    """Return the answers that options give, and ask for the others or take the usual ones."""
    from fewjoules.scenario.start import answers, usual
    from fewjoules.scenario.start.answers import Start

    def answer(question: str, text: str | None, default: str, read: Callable[[str], Answer]) -> Answer:
        return ask(question, default, read) if asking and text is None else read(default if text is None else text)

    if asking:
        typer.echo(_welcome())
    groups = None if given["device"] is None else ",".join(given["device"])
    devices = answer(
        "Devices, PROFILE:COUNT, separated by commas",
        groups,
        answers.USUAL_DEVICES,
        lambda text: answers.read_devices(text.split(","), folder),
    )
    model = answer("Model", given["model"], answers.USUAL_MODEL, answers.read_model)
    data = aim = None
    if model.architecture is None:
        _require_trainable(given)
    else:
        fitting = usual.data_for(model.architecture)
        data = answer(
            f"Data ({', '.join(fitting)})", given["data"], fitting[0], lambda text: answers.read_data(text, model)
        )
        metric, value = usual.target_of(model.architecture, data)
        aim = answer(
            "Target: an accuracy, loss=NUMBER or perplexity=NUMBER",
            given["target"],
            f"{value:g}" if metric == "accuracy" else f"{metric}={value:g}",
            answers.read_target,
        )
    seconds = None if given["round_seconds"] is None else str(given["round_seconds"])
    deadline = answer("Seconds that a round may take at most", seconds, "none", answers.read_deadline)
    return Start(devices=devices, model=model, data=data, target=aim, round_seconds=deadline)


def _welcome() -> str:
    from fewjoules.engine.models.architectures import ARCHITECTURES
    from fewjoules.profiles import profile_names, shipped_profile

    profiles = [f"  {name:<13}{shipped_profile(name).description}" for name in profile_names()]
    return "\n".join(
        [
            "A few questions; Enter takes the answer in brackets. Nothing is written before the last one.",
            "Devices:",
            *profiles,
            f"Models: {', '.join(ARCHITECTURES)}, your own my_module:function, or parameters=N to plan only",
        ]
    )


def _require_trainable(given: dict[str, Any]) -> None:
    """Refuse what only a training reads beside a model that cannot be trained."""
    for name in ("data", "target"):
        if given[name] is not None:
            raise InvalidInputError(
                f"--{name} is unused: a model given by parameters=N can be planned but not trained; give an "
                "architecture or my_module:function"
            )


def _require_limits(battery: float | None, sparsity: float | None, steps: int, seed: int) -> dict[str, Any]:
    from fewjoules.planner.problem import MAX_LOCAL_STEP_CHOICES

    if battery is not None:
        require_number("--battery-joules", battery, low=0.0, above=True)
    if sparsity is not None:
        require_number("--max-sparsity", sparsity, low=1.0)
    return {
        "battery_joules": battery,
        "max_sparsity": sparsity,
        "max_local_steps": require_integer("--max-local-steps", steps, low=1, high=MAX_LOCAL_STEP_CHOICES),
        "seed": require_integer("--seed", seed, low=0, high=2**63 - 1),
    }


def _checked_text(start: "Start", path: Path, file: str) -> str:
    """Return the text of the scenario, after it was read and planned; functions of the user's own are not called."""
    from fewjoules.scenario import Scenario
    from fewjoules.scenario.planning import ScenarioPlans
    from fewjoules.scenario.start.text import parameters_of, start_text

    parameters = parameters_of(start)
    if parameters is not None and start.max_sparsity is not None:
        require_number("--max-sparsity", start.max_sparsity, low=1.0, high=float(parameters))
    text = start_text(start, path.name)
    if not start.runs_own_code:
        ScenarioPlans(Scenario.from_text(text, file, path.parent)).plan("flexible")
    return text


def _farewell(start: "Start", path: Path, file: str) -> list[str]:
    """Say what was written, what may be in the way, and the next commands."""
    from fewjoules.scenario.start.text import describe

    quoted = shlex.quote(file)
    tuned = shlex.quote(f"{path.stem}-tuned.toml")
    steps = [(f"fewjoules plan {quoted}", "the plan of least energy, under a rough rounds law")]
    if start.model.architecture is not None:
        steps += [
            (f"fewjoules tune {quoted}", f"finds optimiser, step size and rounds law by short pilots: {tuned}"),
            (f"fewjoules compare {tuned}", "trains the tuned recipe beside the other schemes"),
            (f"fewjoules train {tuned} --out run1", "trains the recipe alone"),
        ]
    width = max(len(command) for command, _ in steps)
    lines = [f"{file}: {describe(start)}", *_obstacles(start, path), "Read its comments, then:"]
    return lines + [f"  {command:<{width}}  {what}" for command, what in steps]


def _obstacles(start: "Start", path: Path) -> list[str]:
    """Say what the scenario still needs before it can be planned or trained."""
    from fewjoules.own_code import is_own
    from fewjoules.scenario.start.usual import TRAINING_SAMPLES

    lines = []
    own = [name for name in (start.model.architecture, start.data) if name is not None and is_own(name)]
    for module in dict.fromkeys(name.partition(":")[0] for name in own):
        beside = path.parent.joinpath(*module.split("."))
        if not beside.with_suffix(".py").exists() and not beside.is_dir():
            lines.append(f"It needs the module {module}: put {module.replace('.', '/')}.py beside {path.name}.")
    samples = TRAINING_SAMPLES.get(start.data or "")
    if samples is not None and samples < start.device_count:
        lines.append(
            f"{start.data} has {samples:,} samples to train on, fewer than {start.device_count:,} devices: this can be "
            "planned, but train, tune and compare need other data or fewer devices."
        )
    return lines
