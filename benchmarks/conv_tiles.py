"""Time tiles of the stacked convolution on a GPU: python benchmarks/conv_tiles.py [tf32,bf16] [seconds]

Workers compile every candidate first (into Triton's cache on disk), then one process times them one after the other.
Prints, for each layer and operation, the best tile, its time, that of the tile that ``choose`` takes, and that of
torch.bmm on patches that lie ready and of writing them. Candidates that do not compile are counted, not fatal.
"""

import contextlib
import dataclasses
import itertools
import multiprocessing as mp
import os
import sys
import time
from functools import partial

import torch

from fewjoules.engine.simulator.cuda import conv_kernels as cc
from fewjoules.engine.simulator.cuda.conv_kernels import Shape, Tile

G, N = 100, 32
LAYERS = {
    "lenet 1-20": Shape(28, 28, 1, 20, 5, 1, 0),
    "lenet 20-50": Shape(12, 12, 20, 50, 5, 1, 0),
    "resnet 3-16": Shape(32, 32, 3, 16, 3, 1, 1),
    "resnet 16-16": Shape(32, 32, 16, 16, 3, 1, 1),
    "resnet 16-32 s2": Shape(32, 32, 16, 32, 3, 2, 1),
    "resnet 32-32": Shape(16, 16, 32, 32, 3, 1, 1),
    "resnet 32-64 s2": Shape(16, 16, 32, 64, 3, 2, 1),
    "resnet 64-64": Shape(8, 8, 64, 64, 3, 1, 1),
}
TIMES = {
    "lenet 1-20": 1,
    "lenet 20-50": 1,
    "resnet 3-16": 1,
    "resnet 16-16": 6,
    "resnet 16-32 s2": 1,
    "resnet 32-32": 5,
    "resnet 32-64 s2": 1,
    "resnet 64-64": 5,
}
WORKERS = max(1, min(14, (os.cpu_count() or 2) - 2))


def candidates(kind, shape, size):
    now = cc.choose(kind, shape, size)
    depth = shape.out if kind == "images" else shape.channels
    columns, small = now.columns, shape.kernel**2 * depth <= 32
    found = [now]
    if kind == "weights":
        rows = [32] if small else [16, 32, 64, 128] if depth <= 16 else [32, 64, 128]
        for block, (pixels, stages) in itertools.product(rows, [(32, 3), (64, 2), (64, 1), (128, 1)]):
            if block * pixels > 128 * 64:
                continue
            warps = 8 if block * columns >= 128 * 64 else 4
            found.append(Tile(pixels, block, columns, depth % block == 0, warps, stages, 2048))
        found += [dataclasses.replace(found[1], part_pixels=p) for p in (1024, 4096)]
    else:
        blocks = [(32, False)] if small else [(b, depth % b == 0) for b in (16, 32, 64)]
        if depth == 50:
            blocks += [(64, True)]
        for (block, by_tap), (pixels, warps, stages) in itertools.product(
            blocks, [(128, 4, 1), (128, 4, 3), (256, 8, 1), (64, 4, 2)]
        ):
            found.append(Tile(pixels, block, columns, by_tap, warps, stages))
    return list(dict.fromkeys(found))


def data(kind, shape, precision):
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32

    def make(*size):
        return torch.randn(size, device="cuda", dtype=dtype)

    x = make(G, N, shape.height, shape.width, shape.channels)
    w = make(G, shape.kernel, shape.kernel, shape.channels, shape.out)
    gy = make(G, N, shape.tall, shape.wide, shape.out)
    return x, w, gy


def call(kind, tensors, shape, tile, precision):
    x, w, gy = tensors
    if kind == "forward":
        return cc.launch_forward(x, w, None, shape, tile, precision)
    if kind == "images":
        return cc.launch_images_gradient(gy, w, shape, tile, precision)
    return cc.launch_weights_gradient(x, gy, shape, tile, precision).sum(0)


def jobs(precisions):
    for precision, (name, shape) in itertools.product(precisions, LAYERS.items()):
        for kind in ("forward", "images", "weights"):
            if kind == "images" and shape.channels in (1, 3):
                continue
            yield precision, name, kind


def compile_share(share, number, deadline):
    held = {}
    for precision, name, kind in share:
        shape = LAYERS[name]
        tiles = candidates(kind, shape, 2 if precision == "bf16" else 4)
        key = (precision, name)
        if key not in held:
            held = {key: data(kind, shape, precision)}
        for index, tile in enumerate(tiles):
            if index % WORKERS != number:
                continue
            if time.time() > deadline:
                return
            with contextlib.suppress(Exception):
                call(kind, held[key], shape, tile, precision)
    torch.cuda.synchronize()


def timed(function, repeats=10):
    function()
    function()
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            function()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) / repeats)
    return best


def by_patches(kind, shape, dtype):
    """Milliseconds of torch.bmm on ready patches, and of copying (writing) the patches."""
    pixels, entries = N * shape.tall * shape.wide, shape.kernel**2 * shape.channels
    rows = torch.randn(G, pixels, entries, device="cuda", dtype=dtype)
    w = torch.randn(G, entries, shape.out, device="cuda", dtype=dtype)
    gy = torch.randn(G, pixels, shape.out, device="cuda", dtype=dtype)
    product = {
        "forward": lambda: torch.bmm(rows, w),
        "images": lambda: torch.bmm(gy, w.mT),
        "weights": lambda: torch.bmm(rows.mT, gy),
    }[kind]
    return timed(product, 5), timed(lambda: rows.clone(), 5)


def main():
    precisions = (sys.argv[1] if len(sys.argv) > 1 else "tf32,bf16").split(",")
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 110.0
    begun = time.time()
    torch.backends.cuda.matmul.allow_tf32 = True
    todo = list(jobs(precisions))
    context = mp.get_context("spawn")
    workers = [context.Process(target=compile_share, args=(todo, i, begun + 0.55 * seconds)) for i in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"compiled in {time.time() - begun:.0f} s with {WORKERS} workers, {torch.cuda.get_device_name()}", flush=True)
    totals, failed = {}, 0
    for precision, name, kind in todo:
        shape, size = LAYERS[name], 2 if precision == "bf16" else 4
        tensors = data(kind, shape, precision)
        reference = call(kind, tensors, shape, cc.choose(kind, shape, size), precision).float()
        results = []
        for tile in candidates(kind, shape, size):
            if time.time() - begun > seconds and results:
                break
            try:
                out = call(kind, tensors, shape, tile, precision).float()
                off = ((out - reference).abs().max() / reference.abs().max()).item()
                if not off < 2e-2:
                    print(f"!! wrong by {off:.2g}: {precision} {name} {kind} {tile}", flush=True)
                    continue
                results.append((timed(partial(call, kind, tensors, shape, tile, precision)), tile))
            except Exception as error:
                failed += 1
                if failed <= 5:
                    print(f"!! {precision} {name} {kind} {tile}: {str(error).splitlines()[0][:150]}", flush=True)
        if not results:
            continue
        now = results[0][0]
        best, tile = min(results, key=lambda pair: pair[0])
        bmm, copied = by_patches(kind, shape, tensors[0].dtype)
        floor = sum(t.numel() * t.element_size() for t in tensors) / 4.8e9
        print(
            f"{precision} {name:16s} {kind:8s} best {best:6.3f} ms  in use {now:6.3f}  bmm {bmm:6.3f}  patches "
            f"{copied:6.3f}  memory floor {floor:6.3f}  of {len(results)}",
            flush=True,
        )
        top = sorted(results, key=lambda pair: pair[0])[:3]
        print("      " + "; ".join(f"{ms:.3f} {dataclasses.astuple(t)}" for ms, t in top), flush=True)
        model = (precision, name.split()[0])
        was = totals.setdefault(model, [0.0, 0.0, 0.0])
        for i, ms in enumerate((best, now, bmm + (copied if kind != "images" else 0.0))):
            was[i] += TIMES[name] * ms
    print(f"{failed} candidates failed; total {time.time() - begun:.0f} s")
    for (precision, model), (best, now, other) in totals.items():
        times = f"best {best:.2f} ms, in use {now:.2f} ms, patches and bmm {other:.2f} ms a step"
        print(f"all convolutions of {model} {precision}: {times}")


if __name__ == "__main__":
    main()
