"""A layer of LSTM cells for a stack of clients on a GPU: per place one matrix product and one kernel, both ways.

Written out in PyTorch's operators, the cells of a step are thousands of them, too many to compile.
"""

from typing import Any

import torch

from fewjoules.engine.simulator.cuda.stacked import stacked

_Pair = tuple[torch.Tensor, torch.Tensor]
_Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@torch.library.custom_op(
    "fewjoules::lstm_layer",
    mutates_args=(),
    schema="(Tensor driven, Tensor recurrent, Tensor hidden, Tensor cell) -> (Tensor, Tensor, Tensor)",
)
def lstm_layer(driven: torch.Tensor, recurrent: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> _Triple:
    """Return hidden states and cells (clients, places, n, width), and gates (clients, places, n, 4 * width).

    ``driven`` are the gates of the inputs alone, ``recurrent`` is (clients, width, 4 * width), and the first states
    (clients, n, width).
    """
    from fewjoules.engine.simulator.cuda.lstm_kernels import launch_cell

    driven, before = driven.contiguous(), _wide(cell).contiguous()
    hiddens, cells, gates = _new_states(driven)
    for place in range(driven.shape[1]):
        product = torch.bmm(hidden, recurrent)
        launch_cell(driven, product, before, place, gates, cells, hiddens)
        hidden = hiddens[:, place]
    return hiddens, cells, gates


@lstm_layer.register_fake
def _(driven: torch.Tensor, recurrent: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> _Triple:
    return _new_states(driven)


@torch.library.custom_op(
    "fewjoules::lstm_layer_gradient",
    mutates_args=(),
    schema=(
        "(Tensor of_hiddens, Tensor? of_cells, Tensor gates, Tensor cells, Tensor recurrent, Tensor cell)"
        " -> (Tensor, Tensor, Tensor)"
    ),
)
def lstm_layer_gradient(
    of_hiddens: torch.Tensor,
    of_cells: torch.Tensor | None,
    gates: torch.Tensor,
    cells: torch.Tensor,
    recurrent: torch.Tensor,
    cell: torch.Tensor,
) -> _Triple:
    """Return the gradients of ``driven`` and of the first states, from those of all hidden states and cells."""
    from fewjoules.engine.simulator.cuda.lstm_kernels import launch_cell_gradient

    of_hiddens, before = of_hiddens.contiguous(), _wide(cell).contiguous()
    of_cells = None if of_cells is None else of_cells.contiguous()
    of_gates, of_hidden, of_cell = torch.empty_like(gates), torch.zeros_like(before), torch.zeros_like(before)
    back = recurrent.transpose(1, 2)
    for place in reversed(range(gates.shape[1])):
        launch_cell_gradient(of_hiddens, of_cells, of_hidden, of_cell, gates, cells, before, place, of_gates)
        of_hidden = torch.bmm(of_gates[:, place], back)
    return of_gates, of_hidden.to(of_hiddens.dtype), of_cell.to(cell.dtype)


@lstm_layer_gradient.register_fake
def _(
    of_hiddens: torch.Tensor,
    of_cells: torch.Tensor | None,
    gates: torch.Tensor,
    cells: torch.Tensor,
    recurrent: torch.Tensor,
    cell: torch.Tensor,
) -> _Triple:
    return torch.empty_like(gates), of_hiddens.new_empty(cell.shape), cell.new_empty(cell.shape)


class _Layer(torch.autograd.Function):
    """``lstm_layer`` with a gradient; its gates are for the gradient only."""

    @staticmethod
    def forward(driven: torch.Tensor, recurrent: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> _Triple:
        return lstm_layer(driven, recurrent, hidden, cell)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, recurrent, hidden, cell = inputs
        hiddens, cells, gates = output
        ctx.mark_non_differentiable(gates)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(recurrent, hidden, cell, hiddens, cells, gates)

    @staticmethod
    def backward(ctx: Any, of_hiddens: torch.Tensor | None, of_cells: torch.Tensor | None, _: Any) -> Any:
        recurrent, hidden, cell, hiddens, cells, gates = ctx.saved_tensors
        of_hiddens = torch.zeros_like(hiddens) if of_hiddens is None else of_hiddens
        of_driven, of_hidden, of_cell = lstm_layer_gradient(of_hiddens, of_cells, gates, cells, recurrent, cell)
        entering = torch.cat([hidden[:, None], hiddens[:, :-1]], dim=1).flatten(1, 2)
        of_recurrent = torch.bmm(entering.transpose(1, 2), of_driven.flatten(1, 2))
        return of_driven, of_recurrent, of_hidden, of_cell

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: torch.Tensor) -> Any:
        tensors = [stacked(info.batch_size, tensor, dim) for tensor, dim in zip(inputs, in_dims, strict=True)]
        return tuple(tensor[:, None] for tensor in _Layer.apply(*tensors)), (0, 0, 0)


def run_layer(driven: torch.Tensor, recurrent: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> _Pair:
    """Return hidden states and cells (places, n, width) of a layer, under vmap for a stack of clients.

    ``driven`` (places, n, 4 * width) are the gates of the inputs alone, ``recurrent`` is (width, 4 * width).
    """
    kind = driven.dtype
    given = (driven, recurrent.to(kind), hidden.to(kind), _wide(cell))
    hiddens, cells, _ = _Layer.apply(*(tensor[None] for tensor in given))
    return hiddens[0], cells[0]


def _new_states(driven: torch.Tensor) -> _Triple:
    """Return empty hidden states, cells and gates; sums along a sequence are kept in float32."""
    size = (*driven.shape[:-1], driven.shape[-1] // 4)
    gates = torch.empty(driven.shape, dtype=driven.dtype, device=driven.device)
    return driven.new_empty(size), driven.new_empty(size, dtype=torch.float32), gates


def _wide(cell: torch.Tensor) -> torch.Tensor:
    return cell.to(torch.float32)
