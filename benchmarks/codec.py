"""The codec beside its rivals, measured in one run: sizes against the entropy limit, times against a memory copy.

    python benchmarks/codec.py [--quick] [--updates FILE.npz] [--seed 0] [--out results.json]

Times are wall-clock, on at most two cores. Whatever is timed takes turns with a copy of the same vector, whose arrays
are warm and not zero; residuals are restored between the turns, untimed. Verdicts are on medians. Every requirement
ends in pass, MISS or skip; a miss never stops the run. Real updates come from benchmarks/record_updates.py.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import io
import json
import os
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from report import describe_run, duration, print_table

from fewjoules import codec
from fewjoules.codec import SparseUpdate
from fewjoules.codec import positions as pos
from fewjoules.codec.compressors import random_positions
from fewjoules.codec.frame import CHECKSUM_BYTES
from fewjoules.codec.select import top_k_with_feedback
from fewjoules.codec.values import KINDS
from fewjoules.codec.varint import varint
from fewjoules.physics.message_size import MessageSize
from fewjoules.physics.radio import position_bits

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

Record = dict[str, Any]
Floats = NDArray[np.float32]
Action = Callable[[], object]

CORES = 2
LENET5, LONG, LONGER = 431_080, 25_000_000, 100_000_000
SIZE_DELTAS = (4.5, 20.0, 100.0, 1000.0, 10_000.0)
SPEED_DELTAS = (100, 1000)
VALUE_BITS = 32
FLAG_BYTES = 4  # magic, version, flags
CLEARLY_BELOW = 0.98
CLIENTS = 1000
CLIENT_DELTA = 1000
STACK = 100
WARM_UP = 3
DEFAULT_UPDATES = Path(tempfile.gettempdir()) / "fewjoules-updates.npz"


@dataclass(frozen=True, slots=True)
class Check:
    requirement: str
    verdict: str
    measured: str


@dataclass(frozen=True, slots=True)
class Turns:
    """Times of an action and of the yardstick that took turns with it, and their ratio."""

    best_seconds: float
    median_seconds: float
    yardstick_best_seconds: float
    yardstick_median_seconds: float
    repeats: int

    @property
    def ratio(self) -> float:
        return self.median_seconds / self.yardstick_median_seconds

    @property
    def best_ratio(self) -> float:
        return self.best_seconds / self.yardstick_best_seconds


def wall_seconds(action: Action) -> float:
    start = time.perf_counter()
    result = action()
    seconds = time.perf_counter() - start
    del result  # memory goes back outside of the timed part
    return seconds


def device_seconds(action: Action) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    action()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def nothing() -> None:
    """No preparation."""


def take_turns(
    action: Action,
    yardstick: Action,
    repeats: int,
    prepare: Action = nothing,
    clock: Callable[[Action], float] = wall_seconds,
) -> Turns:
    """The action after an untimed ``prepare`` and the yardstick after an untimed yardstick, over and over."""
    own, other = [], []
    for _ in range(WARM_UP + repeats):
        yardstick()
        other.append(clock(yardstick))
        prepare()
        own.append(clock(action))
    own, other = own[WARM_UP:], other[WARM_UP:]
    return Turns(min(own), statistics.median(own), min(other), statistics.median(other), repeats)


def busy_core_seconds() -> float:
    """What all cores have worked since the machine started, work that the host took away included."""
    user, nice, system, _, _, *interrupts_and_steal = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    return sum(map(int, (user, nice, system, *interrupts_and_steal))) / os.sysconf("SC_CLK_TCK")


def watch_others(measure: Callable[[], Record]) -> Record:
    """The record, with how many cores other processes kept busy meanwhile."""
    if not Path("/proc/stat").exists():
        return measure() | {"others_cores": float("nan")}
    start, busy, own = time.perf_counter(), busy_core_seconds(), time.process_time()
    record = measure()
    others = busy_core_seconds() - busy - (time.process_time() - own)
    return record | {"others_cores": max(0.0, others / (time.perf_counter() - start))}


# --- sizes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """Bytes of the parts of a message."""

    total: int
    position_stream: int
    blocks: int
    overhead: int  # header, checksum, parameters of the position coder
    values: int

    @property
    def positions(self) -> int:
        return self.position_stream + pos.BLOCK_BYTES * self.blocks


def dissect(update: SparseUpdate, payload: bytes) -> Message:
    """The parts of a message; its position stream is coded once more, and looked for in the message."""
    gaps = pos.gaps_of(update.positions)
    blocks = pos.fit_blocks(gaps)
    stream = pos.encode_gaps(gaps, blocks)
    section = blocks.to_bytes() + varint(len(stream)) + stream
    header = FLAG_BYTES + len(varint(update.size)) + len(varint(update.count))
    if payload[header : header + len(section)] != section or codec.decode(payload) != update:
        raise RuntimeError("the message does not hold the positions that were measured, or does not decode")
    overhead = header + len(section) - len(stream) + CHECKSUM_BYTES
    values = len(payload) - overhead - len(stream)
    return Message(len(payload), len(stream), blocks.levels.size, overhead, values)


def npz_bits(**arrays: NDArray[Any]) -> int:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return 8 * file.tell()


def zlib_bits(*arrays: NDArray[Any]) -> int:
    return sum(8 * len(zlib.compress(array.tobytes())) for array in arrays)


def rival_position_bits(update: SparseUpdate) -> Record:
    positions, k = update.positions.astype(np.int32), update.count
    return {
        "int32 COO": 32 * k,
        "int64 COO": 64 * k,
        "bitmask": update.size,
        "npz": npz_bits(positions=positions),
        "zlib of gaps": zlib_bits(np.diff(positions, prepend=np.int32(-1))),
    }


def rival_message_bits(update: SparseUpdate, position_bits: Record) -> Record:
    """Values as plain float32 but for npz and zlib, which compress them too."""
    plain = {name: position_bits[name] + 32 * update.count for name in ("int32 COO", "int64 COO", "bitmask")}
    values = zlib_bits(update.values)
    npz = npz_bits(positions=update.positions.astype(np.int32), values=update.values)
    return plain | {"npz": npz, "zlib of gaps": position_bits["zlib of gaps"] + values}


def paper_bits(update: SparseUpdate) -> float:
    """Formula (25) for float32 values."""
    return float(MessageSize.formula_25(VALUE_BITS).bits(update.size, update.size / update.count))


def measure_uniform(size: int, delta: float, seed: int) -> Record:
    rng = np.random.default_rng([seed, size, round(10 * delta)])
    positions = random_positions(size, round(size / delta), rng)
    values = rng.standard_normal(positions.size, dtype=np.float32)
    update = SparseUpdate(size=size, positions=positions, values=values)
    message = dissect(update, codec.encode(update))
    rivals = rival_position_bits(update)
    return {
        "size": size,
        "delta": delta,
        "count": update.count,
        "message": asdict(message),
        "limit_bits": float(position_bits(size, update.count)),
        "stream_bits": 8 * message.position_stream,
        "paper_bits": paper_bits(update),
        "rival_position_bits": rivals | {"(25)": paper_bits(update) - (VALUE_BITS + 1) * update.count},
        "message_bits": 8 * message.total,
        "rival_message_bits": rival_message_bits(update, rivals),
    }


def measure_real(update: SparseUpdate, delta: float, round_number: int, seed: int) -> Record:
    messages = {
        kind: codec.encode(update, values=kind, rng=np.random.default_rng([seed, round_number])) for kind in KINDS
    }
    exact = dissect(update, messages["float32"])
    paper = paper_bits(update)
    return {
        "size": update.size,
        "delta": delta,
        "round": round_number,
        "count": update.count,
        "message": asdict(exact),
        "positions_over_limit": 8 * exact.positions / float(position_bits(update.size, update.count)),
        "bits_a_position": 8 * exact.positions / update.count,
        "exponent_bits_saved": VALUE_BITS - 8 * exact.values / update.count,
        "paper_bits": paper,
        "over_paper": {kind: 8 * len(message) / paper for kind, message in messages.items()},
        "rivals_over_paper": {
            name: bits / paper for name, bits in rival_message_bits(update, rival_position_bits(update)).items()
        },
    }


def measure_recorded(file: Path, seed: int) -> list[Record]:
    with np.load(file) as stored:
        size = int(stored["size"])
        return [
            measure_real(
                SparseUpdate(size=size, positions=stored[f"positions_{i}"], values=stored[f"values_{i}"]),
                float(delta),
                int(number),
                seed,
            )
            for i, (delta, number) in enumerate(zip(stored["deltas"], stored["rounds"], strict=True))
        ]


# --- speed on the processor ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Vectors:
    """What selection works on: its residual is overwritten, and restored from the saved one."""

    update: Floats
    saved: Floats
    residual: Floats
    magnitudes: Floats
    scratch: Floats

    def restore(self) -> None:
        np.copyto(self.residual, self.saved)

    def copy(self) -> None:
        np.copyto(self.scratch, self.update)


def normal_vectors(size: int, seed: int) -> Vectors:
    rng = np.random.default_rng([seed, size])
    update, saved = (rng.standard_normal(size, dtype=np.float32) for _ in range(2))
    return Vectors(update, saved, saved.copy(), np.abs(update + saved), update.copy())


def partition_and_mask(magnitudes: Floats, k: int) -> object:
    threshold = np.partition(magnitudes, magnitudes.size - k)[magnitudes.size - k]
    return np.flatnonzero(magnitudes >= threshold)


def selection_rivals(magnitudes: Floats, k: int) -> dict[str, Action]:
    rivals: dict[str, Action] = {
        "numpy.argpartition": lambda: np.argpartition(magnitudes, magnitudes.size - k)[magnitudes.size - k :],
        "numpy.partition, mask": lambda: partition_and_mask(magnitudes, k),
    }
    if torch is not None:
        shared = torch.from_numpy(magnitudes)
        rivals["torch.topk"] = lambda: torch.topk(shared, k, sorted=False)
    return rivals


def measure_speed(vectors: Vectors, delta: int) -> Record:
    size = vectors.update.size
    k = size // delta
    repeats, rival_repeats = (15, 5) if size >= LONG else (200, 30)
    select = partial(top_k_with_feedback, vectors.update, vectors.residual, k, out=vectors.residual)
    times = {"selection": take_turns(select, vectors.copy, repeats, vectors.restore)}
    for name, action in selection_rivals(vectors.magnitudes, k).items():
        times[name] = take_turns(action, vectors.copy, rival_repeats)
    vectors.restore()
    update, _ = top_k_with_feedback(vectors.update, vectors.residual, k, out=vectors.residual)
    payload = codec.encode(update)
    times["encode"] = take_turns(lambda: codec.encode(update), vectors.copy, repeats)
    times["decode"] = take_turns(lambda: codec.decode(payload), vectors.copy, repeats)
    times["encode, decode"] = take_turns(lambda: codec.decode(codec.encode(update)), vectors.copy, repeats)
    return {"size": size, "delta": delta, "count": k, "times": times}


def random_payloads(seed: int) -> list[bytes]:
    rng = np.random.default_rng([seed, CLIENTS])
    k = LONG // CLIENT_DELTA
    return [
        codec.encode(
            SparseUpdate(
                size=LONG, positions=random_positions(LONG, k, rng), values=rng.standard_normal(k, dtype=np.float32)
            )
        )
        for _ in range(CLIENTS)
    ]


def measure_aggregation(seed: int) -> Record:
    """The yardstick reads all positions and values into a buffer that stays in the cache, and copies a dense vector."""
    payloads = random_payloads(seed)
    updates = [codec.decode(payload) for payload in payloads]
    positions, values = updates[0].positions.copy(), updates[0].values.copy()
    dense = np.random.default_rng(seed).standard_normal(LONG, dtype=np.float32)
    scratch = dense.copy()

    def read() -> None:
        for update in updates:
            np.copyto(positions, update.positions)
            np.copyto(values, update.values)

    def read_and_pass() -> None:
        read()
        np.copyto(scratch, dense)

    return {
        "updates": CLIENTS,
        "size": LONG,
        "count": updates[0].count,
        "reading_seconds": min(wall_seconds(read) for _ in range(5)),
        "mean": take_turns(lambda: codec.mean_of_updates(updates), read_and_pass, 7),
        "decoding": take_turns(lambda: [codec.decode(payload) for payload in payloads], read_and_pass, 3),
    }


# --- speed on a GPU -----------------------------------------------------------------------------------------------


def measure_gpu_vector(size: int, delta: int, seed: int) -> Record:
    from fewjoules.engine.simulator.cuda.topk import top_k_rows

    generator = torch.Generator(device="cuda").manual_seed(seed)
    update, saved = (torch.randn(size, device="cuda", generator=generator) for _ in range(2))
    residual, scratch, magnitudes = saved.clone(), update.clone(), (update + saved).abs()
    k = size // delta
    turns = partial(take_turns, yardstick=lambda: scratch.copy_(update), clock=device_seconds)
    select = partial(top_k_rows, update[None], residual[None], [k], residual[None])
    times = {
        "selection": turns(select, repeats=30, prepare=lambda: residual.copy_(saved)),
        "torch.topk": turns(lambda: torch.topk(magnitudes, k, sorted=False), repeats=10),
    }
    return {"rows": 1, "size": size, "delta": f"{delta:,}", "times": times}


def measure_gpu_stack(seed: int) -> Record:
    """Clients with k from d/1000 to d/10; torch.topk takes the largest k for all."""
    from fewjoules.engine.simulator.cuda.topk import top_k_rows

    generator = torch.Generator(device="cuda").manual_seed(seed)
    updates, saved = (torch.randn(STACK, LENET5, device="cuda", generator=generator) for _ in range(2))
    residuals, scratch, magnitudes = saved.clone(), updates.clone(), (updates + saved).abs()
    counts = [int(LENET5 / delta) for delta in np.geomspace(10.0, 1000.0, STACK)]
    turns = partial(take_turns, yardstick=lambda: scratch.copy_(updates), clock=device_seconds)
    select = partial(top_k_rows, updates, residuals, counts, residuals)
    times = {
        "selection": turns(select, repeats=30, prepare=lambda: residuals.copy_(saved)),
        "torch.topk": turns(lambda: torch.topk(magnitudes, max(counts), dim=1, sorted=False), repeats=10),
    }
    return {"rows": STACK, "size": LENET5, "delta": "10 to 1,000", "times": times}


def measure_gpu(quick: bool, seed: int) -> list[Record]:
    long = [] if quick else [measure_gpu_vector(size, d, seed) for size in (LONG, LONGER) for d in SPEED_DELTAS]
    return [*long, measure_gpu_stack(seed)]


# --- verdicts -----------------------------------------------------------------------------------------------------


def check(requirement: str, passed: bool, measured: str) -> Check:
    return Check(requirement, "pass" if passed else "MISS", measured)


def skip(requirement: str, reason: str) -> Check:
    return Check(requirement, "skip", reason)


def check_copies(requirement: str, turns: Turns, limit: float) -> Check:
    return check(requirement, turns.ratio <= limit, f"median {turns.ratio:.2f}, best {turns.best_ratio:.2f}")


def check_stream(size: int, records: Sequence[Record]) -> Check:
    requirement = f"d = {size:,}: position stream at most 1.001 log2 C + 64 bits"
    mine = [r for r in records if r["size"] == size]
    if not mine:
        return skip(requirement, "left out by --quick")

    def over(record: Record) -> float:
        return record["stream_bits"] / (1.001 * record["limit_bits"] + 64.0)

    worst = max(mine, key=over)
    return check(requirement, over(worst) <= 1.0, f"at most {over(worst):.5f} of that, at delta {worst['delta']:g}")


def check_overhead(records: Sequence[Record]) -> Check:
    requirement = "header, checksum, coder parameters of one-block frames: at most 32 bytes"
    overheads = [r["message"]["overhead"] for r in records if r["message"]["blocks"] == 1]
    if not overheads:
        return skip(requirement, "no frame had one block")
    return check(requirement, max(overheads) <= 32, f"at most {max(overheads)} bytes in {len(overheads)} frames")


def check_real(records: Sequence[Record]) -> list[Check]:
    below = f"real updates: positions clearly (to {CLEARLY_BELOW:g}) below log2 C"
    whole, coarse = "real updates: float32 message at most formula (25)", "real updates: int8 at most 0.5 formula (25)"
    if not records:
        return [skip(requirement, "no recorded updates") for requirement in (below, whole, coarse)]
    measured = [
        (below, [r["positions_over_limit"] for r in records], CLEARLY_BELOW),
        (whole, [r["over_paper"]["float32"] for r in records], 1.0),
        (coarse, [r["over_paper"]["int8"] for r in records], 0.5),
    ]
    return [
        check(name, max(ratios) <= limit, f"{min(ratios):.3f} to {max(ratios):.3f}; {failing(records, ratios, limit)}")
        for name, ratios, limit in measured
    ]


def failing(records: Sequence[Record], ratios: Sequence[float], limit: float) -> str:
    above = [f"delta {r['delta']:g} round {r['round']}" for r, x in zip(records, ratios, strict=True) if not x <= limit]
    return f"above at {', '.join(above)}" if above else f"all {len(records)} within"


def check_long_speed(records: Sequence[Record]) -> list[Check]:
    checks = []
    for delta, coding in zip(SPEED_DELTAS, (3.0, 1.0), strict=True):
        label = f"d = {LONG:,}, k = d/{delta:,}:"
        names = [
            f"{label} selection within 3 copies",
            f"{label} selection 10 times faster than torch.topk",
            f"{label} selection 3 times faster than numpy.argpartition",
            f"{label} encode and decode within {coding:g} cop{'y' if coding == 1.0 else 'ies'}",
        ]
        record = next((r for r in records if (r["size"], r["delta"]) == (LONG, delta)), None)
        if record is None:
            checks += [skip(name, "left out by --quick") for name in names]
            continue
        times = record["times"]
        checks += [
            check_copies(names[0], times["selection"], 3.0),
            check_faster(names[1], times, "torch.topk", 10.0),
            check_faster(names[2], times, "numpy.argpartition", 3.0),
            check_copies(names[3], times["encode, decode"], coding),
        ]
    return checks


def check_faster(requirement: str, times: dict[str, Turns], rival: str, factor: float) -> Check:
    if rival not in times:
        return skip(requirement, "torch is not installed")
    ratio = times[rival].ratio / times["selection"].ratio
    best = times[rival].best_ratio / times["selection"].best_ratio
    return check(requirement, ratio >= factor, f"medians {ratio:.1f} times, bests {best:.1f}")


def check_short_speed(records: Sequence[Record]) -> list[Check]:
    return [
        check_copies(f"d = {LENET5:,}, k = d/{r['delta']:,}: selection within 6 copies", r["times"]["selection"], 6.0)
        for r in records
        if r["size"] == LENET5
    ]


def check_aggregation(record: Record | None) -> Check:
    requirement = f"mean of {CLIENTS} updates: within 5 times reading them and one dense pass"
    if record is None:
        return skip(requirement, "left out by --quick")
    return check_copies(requirement, record["mean"], 5.0)


def check_gpu(records: Sequence[Record], missing: str) -> list[Check]:
    long = [r for r in records if r["rows"] == 1]
    if not long:
        return [skip("GPU, d >= 25,000,000: selection within 4 device copies", missing)]
    return [
        check_copies(
            f"GPU, d = {r['size']:,}, k = d/{r['delta']}: selection within 4 device copies",
            r["times"]["selection"],
            4.0,
        )
        for r in long
    ]


# --- what is printed ----------------------------------------------------------------------------------------------


def print_uniform(records: Sequence[Record]) -> None:
    print("\nUniform positions: bits of the positions alone over log2 C(d, k)")
    names = list(records[0]["rival_position_bits"])
    header = ["d", "delta", "k", "blocks", "overhead", "bits each", "FewJoules", "excess", *names]
    rows = [
        [
            *size_cells(r),
            str(r["message"]["blocks"]),
            f"{r['message']['overhead']} B",
            f"{r['stream_bits'] / r['count']:.3f}",
            f"{r['stream_bits'] / r['limit_bits']:.5f}",
            f"{r['stream_bits'] - r['limit_bits']:+,.0f} b",
            *(f"{bits / r['limit_bits']:.3f}" for bits in r["rival_position_bits"].values()),
        ]
        for r in records
    ]
    print_table(header, rows)
    print("  overhead: header, checksum and parameters of the position coder, in bytes; it is not in the stream.")
    print("  npz: savez_compressed of int32 positions; (25): its k log2 delta, less than uniform positions can take.")


def print_messages(records: Sequence[Record]) -> None:
    print("\nUniform positions, normal values: whole float32 message over formula (25)")
    names = list(records[0]["rival_message_bits"])
    rows = [
        [
            *size_cells(r),
            f"{r['message_bits'] / 8:,.0f}",
            f"{r['message_bits'] / r['paper_bits']:.4f}",
            *(f"{bits / r['paper_bits']:.3f}" for bits in r["rival_message_bits"].values()),
        ]
        for r in records
    ]
    print_table(["d", "delta", "k", "bytes", "FewJoules", *names], rows)


def size_cells(record: Record) -> list[str]:
    return [f"{record['size']:,}", f"{record['delta']:g}", f"{record['count']:,}"]


def print_real(records: Sequence[Record], file: Path) -> None:
    if not records:
        print(f"\nReal updates: {file.name} is not there: left out. To record them:")
        print("  python benchmarks/record_updates.py --data-dir DIRECTORY_OF_MNIST [--out FILE.npz]")
        return
    print(f"\nReal updates (d = {records[0]['size']:,}): positions over log2 C(d, k), messages over formula (25)")
    kinds, names = list(records[0]["over_paper"]), ["int32 COO", "npz"]
    rows = [
        [
            f"{r['delta']:g}",
            str(r["round"]),
            f"{r['count']:,}",
            str(r["message"]["blocks"]),
            f"{r['bits_a_position']:.2f}",
            f"{r['positions_over_limit']:.3f}",
            f"{100 * (1 - r['positions_over_limit']):.1f} %",
            f"{r['exponent_bits_saved']:.2f}",
            *(f"{r['over_paper'][kind]:.3f}" for kind in kinds),
            *(f"{r['rivals_over_paper'][name]:.3f}" for name in names),
        ]
        for r in records
    ]
    header = ["delta", "round", "k", "blocks", "bits each", "positions", "below", "exponent", *kinds, *names]
    print_table(header, rows)
    print("  positions: stream and parameters of all blocks; exponent: bits a value that its model saves, table paid.")
    print("  formula (25) is that of float32 values for every kind; qsgd has 15 levels.")


def turn_cells(turns: Turns) -> list[str]:
    return [
        duration(turns.best_seconds),
        duration(turns.median_seconds),
        duration(turns.yardstick_median_seconds),
        f"{turns.best_ratio:.2f}",
        f"{turns.ratio:.2f}",
    ]


def print_speed(records: Sequence[Record]) -> None:
    print("\nSpeed on the processor, in numpy.copyto of the vector")
    rows = [
        [f"{r['size']:,}", f"d/{r['delta']:,}", name, *turn_cells(turns), f"{turns.ratio / own:.1f}"]
        for r in records
        for own in [r["times"]["selection"].ratio]
        for name, turns in r["times"].items()
    ]
    header = ["d", "k", "action", "best", "median", "copy", "copies, best", "copies, median", "times selection"]
    print_table(header, rows, text_columns=3)
    print("  selection adds the residual, finds exactly k entries and leaves the rest in the residual, in place;")
    print("  its rivals only find indices, of magnitudes that are given to them ready: no sum, no split, no order.")
    print_others(records)


def print_others(records: Sequence[Record]) -> None:
    cores = ", ".join(f"{record['others_cores']:.2f}" for record in records)
    print(
        f"  cores that other processes kept busy meanwhile: {cores}; above 0.1 the ratios of threaded work are too high"
    )


def print_aggregation(record: Record) -> None:
    total = record["updates"] * record["count"]
    print(f"\nMean of {record['updates']:,} updates of {record['count']:,} entries, d = {record['size']:,}")
    header = ["action", "best", "median", "reading and pass", "ratio, best", "ratio, median", "ns an entry"]
    rows = [
        [name, *turn_cells(record[key]), f"{1e9 * record[key].median_seconds / total:.2f}"]
        for name, key in (("mean_of_updates", "mean"), ("decoding, apart", "decoding"))
    ]
    print_table(header, rows)
    print(f"  reading positions and values alone: {duration(record['reading_seconds'])}, by one thread of NumPy")
    print_others([record])


def print_gpu(records: Sequence[Record], missing: str) -> None:
    if not records:
        print(f"\nSpeed on a GPU: {missing}")
        return
    print(f"\nSpeed on a GPU ({torch.cuda.get_device_name()}), in device copies of the same tensor")
    rows = [
        [f"{r['rows']} x {r['size']:,}", f"d/{r['delta']}", name, *turn_cells(turns)]
        for r in records
        for name, turns in r["times"].items()
    ]
    header = ["shape", "k", "action", "best", "median", "copy", "copies, best", "copies, median"]
    print_table(header, rows, text_columns=3)
    print("  torch.topk gets magnitudes ready, and for the stack the largest k for all rows.")


def print_checks(checks: Sequence[Check]) -> None:
    print("\nRequirements")
    rows = [[c.requirement, c.verdict, c.measured] for c in checks]
    print_table(["requirement", "verdict", "measured"], rows, text_columns=3)


# --- the run ------------------------------------------------------------------------------------------------------


def keep_to_cores(cores: int) -> int:
    """Start again on that many cores if more are allowed: libraries size their threads when they are imported."""
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) > cores:
        os.sched_setaffinity(0, allowed[:cores])
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return len(allowed)


def has_gpu() -> bool:
    return torch is not None and bool(torch.cuda.is_available())


def about_run(options: argparse.Namespace, cores: int) -> Record:
    quick = " --quick" if options.quick else ""
    command = f"python benchmarks/codec.py{quick} --updates {options.updates.name} --seed {options.seed}"
    gpu = torch.cuda.get_device_name() if has_gpu() else None
    return describe_run(command, options.seed, cores, ("numpy", "numba", "torch", "triton"), gpu)


def print_run(about: Record) -> None:
    machine = about["machine"]
    print(f"FewJoules codec: {about['command']}")
    print(f"{machine['processor']}, {machine['cores_used']} of {machine['cpu_count']} cores, {machine['platform']}")
    print(f"load average before the run {machine['load_average']:.2f}; others' work inflates the times")
    print(", ".join(f"{name} {version or 'missing'}" for name, version in about["packages"].items()))


def measure_sizes(options: argparse.Namespace) -> tuple[list[Record], list[Record]]:
    sizes = (LENET5,) if options.quick else (LENET5, LONG)
    uniform = [measure_uniform(size, delta, options.seed) for size in sizes for delta in SIZE_DELTAS]
    print_uniform(uniform)
    print_messages(uniform)
    real = measure_recorded(options.updates, options.seed) if options.updates.exists() else []
    print_real(real, options.updates)
    return uniform, real


def measure_speeds(options: argparse.Namespace) -> tuple[list[Record], Record | None]:
    speed = []
    for size in (LENET5,) if options.quick else (LENET5, LONG):
        vectors = normal_vectors(size, options.seed)
        speed += [watch_others(partial(measure_speed, vectors, delta)) for delta in SPEED_DELTAS]
    print_speed(speed)
    if options.quick:
        return speed, None
    aggregation = watch_others(partial(measure_aggregation, options.seed))
    print_aggregation(aggregation)
    return speed, aggregation


def run(options: argparse.Namespace, cores: int) -> Record:
    about = about_run(options, cores)
    print_run(about)
    uniform, real = measure_sizes(options)
    speed, aggregation = measure_speeds(options)
    gpu = measure_gpu(options.quick, options.seed) if has_gpu() else []
    missing = "left out by --quick" if has_gpu() else "no GPU here"
    print_gpu(gpu, missing)
    checks = [
        *(check_stream(size, uniform) for size in (LENET5, LONG)),
        check_overhead(uniform),
        *check_real(real),
        *check_long_speed(speed),
        *check_short_speed(speed),
        check_aggregation(aggregation),
        *check_gpu(gpu, missing),
    ]
    print_checks(checks)
    print(f"\nload average after the run {os.getloadavg()[0]:.2f}")
    measured = {"uniform": uniform, "real": real, "speed": speed, "aggregation": aggregation, "gpu": gpu}
    return about | measured | {"checks": [asdict(c) for c in checks]}


def as_json(value: object) -> Record:
    if isinstance(value, Turns):
        return asdict(value) | {"ratio": value.ratio, "best_ratio": value.best_ratio}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure sizes and speeds of the codec beside those of its rivals.")
    parser.add_argument("--quick", action="store_true", help="leave out vectors of 25,000,000 entries and more")
    parser.add_argument(
        "--updates",
        type=Path,
        default=DEFAULT_UPDATES,
        metavar="FILE.npz",
        help="recorded updates (the file that record_updates.py writes by default)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of positions, vectors and rounding (0)")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="also write every number, as JSON")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    cores = keep_to_cores(CORES)
    if torch is not None:
        torch.set_num_threads(cores)
    results = run(options, cores)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=2, default=as_json) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
