"""Top-k with error feedback on a GPU, for one vector or a stack of clients with different k, in Triton.

1. A sample of each row gives a magnitude that a little more than k entries reach.
2. One pass adds the residual and collects, tile by tile and in order, the entries that reach it.
3. Two histograms of 4096 bins over those candidates find the k-th largest magnitude exactly.
4. The kept candidates are written out in order and cleared in the residual; ties go to the lowest positions.
5. If the sample of a row misled, one program searches the whole row bit by bit instead.

Every step runs for all rows at once. Magnitudes are compared as integers: float32 bits without the sign.
"""

import collections

import torch
import triton

from fewjoules.engine.simulator.cuda import topk_kernels as kernels
from fewjoules.errors import InvalidInputError

TILE = 4096
BINS = 4096
BIN_BITS = 12
SAMPLE = 4096
COPIES = 4
WARPS = 4  # for the kernels that read the few candidates of a tile


class _Selection:
    """Buffers of one selection and the kernels that use them, which can be recorded as one CUDA graph."""

    def __init__(self, size: int, counts: tuple[int, ...], device: torch.device) -> None:
        """Allocate the buffers of the kernels; nothing depends on the data."""
        rows, kept = len(counts), sum(counts)
        self.size, self.rows, self.tiles = size, rows, triton.cdiv(size, TILE)
        self.taken = min(SAMPLE, size)
        self.copies = COPIES  # spread atomic additions over more memory, with fewer conflicts
        expected = [self.taken * k / size for k in counts]

        def integers(values: list[int], kind: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.tensor(values, dtype=kind, device=device)

        self.wanted = integers(list(counts))
        self.starts = integers([sum(counts[:row]) for row in range(rows)], torch.int64)
        self.ranks = integers([int(e + 4.0 * e**0.5 + 4.0) for e in expected])
        self.found = torch.empty(rows * self.tiles * TILE, dtype=torch.int32, device=device)
        self.per_tile = torch.empty((3, rows, self.tiles), dtype=torch.int32, device=device)
        self.small = torch.empty((5, rows), dtype=torch.int32, device=device)
        self.bins = torch.empty((2, rows, self.copies, BINS), dtype=torch.int32, device=device)
        self.output = torch.empty(3 * kept + rows, dtype=torch.int32, device=device)  # split by ``parts``
        self.graph: torch.cuda.CUDAGraph | None = None

    def launch(
        self, updates: torch.Tensor, residuals: torch.Tensor, left: torch.Tensor, sent: torch.Tensor | None
    ) -> None:
        """Launch all kernels, in order."""
        sends, sent = sent is not None, left if sent is None else sent
        guess, base, of_base, threshold, ties = self.small.unbind()
        counts, larger, equal = self.per_tile.unbind()
        first, second = self.bins.unbind()
        positions, values, state = self.parts(self.output)
        grid, shape, rows = (self.tiles, self.rows), (self.size, self.tiles), (self.rows,)
        shared = {"COPIES": self.copies, "BINS": BINS}
        self.bins.zero_()
        kernels.guess_threshold[rows](
            updates,
            residuals,
            self.ranks,
            guess,
            self.size,
            self.size // self.taken,
            self.taken,
            SAMPLE=SAMPLE,
            num_warps=16,
        )
        kernels.collect[grid](
            updates, residuals, left, sent, guess, self.found, counts, *shape, TILE=TILE, SENDS=sends, num_warps=8
        )
        candidates = (left, self.found, counts)
        kernels.histogram[grid](
            *candidates, guess, first, *shape, SHIFT=BIN_BITS, BEYOND=True, TILE=TILE, num_warps=WARPS, **shared
        )
        kernels.choose[rows](first, guess, self.wanted, base, of_base, state, SHIFT=BIN_BITS, LAST=False, **shared)
        kernels.histogram[grid](
            *candidates, base, second, *shape, SHIFT=0, BEYOND=False, TILE=TILE, num_warps=WARPS, **shared
        )
        kernels.choose[rows](second, base, of_base, threshold, ties, state, SHIFT=0, LAST=True, **shared)
        kernels.count_kept[grid](*candidates, threshold, larger, equal, *shape, TILE=TILE, num_warps=WARPS)
        running = torch.cumsum(self.per_tile[1:], dim=2, dtype=torch.int32)
        kernels.write[grid](
            *candidates,
            sent,
            threshold,
            ties,
            state,
            running[0],
            running[1],
            self.starts,
            positions,
            values,
            *shape,
            TILE=TILE,
            SENDS=sends,
            num_warps=WARPS,
        )
        results = (state, self.starts, positions, values)
        kernels.search[rows](left, sent, self.wanted, *results, self.size, TILE=TILE, SENDS=sends, num_warps=16)

    def parts(self, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Split the output into positions (two words each), values and the states of the rows."""
        kept = (output.numel() - self.rows) // 3
        positions, values, state = output.split([2 * kept, kept, self.rows])
        return positions.view(torch.int64), values.view(torch.float32), state

    def run(
        self,
        updates: torch.Tensor,
        residuals: torch.Tensor,
        left: torch.Tensor,
        sent: torch.Tensor | None,
        record: bool,
    ) -> None:
        """Run the selection, by the graph once it is recorded."""
        if self.graph is None and record:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):  # other threads may wait for events
                self.launch(updates, residuals, left, sent)
        if self.graph is None:
            self.launch(updates, residuals, left, sent)
        else:
            self.graph.replay()


_selections: collections.OrderedDict[tuple[object, ...], _Selection] = collections.OrderedDict()
_MAX_SELECTIONS = 8


def forget_selections() -> None:
    """Free the buffers and graphs that were cached for later selections."""
    _selections.clear()


def select_rows(
    updates: torch.Tensor,
    residuals: torch.Tensor,
    counts: list[int],
    left: torch.Tensor,
    sent: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return positions and values of the counts[r] largest entries of each row r; ``left`` gets the new residuals.

    ``sent`` gets the chosen entries, with zeros elsewhere. All tensors are contiguous float32 (rows, size) on one GPU;
    ``left`` may be ``residuals``, and ``sent`` may be ``updates``. From the second call with tensors at the same
    addresses on, the kernels run as one recorded graph. Nothing waits for the GPU: pass the third returned tensor to
    ``rows_with_nan`` later to find rows with NaN.
    """
    size = updates.shape[1]
    tensors = (updates, residuals, left, sent)
    addresses = (None if tensor is None else tensor.data_ptr() for tensor in tensors)
    key = (size, tuple(counts), updates.device, *addresses)
    selection = _selections.pop(key, None)
    seen = selection is not None
    selection = selection or _Selection(size, tuple(counts), updates.device)
    _selections[key] = selection
    if len(_selections) > _MAX_SELECTIONS:
        torch.cuda.synchronize(updates.device)  # a graph must not be freed while it runs
        _selections.popitem(last=False)
    selection.run(*tensors, record=seen)
    return selection.parts(selection.output.clone())


def rows_with_nan(states: torch.Tensor) -> list[int]:
    """Return the rows in which a kept entry is NaN, from the states of ``select_rows``."""
    return [row for row, state in enumerate(states.tolist()) if state == kernels.HAS_NAN.value]


def top_k_rows(
    updates: torch.Tensor, residuals: torch.Tensor, counts: list[int], left: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Select as ``select_rows`` does, wait for the GPU and refuse NaN."""
    positions, values, states = select_rows(updates, residuals, counts, left)
    for row in rows_with_nan(states):
        part = slice(sum(counts[:row]), sum(counts[: row + 1]))
        where = int(positions[part][values[part].isnan()][0])
        raise InvalidInputError(f"update + residual must not hold NaN, got one at position {where} of row {row}")
    return positions, values
