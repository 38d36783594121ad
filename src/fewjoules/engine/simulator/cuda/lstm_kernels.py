"""Kernels of the cells of a stacked LSTM, in Triton: all that a place in a sequence needs beside its matrix product.

Gates are (clients, places, n, 4 * width) in memory, in PyTorch's order: input, forget, cell, output. Hidden and cell
states are (clients, places, n, width). A program computes ``BLOCK`` cells of one place, in float32.
"""

import torch
import triton
import triton.language as tl

_BLOCK = 256


def launch_cell(
    driven: torch.Tensor,
    product: torch.Tensor,
    before: torch.Tensor,
    place: int,
    gates: torch.Tensor,
    cells: torch.Tensor,
    hiddens: torch.Tensor,
) -> None:
    """Write gates, cells and hidden states of a place, from its inputs, ``product`` and the cells ``before`` it."""
    clients, places, samples, width = hiddens.shape
    count = clients * samples * width
    sizes = (count, place, places, samples, width)
    _cell[(triton.cdiv(count, _BLOCK),)](driven, product, before, gates, cells, hiddens, *sizes, BLOCK=_BLOCK)


def launch_cell_gradient(
    of_hiddens: torch.Tensor,
    of_cells: torch.Tensor | None,
    of_hidden: torch.Tensor,
    of_cell: torch.Tensor,
    gates: torch.Tensor,
    cells: torch.Tensor,
    before: torch.Tensor,
    place: int,
    of_gates: torch.Tensor,
) -> None:
    """Write the gradient of what a place's gates are functions of, and into ``of_cell`` that of the cells before it."""
    clients, places, samples, width = of_hiddens.shape
    count = clients * samples * width
    sizes = (count, place, places, samples, width)
    seen = of_hiddens if of_cells is None else of_cells
    _cell_gradient[(triton.cdiv(count, _BLOCK),)](
        of_hiddens, seen, of_hidden, of_cell, gates, cells, before, of_gates, *sizes, of_cells is not None, BLOCK=_BLOCK
    )


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    shrunk = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - shrunk) / (1.0 + shrunk)
    return tl.where(x < 0.0, -size, size)


@triton.jit
def _places(count, place, places, samples, width, BLOCK: tl.constexpr):
    """Return which cells a program has, which of them exist, and where their rows, states and gates are."""
    cell = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, column = cell // width, cell % width
    client, sample = row // samples, row % samples
    there = (client * places + place) * samples + sample
    return cell, cell < count, row * 4 * width + column, there * width + column, there * 4 * width + column


@triton.jit
def _cell(
    driven,
    product,
    before,
    gates,
    cells,
    hiddens,
    count,
    place,
    places,
    samples,
    width,
    BLOCK: tl.constexpr,
):
    cell, inside, row, state, gate = _places(count, place, places, samples, width, BLOCK)
    taken = tl.load(driven + gate, inside, 0.0).to(tl.float32)
    kept = tl.load(driven + gate + width, inside, 0.0).to(tl.float32)
    new = tl.load(driven + gate + 2 * width, inside, 0.0).to(tl.float32)
    shown = tl.load(driven + gate + 3 * width, inside, 0.0).to(tl.float32)
    taken = _sigmoid(taken + tl.load(product + row, inside, 0.0).to(tl.float32))
    kept = _sigmoid(kept + tl.load(product + row + width, inside, 0.0).to(tl.float32))
    new = _tanh(new + tl.load(product + row + 2 * width, inside, 0.0).to(tl.float32))
    shown = _sigmoid(shown + tl.load(product + row + 3 * width, inside, 0.0).to(tl.float32))
    old = tl.load(before + cell, inside & (place == 0), 0.0)
    old += tl.load(cells + state - samples * width, inside & (place > 0), 0.0)
    held = kept * old + taken * new
    tl.store(cells + state, held, inside)
    tl.store(hiddens + state, shown * _tanh(held), inside)
    tl.store(gates + gate, taken, inside)
    tl.store(gates + gate + width, kept, inside)
    tl.store(gates + gate + 2 * width, new, inside)
    tl.store(gates + gate + 3 * width, shown, inside)


@triton.jit
def _cell_gradient(
    of_hiddens,
    of_cells,
    of_hidden,
    of_cell,
    gates,
    cells,
    before,
    of_gates,
    count,
    place,
    places,
    samples,
    width,
    CELLS_COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    cell, inside, _, state, gate = _places(count, place, places, samples, width, BLOCK)
    taken = tl.load(gates + gate, inside, 0.0).to(tl.float32)
    kept = tl.load(gates + gate + width, inside, 0.0).to(tl.float32)
    new = tl.load(gates + gate + 2 * width, inside, 0.0).to(tl.float32)
    shown = tl.load(gates + gate + 3 * width, inside, 0.0).to(tl.float32)
    old = tl.load(before + cell, inside & (place == 0), 0.0)
    old += tl.load(cells + state - samples * width, inside & (place > 0), 0.0)
    lit = _tanh(tl.load(cells + state, inside, 0.0))
    above = tl.load(of_hiddens + state, inside, 0.0).to(tl.float32)
    above += tl.load(of_hidden + cell, inside, 0.0).to(tl.float32)
    along = tl.load(of_cell + cell, inside, 0.0) + above * shown * (1.0 - lit * lit)
    if CELLS_COUNT:
        along += tl.load(of_cells + state, inside, 0.0).to(tl.float32)
    tl.store(of_gates + gate, along * new * taken * (1.0 - taken), inside)
    tl.store(of_gates + gate + width, along * old * kept * (1.0 - kept), inside)
    tl.store(of_gates + gate + 2 * width, along * taken * (1.0 - new * new), inside)
    tl.store(of_gates + gate + 3 * width, above * lit * shown * (1.0 - shown), inside)
    tl.store(of_cell + cell, along * kept, inside)
