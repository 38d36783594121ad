"""Top-k with error feedback on a GPU, for one vector or a stack of clients with different k, in Triton.

1. A sample of each row gives a magnitude that a little more than k entries reach.
2. One pass adds the residual and collects, tile by tile and in order, the entries that reach it.
3. Two histograms of 4096 bins over those candidates find the k-th largest magnitude exactly.
4. The kept candidates are written out in order and cleared in the residual; of equals the lowest positions are kept.
5. A row whose sample deceived is searched bit by bit instead, by one program.

Every step runs for all rows at once. Magnitudes are compared as the integers that float32 bits without their sign are.
"""

import collections

import torch
import triton
import triton.language as tl

from fedjoule.errors import InvalidInputError

TILE = 4096
BINS = 4096
BIN_BITS = 12
SAMPLE = 4096
COPIES = 4
WARPS = 4  # for the kernels that look at the few candidates of a tile
INFINITY = tl.constexpr(0x7F800000)
# the state of a row: selected; k = 0; the sample deceived, so that the k-th largest is not where it was looked for; NaN
FINE, EMPTY, DECEIVED, HAS_NAN = (tl.constexpr(i) for i in range(4))


@triton.jit
def _guess(update, residual, ranks, guess, size, stride, taken, SAMPLE: tl.constexpr):
    """The largest magnitude of 16 leading bits that at least ranks[row] sampled entries reach; 0 if too few are."""
    row = tl.program_id(0).to(tl.int64)
    entry = tl.arange(0, SAMPLE)
    at, inside = row * size + entry.to(tl.int64) * stride, entry < taken
    total = tl.load(update + at, mask=inside, other=0.0) + tl.load(residual + at, mask=inside, other=0.0)
    magnitude = tl.where(inside, total.to(tl.int32, bitcast=True) & 0x7FFFFFFF, -1)
    rank = tl.load(ranks + row)
    found = 0
    for bit in range(30, 14, -1):
        tried = found | (1 << bit)
        reaching = tl.sum((magnitude >= tried).to(tl.int32), 0)
        found = tl.where(reaching >= rank, tried, found)
    tl.store(guess + row, found)


@triton.jit
def _collect(update, residual, left, guess, found, counts, size, tiles, TILE: tl.constexpr):
    """left = update + residual; candidates of each tile, packed to the front of its slots."""
    row, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    index = tile * TILE + tl.arange(0, TILE)
    inside = index < size
    at = row * size + index
    total = tl.load(update + at, mask=inside, other=0.0) + tl.load(residual + at, mask=inside, other=0.0)
    tl.store(left + at, total, mask=inside)
    magnitude = total.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    hit = inside & (magnitude >= tl.load(guess + row))
    rank = tl.cumsum(hit.to(tl.int32), 0)
    slot = (row * tiles + tile) * TILE + rank - 1
    tl.store(found + slot, index.to(tl.int32), mask=hit)
    tl.store(counts + row * tiles + tile, tl.max(rank, 0))


@triton.jit
def _load_candidates(left, found, row, tile, first, count, size, tiles, TILE: tl.constexpr):
    slot = first + tl.arange(0, 128)
    inside = slot < count
    index = tl.load(found + (row * tiles + tile) * TILE + slot, mask=inside, other=0)
    total = tl.load(left + row * size + index, mask=inside, other=0.0)
    return inside, index, total, total.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _histogram(
    left,
    found,
    counts,
    base,
    bins,
    size,
    tiles,
    COPIES: tl.constexpr,
    SHIFT: tl.constexpr,
    BEYOND: tl.constexpr,
    TILE: tl.constexpr,
    BINS: tl.constexpr,
):
    """Candidates by how far, in steps of 2^SHIFT, they lie above the base; with BEYOND the last bin takes all others."""
    row, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    count = tl.load(counts + row * tiles + tile)
    lowest = tl.load(base + row)
    for first in range(0, count, 128):
        inside, _, _, magnitude = _load_candidates(left, found, row, tile, first, count, size, tiles, TILE)
        bin = (magnitude - lowest) >> SHIFT
        if BEYOND:
            bin = tl.minimum(bin, BINS - 1)
        copy = (row * COPIES + tile % COPIES) * BINS
        tl.atomic_add(bins + copy + bin, 1, mask=inside & (bin >= 0) & (bin < BINS), sem="relaxed")


@triton.jit
def _choose(
    bins,
    base,
    wanted,
    base_out,
    wanted_out,
    state,
    COPIES: tl.constexpr,
    SHIFT: tl.constexpr,
    BINS: tl.constexpr,
    LAST: tl.constexpr,
):
    """The bin of the k-th largest; how many are wanted of it; the state of the row."""
    row = tl.program_id(0)
    digit = tl.arange(0, BINS)
    count = tl.load(bins + row * COPIES * BINS + digit)
    for copy in range(1, COPIES):
        count += tl.load(bins + (row * COPIES + copy) * BINS + digit)
    want = tl.load(wanted + row)
    reaching = tl.sum(count, 0) - tl.cumsum(count, 0) + count
    chosen = tl.max(tl.where(reaching >= want, digit, -1), 0)
    above = tl.sum(tl.where(digit > chosen, count, 0), 0)
    tl.store(base_out + row, tl.load(base + row) + (chosen << SHIFT))
    tl.store(wanted_out + row, want - above)
    if not LAST:
        lost = (chosen < 0) | (chosen == BINS - 1)
        tl.store(state + row, tl.where(want == 0, EMPTY, tl.where(lost, DECEIVED, FINE)))


@triton.jit
def _count_kept(left, found, counts, threshold, larger, equal, size, tiles, TILE: tl.constexpr):
    """How many candidates of each tile are above the k-th magnitude, and how many equal it."""
    row, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    count = tl.load(counts + row * tiles + tile)
    limit = tl.load(threshold + row)
    above, same = 0, 0
    for first in range(0, count, 128):
        inside, _, _, magnitude = _load_candidates(left, found, row, tile, first, count, size, tiles, TILE)
        above += tl.sum((inside & (magnitude > limit)).to(tl.int32), 0)
        same += tl.sum((inside & (magnitude == limit)).to(tl.int32), 0)
    tl.store(larger + row * tiles + tile, above)
    tl.store(equal + row * tiles + tile, same)


@triton.jit
def _write(
    left,
    found,
    counts,
    threshold,
    wanted,
    state,
    larger,
    equal,
    starts,
    positions,
    values,
    size,
    tiles,
    TILE: tl.constexpr,
):
    """Kept entries in order; ``larger`` and ``equal`` hold sums over the tiles of a row up to and with each."""
    row, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    here = row * tiles + tile
    seen = tl.load(state + row)
    count = tl.where((seen == FINE) | (seen == HAS_NAN), tl.load(counts + here), 0)  # another tile may have seen NaN
    limit, ties = tl.load(threshold + row), tl.load(wanted + row)
    above = tl.load(larger + here - 1, mask=tile > 0, other=0)
    same = tl.load(equal + here - 1, mask=tile > 0, other=0)
    start = tl.load(starts + row)
    for first in range(0, count, 128):
        inside, index, total, magnitude = _load_candidates(left, found, row, tile, first, count, size, tiles, TILE)
        is_above, is_same = inside & (magnitude > limit), inside & (magnitude == limit)
        tie_rank = same + tl.cumsum(is_same.to(tl.int32), 0) - 1
        kept = is_above | (is_same & (tie_rank < ties))
        rank = start + above + tl.minimum(same, ties) + tl.cumsum(kept.to(tl.int32), 0) - 1
        if tl.max((kept & (magnitude > INFINITY)).to(tl.int32), 0) > 0:
            tl.store(state + row, HAS_NAN)
        tl.store(positions + rank, index.to(tl.int64), mask=kept)
        tl.store(values + rank, total, mask=kept)
        tl.store(left + row * size + index, 0.0, mask=kept)
        above += tl.sum(is_above.to(tl.int32), 0)
        same += tl.sum(is_same.to(tl.int32), 0)


@triton.jit
def _search(left, wanted, state, starts, positions, values, size, TILE: tl.constexpr):
    """A row whose sample deceived: its k-th magnitude bit by bit over all entries, then the kept ones in order."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(state + row) == DECEIVED:
        entry, entries = tl.arange(0, TILE), left + row * size
        want = tl.load(wanted + row)
        limit, above = 0, 0  # above: entries larger than the limit, once it is the k-th magnitude
        for bit in range(31):
            tried = limit | (1 << (30 - bit))
            reaching = 0
            for first in range(0, size, TILE):
                total = tl.load(entries + first + entry, mask=first + entry < size, other=0.0)
                reaching += tl.sum(((total.to(tl.int32, bitcast=True) & 0x7FFFFFFF) >= tried).to(tl.int32), 0)
            limit = tl.where(reaching >= want, tried, limit)
            above = tl.where(reaching >= want, above, reaching)
        rank, same, became = tl.load(starts + row), 0, FINE
        for first in range(0, size, TILE):
            inside = first + entry < size
            total = tl.load(entries + first + entry, mask=inside, other=0.0)
            magnitude = total.to(tl.int32, bitcast=True) & 0x7FFFFFFF
            is_same = inside & (magnitude == limit)
            tie_rank = same + tl.cumsum(is_same.to(tl.int32), 0) - 1
            kept = (inside & (magnitude > limit)) | (is_same & (tie_rank < want - above))
            at = rank + tl.cumsum(kept.to(tl.int32), 0) - 1
            tl.store(positions + at, (first + entry).to(tl.int64), mask=kept)
            tl.store(values + at, total, mask=kept)
            tl.store(entries + first + entry, 0.0, mask=kept)
            became = tl.where(tl.max((kept & (magnitude > INFINITY)).to(tl.int32), 0) > 0, HAS_NAN, became)
            rank += tl.sum(kept.to(tl.int32), 0)
            same += tl.sum(is_same.to(tl.int32), 0)
        tl.store(state + row, became)


class _Selection:
    """Buffers of one selection and the kernels that use them; recorded as a CUDA graph, it is started in one go."""

    def __init__(self, size: int, counts: tuple[int, ...], device: torch.device) -> None:
        """Allocate what the kernels need; nothing depends on the data."""
        rows, kept = len(counts), sum(counts)
        self.size, self.rows, self.tiles = size, rows, triton.cdiv(size, TILE)
        self.taken = min(SAMPLE, size)
        self.copies = COPIES  # spread the counting over more memory, where fewer wait for one another
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
        self.output = torch.empty(3 * kept + rows, dtype=torch.int32, device=device)  # as ``parts`` says
        self.graph: torch.cuda.CUDAGraph | None = None

    def launch(self, updates: torch.Tensor, residuals: torch.Tensor, left: torch.Tensor) -> None:
        """All kernels, in order."""
        guess, base, of_base, threshold, ties = self.small.unbind()
        counts, larger, equal = self.per_tile.unbind()
        first, second = self.bins.unbind()
        positions, values, state = self.parts(self.output)
        grid, shape, rows = (self.tiles, self.rows), (self.size, self.tiles), (self.rows,)
        shared = {"COPIES": self.copies, "BINS": BINS}
        self.bins.zero_()
        _guess[rows](
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
        _collect[grid](updates, residuals, left, guess, self.found, counts, *shape, TILE=TILE, num_warps=8)
        candidates = (left, self.found, counts)
        _histogram[grid](
            *candidates, guess, first, *shape, SHIFT=BIN_BITS, BEYOND=True, TILE=TILE, num_warps=WARPS, **shared
        )
        _choose[rows](first, guess, self.wanted, base, of_base, state, SHIFT=BIN_BITS, LAST=False, **shared)
        _histogram[grid](*candidates, base, second, *shape, SHIFT=0, BEYOND=False, TILE=TILE, num_warps=WARPS, **shared)
        _choose[rows](second, base, of_base, threshold, ties, state, SHIFT=0, LAST=True, **shared)
        _count_kept[grid](*candidates, threshold, larger, equal, *shape, TILE=TILE, num_warps=WARPS)
        running = torch.cumsum(self.per_tile[1:], dim=2, dtype=torch.int32)
        _write[grid](
            *candidates,
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
            num_warps=WARPS,
        )
        _search[rows](left, self.wanted, state, self.starts, positions, values, self.size, TILE=TILE, num_warps=16)

    def parts(self, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Positions (two words each), values and the states of the rows."""
        kept = (output.numel() - self.rows) // 3
        positions, values, state = output.split([2 * kept, kept, self.rows])
        return positions.view(torch.int64), values.view(torch.float32), state

    def run(self, updates: torch.Tensor, residuals: torch.Tensor, left: torch.Tensor, record: bool) -> None:
        """Launch, by the graph once it was recorded."""
        if self.graph is None and record:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):  # others may wait for events
                self.launch(updates, residuals, left)
        if self.graph is None:
            self.launch(updates, residuals, left)
        else:
            self.graph.replay()


_selections: collections.OrderedDict[tuple[object, ...], _Selection] = collections.OrderedDict()
_MAX_SELECTIONS = 8


def forget_selections() -> None:
    """Free the buffers and graphs that were kept for selections that might come again."""
    _selections.clear()


def select_rows(
    updates: torch.Tensor, residuals: torch.Tensor, counts: list[int], left: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Positions and values of the counts[r] largest of each row, one row after the other; ``left`` gets what remains.

    ``updates``, ``residuals`` and ``left`` are contiguous float32 (rows, size) on one GPU; ``left`` may be ``residuals``. From
    the second call with tensors at the same addresses on, the kernels run as one recorded graph. Nothing waits for the
    GPU: the third tensor, for ``rows_with_nan``, tells later whether all went well.
    """
    size = updates.shape[1]
    tensors = (updates, residuals, left)
    key = (size, tuple(counts), updates.device, *(tensor.data_ptr() for tensor in tensors))
    selection = _selections.pop(key, None)
    seen = selection is not None
    selection = selection or _Selection(size, tuple(counts), updates.device)
    _selections[key] = selection
    if len(_selections) > _MAX_SELECTIONS:
        _selections.popitem(last=False)
    selection.run(*tensors, record=seen)
    return selection.parts(selection.output.clone())


def rows_with_nan(states: torch.Tensor) -> list[int]:
    """Rows of which a kept entry is NaN, by the states that ``select_rows`` told."""
    return [row for row, state in enumerate(states.tolist()) if state == HAS_NAN.value]


def top_k_rows(
    updates: torch.Tensor, residuals: torch.Tensor, counts: list[int], left: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``select_rows`` found, once the GPU is done; NaN is refused."""
    positions, values, states = select_rows(updates, residuals, counts, left)
    for row in rows_with_nan(states):
        part = slice(sum(counts[:row]), sum(counts[: row + 1]))
        where = int(positions[part][values[part].isnan()][0])
        raise InvalidInputError(f"update + residual must not hold NaN, got one at position {where} of row {row}")
    return positions, values
