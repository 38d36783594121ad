"""Kernels of ``fused_sums``, in Triton."""

import triton
import triton.language as tl


@triton.jit
def gaps_of_groups(
    positions,
    begins,
    members,
    within,
    gaps,
    near,
    total,
    SHIFTS: tl.constexpr,
    SHORT: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Find the gaps before the entries of some groups, and count and sum the near ones under each shift."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    place = tl.arange(0, GROUP)
    exists = group < total
    begin = tl.load(begins + group, mask=exists, other=0)[:, None] + place[None, :]
    inside = place[None, :] < tl.load(members + group, mask=exists, other=0)[:, None]
    first = (tl.load(within + group, mask=exists, other=0) == 0)[:, None] & (place == 0)[None, :]
    here = tl.load(positions + begin, mask=inside, other=0)
    before = tl.load(positions + begin - 1, mask=inside & (first == 0), other=-1)
    gap = tl.where(inside, here - before - 1, 0)
    tl.store(gaps + group.to(tl.int64)[:, None] * GROUP + place[None, :], gap.to(tl.int32), mask=exists[:, None])
    counted = tl.where(inside, gap + 4294967296, 0)
    for shift in tl.static_range(SHIFTS):
        nearby = tl.where(gap < (1 << (SHORT + shift)), counted, 0)
        tl.store(near + tl.full([], shift, tl.int64) * total + group, tl.sum(nearby, 1), mask=exists)


@triton.jit
def symbols_of_groups(
    gaps, shifts, members, lines, total, ESCAPE: tl.constexpr, GROUPS: tl.constexpr, GROUP: tl.constexpr
):
    """Count the gaps of each group that have a symbol of their own, and sum these symbols."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    exists = group < total
    symbol, _ = load_symbols(gaps, shifts, group, exists, ESCAPE, GROUP)
    escapes = tl.sum((symbol == ESCAPE).to(tl.int32), 1)
    high = tl.sum(tl.where(symbol == ESCAPE, 0, symbol), 1)
    tl.store(lines + group, tl.load(members + group, mask=exists, other=0) - escapes, mask=exists)
    tl.store(lines + total + group, high.to(tl.int64), mask=exists)


@triton.jit
def load_symbols(gaps, shifts, group, exists, ESCAPE: tl.constexpr, GROUP: tl.constexpr):
    """Load the gaps of some groups and return their symbols and their places in the groups."""
    place = tl.arange(0, GROUP)
    gap = tl.load(gaps + group.to(tl.int64)[:, None] * GROUP + place[None, :], mask=exists[:, None], other=0)
    shift = tl.load(shifts + group, mask=exists, other=0).to(tl.int32)
    return tl.minimum(gap >> shift[:, None], ESCAPE), place


@triton.jit
def costs_of_groups(
    gaps,
    shifts,
    laws,
    members,
    costs,
    totals,
    total,
    ESCAPE: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Sum the costs of the symbols of each group under its law."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    exists = group < total
    symbol, place = load_symbols(gaps, shifts, group, exists, ESCAPE, GROUP)
    inside = place[None, :] < tl.load(members + group, mask=exists, other=0)[:, None]
    line = tl.load(laws + group, mask=exists, other=0) * (ESCAPE + 1)
    cost = tl.load(costs + line[:, None] + symbol, mask=inside, other=0)
    tl.store(totals + group, tl.sum(cost.to(tl.int64), 1), mask=exists)


@triton.jit
def exponents_of_rows(values, starts, entries, counts, SYMBOLS: tl.constexpr, TILE: tl.constexpr):
    """Count the exponents of a tile of a row; those outside the row are counted beyond the symbols."""
    row = tl.program_id(1).to(tl.int64)
    entry = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = entry < tl.load(entries + row)
    value = tl.load(values + tl.load(starts + row) + entry, mask=inside, other=0.0)
    exponent = (value.to(tl.int32, bitcast=True) >> 23) & (SYMBOLS - 1)
    found = tl.histogram(tl.where(inside, exponent, SYMBOLS), 2 * SYMBOLS)
    symbol = tl.arange(0, 2 * SYMBOLS)
    tl.atomic_add(counts + row * SYMBOLS + symbol, found, mask=(symbol < SYMBOLS) & (found > 0), sem="relaxed")
