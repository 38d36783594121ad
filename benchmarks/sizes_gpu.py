"""Message sizes on a GPU beside the host's function: python benchmarks/sizes_gpu.py [--rows 100] [--profile]

Clients of LeNet5 send their largest entries, at sparsity 4.5 and 100; layers differ in scale. Prints the milliseconds
of a round's sizes, run one operation after the other and recorded as a CUDA graph, and checks them against the host's.
Without a GPU the same operations are timed on the processor, with no graph.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from report import print_table

from fewjoules.codec.sizes import float32_sizes
from fewjoules.engine.simulator.cuda.sizes import MessageSizer

LAYERS = {520: 1.0, 25_050: 0.5, 400_500: 0.1, 5_010: 2.0}  # parameters of LeNet5-Caffe and how large its updates are
SPARSITIES = (4.5, 100.0)
TURNS = 20
ROUND_MS = 9.0
LIMITS = {4.5: 0.25, 100.0: 0.10}  # of a round


def entries(rows: int, count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and values of the largest entries of random updates, one row after the other."""
    scales = torch.cat([torch.full((size,), scale) for size, scale in LAYERS.items()]).to(device)
    made = torch.Generator(device).manual_seed(0)
    positions, values = [], []
    for _ in range(rows):
        update = torch.randn(scales.numel(), generator=made, device=device) * scales
        chosen = update.abs().topk(count).indices.sort().values
        positions.append(chosen)
        values.append(update[chosen])
    return torch.cat(positions), torch.cat(values)


def milliseconds(work: Callable[[], object], device: torch.device) -> float:
    """Median time of a call once the device is done."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    taken = []
    for _ in range(TURNS if device.type == "cuda" else 3):
        wait()
        start = time.perf_counter()
        work()
        wait()
        taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken)


def recorded(work: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sizes = work()
    return graph, sizes


def profile(work: Callable[[], object]) -> None:
    from torch.profiler import ProfilerActivity

    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    print(seen.key_averages().table(sort_by="self_device_time_total", row_limit=40, max_name_column_width=70))


def measure(sparsity: float, rows: int, device: torch.device, profiled: bool) -> list[str]:
    size = sum(LAYERS)
    counts = [int(size / sparsity + 0.5)] * rows
    positions, values = entries(rows, counts[0], device)
    start = time.perf_counter()
    sizer = MessageSizer(size, counts, device)
    found = sizer(positions, values).cpu().numpy()
    first_ms = 1e3 * (time.perf_counter() - start)
    eager_ms = milliseconds(lambda: sizer(positions, values), device)
    graph_ms = None
    if device.type == "cuda":
        graph, sizes = recorded(lambda: sizer(positions, values))
        graph_ms = milliseconds(graph.replay, device)
        if not np.array_equal(sizes.cpu().numpy(), found):
            raise SystemExit(f"the sizes of a recorded sizer differ at sparsity {sparsity:g}")
        if profiled:
            profile(lambda: sizer(positions, values))
    host = positions.cpu().numpy(), values.cpu().numpy()
    expected = float32_sizes(size, *host, np.array(counts))
    host_ms = milliseconds(lambda: float32_sizes(size, *host, np.array(counts)), torch.device("cpu"))
    off = np.abs(found - expected)
    if np.any(off > np.maximum(2, 1e-5 * expected)):
        raise SystemExit(f"sizes must be the host's to 2 bytes or 1e-5, got {off.max()} bytes at sparsity {sparsity:g}")
    return [
        f"{sparsity:g}",
        f"{rows} x {counts[0]}",
        f"{first_ms:.1f}",
        f"{eager_ms:.2f}",
        "-" if graph_ms is None else f"{graph_ms:.2f}",
        f"{host_ms:.1f}",
        "-" if graph_ms is None else f"{graph_ms / ROUND_MS:.0%} (at most {LIMITS[sparsity]:.0%})",
        str(off.max()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--profile", action="store_true", help="which kernels take the time")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        print("no GPU: the same operations on the processor, where the host's function is the faster one")
    rows = [measure(sparsity, given.rows, device, given.profile) for sparsity in SPARSITIES]
    head = ["sparsity", "entries", "first ms", "eager ms", "graph ms", "host ms", f"of {ROUND_MS:g} ms", "bytes off"]
    print_table(head, rows)


if __name__ == "__main__":
    main()
