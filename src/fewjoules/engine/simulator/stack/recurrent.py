"""``nn.LSTM`` for a stack of clients: its cells written out, since vmap cannot run PyTorch's own.

On a GPU one kernel computes the cells of a place for all clients.
"""

import torch
from torch import nn
from torch.nn import functional

from fewjoules.engine.simulator.stack.replacement import Replacement

State = tuple[torch.Tensor, torch.Tensor]


class StackedLSTM(Replacement):
    """Layers of LSTM cells in one direction, without dropout and without projections."""

    num_layers: int
    hidden_size: int
    batch_first: bool
    by_kernels = True  # on a GPU

    def __init__(self, lstm: nn.LSTM) -> None:
        """Share the parameters of ``lstm``."""
        super().__init__(lstm)
        for name, parameter in lstm.named_parameters():
            self.register_parameter(name, parameter)

    def forward(self, inputs: torch.Tensor, state: State | None = None) -> tuple[torch.Tensor, State]:
        """Return the hidden states at every place and the last state of each layer, as ``nn.LSTM`` does."""
        if not torch.is_tensor(inputs) or inputs.ndim != 3:
            raise TypeError("a stack of LSTMs takes batches of sequences of equal length")
        hidden = inputs if not self.batch_first else inputs.transpose(0, 1)
        last = []
        for layer in range(self.num_layers):
            start = None if state is None else (state[0][layer], state[1][layer])
            hidden, end = self._layer(hidden, layer, start)
            last.append(end)
        hiddens, cells = (torch.stack(part) for part in zip(*last, strict=True))
        return hidden.transpose(0, 1) if self.batch_first else hidden, (hiddens, cells)

    def flatten_parameters(self) -> None:
        """Do nothing: the weights of a stack are one matrix."""

    def _layer(self, inputs: torch.Tensor, layer: int, state: State | None) -> tuple[torch.Tensor, State]:
        """Run the cells of a layer over (places, n, width); the inputs of all places are multiplied at once."""
        biases = [getattr(self, f"bias_{part}_l{layer}", None) for part in ("ih", "hh")]
        bias = None if biases[0] is None else biases[0] + biases[1]
        driven = functional.linear(inputs, getattr(self, f"weight_ih_l{layer}"), bias)
        recurrent = getattr(self, f"weight_hh_l{layer}").T
        if state is None:
            nothing = torch.zeros_like(driven[0, :, : self.hidden_size])
            state = nothing, nothing
        hidden, cell = state
        if self.by_kernels and has_kernels(driven):
            from fewjoules.engine.simulator.cuda.lstm import run_layer

            all_hidden, all_cells = run_layer(driven, recurrent, hidden, cell)
            return all_hidden, (all_hidden[-1], all_cells[-1].to(cell.dtype))
        hiddens = []
        for gates in driven.unbind(0):
            hidden, cell = _cell(gates + hidden @ recurrent, cell)
            hiddens.append(hidden)
        return torch.stack(hiddens), (hidden, cell)


def can_stack(lstm: nn.LSTM) -> bool:
    """Tell whether ``StackedLSTM`` computes what this module does."""
    return not lstm.bidirectional and lstm.proj_size == 0 and lstm.dropout == 0.0


def has_kernels(driven: torch.Tensor) -> bool:
    """Tell whether a kernel computes the cells of a place at once."""
    return driven.is_cuda and driven.dtype != torch.float64


def _cell(gates: torch.Tensor, cell: torch.Tensor) -> State:
    """Return hidden and cell state; PyTorch's order of gates is input, forget, cell, output."""
    taken, kept, new, shown = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(kept) * cell + torch.sigmoid(taken) * torch.tanh(new)
    return torch.sigmoid(shown) * torch.tanh(cell), cell
