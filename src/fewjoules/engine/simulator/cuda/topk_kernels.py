"""Kernels of top-k on a GPU, in Triton, in the order in which ``topk`` launches them; each runs for all rows."""

import triton
import triton.language as tl

INFINITY = tl.constexpr(0x7F800000)
# states of a row: selected; k = 0; misled by its sample, so that the k-th largest is no candidate; NaN among the kept
FINE, EMPTY, DECEIVED, HAS_NAN = (tl.constexpr(i) for i in range(4))


@triton.jit
def guess_threshold(update, residual, ranks, guess, size, stride, taken, SAMPLE: tl.constexpr):
    """Find the largest magnitude of 16 leading bits that at least ranks[row] sampled entries reach, or else 0."""
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
def collect(update, residual, left, sent, guess, found, counts, size, tiles, TILE: tl.constexpr, SENDS: tl.constexpr):
    """Compute left = update + residual, clear ``sent``, and pack each tile's candidates to the front of its slots."""
    row, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    index = tile * TILE + tl.arange(0, TILE)
    inside = index < size
    at = row * size + index
    total = tl.load(update + at, mask=inside, other=0.0) + tl.load(residual + at, mask=inside, other=0.0)
    tl.store(left + at, total, mask=inside)
    if SENDS:
        tl.store(sent + at, 0.0, mask=inside)
    magnitude = total.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    hit = inside & (magnitude >= tl.load(guess + row))
    rank = tl.cumsum(hit.to(tl.int32), 0)
    slot = (row * tiles + tile) * TILE + rank - 1
    tl.store(found + slot, index.to(tl.int32), mask=hit)
    tl.store(counts + row * tiles + tile, tl.max(rank, 0))


@triton.jit
def load_candidates(left, found, row, tile, first, count, size, tiles, TILE: tl.constexpr):
    """Load up to 128 candidates of a tile from slot ``first`` on: existence, positions, sums and magnitudes."""
    slot = first + tl.arange(0, 128)
    inside = slot < count
    index = tl.load(found + (row * tiles + tile) * TILE + slot, mask=inside, other=0)
    total = tl.load(left + row * size + index, mask=inside, other=0.0)
    return inside, index, total, total.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def histogram(
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
    """Count candidates by their distance above the base in steps of 2^SHIFT; with BEYOND the last bin is open."""
    row, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    count = tl.load(counts + row * tiles + tile)
    lowest = tl.load(base + row)
    for first in range(0, count, 128):
        inside, _, _, magnitude = load_candidates(left, found, row, tile, first, count, size, tiles, TILE)
        bin = (magnitude - lowest) >> SHIFT
        if BEYOND:
            bin = tl.minimum(bin, BINS - 1)
        copy = (row * COPIES + tile % COPIES) * BINS
        tl.atomic_add(bins + copy + bin, 1, mask=inside & (bin >= 0) & (bin < BINS), sem="relaxed")


@triton.jit
def choose(
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
    """Find the bin of the k-th largest, how many entries of it are wanted, and the state of the row."""
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
def count_kept(left, found, counts, threshold, larger, equal, size, tiles, TILE: tl.constexpr):
    """Count the candidates of each tile that are above the k-th magnitude, and those that equal it."""
    row, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    count = tl.load(counts + row * tiles + tile)
    limit = tl.load(threshold + row)
    above, same = 0, 0
    for first in range(0, count, 128):
        inside, _, _, magnitude = load_candidates(left, found, row, tile, first, count, size, tiles, TILE)
        above += tl.sum((inside & (magnitude > limit)).to(tl.int32), 0)
        same += tl.sum((inside & (magnitude == limit)).to(tl.int32), 0)
    tl.store(larger + row * tiles + tile, above)
    tl.store(equal + row * tiles + tile, same)


@triton.jit
def write(
    left,
    found,
    counts,
    sent,
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
    SENDS: tl.constexpr,
):
    """Write kept entries in order; ``larger`` and ``equal`` hold running sums over the tiles of a row."""
    row, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    here = row * tiles + tile
    seen = tl.load(state + row)
    count = tl.where((seen == FINE) | (seen == HAS_NAN), tl.load(counts + here), 0)  # another tile may have seen NaN
    limit, ties = tl.load(threshold + row), tl.load(wanted + row)
    above = tl.load(larger + here - 1, mask=tile > 0, other=0)
    same = tl.load(equal + here - 1, mask=tile > 0, other=0)
    start = tl.load(starts + row)
    for first in range(0, count, 128):
        inside, index, total, magnitude = load_candidates(left, found, row, tile, first, count, size, tiles, TILE)
        is_above, is_same = inside & (magnitude > limit), inside & (magnitude == limit)
        tie_rank = same + tl.cumsum(is_same.to(tl.int32), 0) - 1
        kept = is_above | (is_same & (tie_rank < ties))
        rank = start + above + tl.minimum(same, ties) + tl.cumsum(kept.to(tl.int32), 0) - 1
        if tl.max((kept & (magnitude > INFINITY)).to(tl.int32), 0) > 0:
            tl.store(state + row, HAS_NAN)
        tl.store(positions + rank, index.to(tl.int64), mask=kept)
        tl.store(values + rank, total, mask=kept)
        tl.store(left + row * size + index, 0.0, mask=kept)
        if SENDS:
            tl.store(sent + row * size + index, total, mask=kept)
        above += tl.sum(is_above.to(tl.int32), 0)
        same += tl.sum(is_same.to(tl.int32), 0)


@triton.jit
def search(left, sent, wanted, state, starts, positions, values, size, TILE: tl.constexpr, SENDS: tl.constexpr):
    """Search a row that its sample misled: find the k-th magnitude bit by bit, then write the kept entries."""
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
            if SENDS:
                tl.store(sent + row * size + first + entry, total, mask=kept)
            became = tl.where(tl.max((kept & (magnitude > INFINITY)).to(tl.int32), 0) > 0, HAS_NAN, became)
            rank += tl.sum(kept.to(tl.int32), 0)
            same += tl.sum(is_same.to(tl.int32), 0)
        tl.store(state + row, became)
