"""Message sizes in tensor operations against the host's function, and against the messages themselves."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fewjoules import codec
from fewjoules.codec import SparseUpdate
from fewjoules.codec import values as val
from fewjoules.codec.sizes import ESTIMATE_FROM, dense_qsgd_sizes, float32_sizes
from fewjoules.engine.simulator.cuda.entry_sums import EntrySums
from fewjoules.engine.simulator.cuda.gap_groups import GapGroups, sums_between
from fewjoules.engine.simulator.cuda.gap_laws import MEANS, SIZE_LIMIT, ShiftSearch, symbol_costs
from fewjoules.engine.simulator.cuda.sizes import MessageSizer, coded_bytes, sizable
from fewjoules.errors import InvalidInputError

on_every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
LENET = 431_080


def weights(kind, k, rng):
    """How the entries that were not kept share themselves out among the gaps."""
    if kind == "uniform":
        return rng.exponential(size=k)
    if kind == "even":
        return np.ones(k)
    if kind == "octaves":
        return 10.0 ** rng.uniform(-9.0, 0.0, k)
    if kind == "layers":
        layer = int(rng.integers(1, k))
        dense = np.repeat(10.0 ** rng.uniform(-5.0, 0.0, -(-k // layer)), layer)[:k]
        return dense * rng.exponential(size=k)
    gaps = np.zeros(k)
    if kind == "corner":
        gaps[0] = 1.0
    elif kind == "tail":
        gaps[-int(rng.integers(1, 40)) :] = 1.0
    else:
        gaps[rng.integers(0, k, max(1, k // 50))] = 1.0
    return gaps


GAPS = ["uniform", "even", "octaves", "layers", "corner", "tail", "runs"]


def positions_of(kind, size, k, rng, spread=1.0):
    """k increasing positions; the last lies at most at a share ``spread`` of what is free."""
    shares = weights(kind, k, rng)
    gaps = np.floor(shares / shares.sum() * (size - k) * spread).astype(np.int64)
    return np.cumsum(gaps + 1) - 1


def values_of(kind, count, rng):
    if kind == "normal":
        return rng.standard_normal(count, dtype=np.float32)
    if kind == "constant":
        return np.full(count, -0.5, dtype=np.float32)
    if kind == "few exponents":
        return rng.choice([0.5, -1.0, 2.0], count).astype(np.float32)
    if kind == "any bits":
        return rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    octaves = np.minimum(rng.geometric(0.05, count) - 100, 120)
    return np.ldexp(rng.standard_normal(count), octaves).astype(np.float32)


VALUES = ["normal", "constant", "few exponents", "any bits", "octaves"]


def sizes_of(size, counts, positions, values, device="cpu"):
    sizer = MessageSizer(size, counts, device)
    sizes = sizer(torch.from_numpy(positions).to(device), torch.from_numpy(values).to(device))
    assert sizes.dtype == torch.int64
    return sizes.cpu().numpy()


def assert_as_on_the_host(size, counts, positions, values, device="cpu"):
    expected = float32_sizes(size, positions, values, np.array(counts))
    np.testing.assert_allclose(sizes_of(size, counts, positions, values, device), expected, rtol=1e-5, atol=2)


def rows_of(kinds, size, counts, rng):
    return np.concatenate([positions_of(kind, size, k, rng) for kind, k in zip(kinds, counts, strict=True)])


@on_every_device
@pytest.mark.parametrize(
    ("gaps", "values"), [(gaps, "normal") for gaps in GAPS] + [("layers", values) for values in VALUES[1:]]
)
def test_sizes_are_those_of_the_host(device, gaps, values):
    rng = np.random.default_rng(0)
    counts = [2048, 4311, 2049, 2079, 50_000, 95_796, 2080]
    positions = rows_of([gaps] * len(counts), LENET, counts, rng)
    assert_as_on_the_host(LENET, counts, positions, values_of(values, positions.size, rng), device)


@on_every_device
def test_rows_of_every_kind_lie_beside_one_another(device):
    rng = np.random.default_rng(1)
    counts = rng.integers(2048, 9000, len(GAPS)).tolist()
    positions = rows_of(GAPS, LENET, counts, rng)
    assert_as_on_the_host(LENET, counts, positions, values_of("normal", positions.size, rng), device)


@pytest.mark.parametrize("size", [4096, 4097, 2**16, 2**16 + 1, 2**27, 2**31 - 1])
@pytest.mark.parametrize("gaps", GAPS)
def test_small_and_huge_vectors(size, gaps):
    rng = np.random.default_rng(2)
    counts = [2048, min(size // 2, 3001), min(size // 2, 2081)]
    positions = rows_of([gaps] * 3, size, counts, rng)
    assert_as_on_the_host(size, counts, positions, values_of("normal", positions.size, rng))


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_sizes_of_any_messages_are_those_of_the_host(data):
    digits = data.draw(st.integers(12, 30), label="digits")
    size = data.draw(st.integers(1 << digits, (2 << digits) - 1), label="size")
    most = min(size // 2, 8000)
    counts = data.draw(st.lists(st.integers(2048, most), min_size=1, max_size=5), label="counts")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    kinds = data.draw(st.lists(st.sampled_from(GAPS), min_size=len(counts), max_size=len(counts)), label="gaps")
    spread = data.draw(st.sampled_from([1.0, 0.999, 0.5, 0.01]), label="spread")
    positions = np.concatenate(
        [positions_of(kind, size, k, rng, spread) for kind, k in zip(kinds, counts, strict=True)]
    )
    values = values_of(data.draw(st.sampled_from(VALUES), label="values"), positions.size, rng)
    assert_as_on_the_host(size, counts, positions, values)


@pytest.mark.parametrize("gaps", GAPS)
@pytest.mark.parametrize("count", [2048, 4311, 30_000])
def test_sizes_are_near_those_of_the_messages(gaps, count):
    rng = np.random.default_rng(3)
    positions = positions_of(gaps, LENET, count, rng)
    values = values_of("normal", count, rng)
    update = SparseUpdate(size=LENET, positions=positions, values=values)
    message = len(codec.encode(update))
    np.testing.assert_allclose(sizes_of(LENET, [count], positions, values), [message], rtol=1e-3)


@pytest.mark.parametrize("kind", sorted(val.KINDS))
def test_sizes_of_other_kinds_of_values(kind):
    rng = np.random.default_rng(4)
    counts = [10_000, 8192]
    positions = rows_of(["layers", "uniform"], LENET, counts, rng)
    values = values_of("normal", positions.size, rng)
    symbols, expected = [], []
    for own in (slice(0, 10_000), slice(10_000, None)):
        parts = val.kind_named(kind).split(values[own], 15, np.random.default_rng(5))
        symbols.append(np.bincount(parts.symbols, minlength=256))
        update = SparseUpdate(size=LENET, positions=positions[own], values=values[own])
        expected.append(len(codec.encode(update, values=kind, levels=15, rng=np.random.default_rng(5))))
    sizer = MessageSizer(LENET, counts, "cpu", kind)
    sizes = sizer.with_symbols(torch.from_numpy(positions), torch.from_numpy(np.array(symbols)))
    np.testing.assert_allclose(sizes.numpy(), expected, rtol=1e-3, atol=4)


def assert_coded_as_on_the_host(counts):
    """Of one message; a dense message of QSGD is its symbols beside what depends on the size alone."""
    counts = np.asarray(counts)
    entries = int(counts.sum())
    alone = np.zeros((1, 256), dtype=np.int64)
    alone[0, 7] = entries  # 2 for first and last, 2 for 4096, 1 + 6 for a stream of no bits
    beside = int(dense_qsgd_sizes(entries, alone)[0]) - 11
    expected = dense_qsgd_sizes(entries, counts[None]) - beside
    found = coded_bytes(torch.from_numpy(counts[None]), torch.tensor([entries]))
    np.testing.assert_allclose(found.numpy(), expected, atol=1)


@pytest.mark.parametrize(("large", "count", "rare"), [(227, 10_000, 29), (186, 100_000, 70), (1, 10**6, 255)])
def test_rare_symbols_are_paid_for_by_several_frequent_ones(large, count, rare):
    assert_coded_as_on_the_host([count] * large + [1] * rare + [0] * (256 - large - rare))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), used=st.integers(1, 256), rare=st.floats(0.0, 1.0), digits=st.integers(1, 24))
def test_coded_bytes_are_those_of_the_host(seed, used, rare, digits):
    rng = np.random.default_rng(seed)
    counts = np.zeros(256, dtype=np.int64)
    present = np.where(rng.random(used) < rare, 1, rng.integers(1, 1 << digits, used))
    counts[rng.permutation(256)[:used]] = present
    counts[int(rng.integers(256))] += ESTIMATE_FROM
    assert_coded_as_on_the_host(counts)


@on_every_device
def test_the_same_entries_give_the_same_sizes(device):
    rng = np.random.default_rng(6)
    counts = [20_000] * 10
    positions = torch.from_numpy(rows_of(["layers"] * 10, LENET, counts, rng)).to(device)
    values = torch.from_numpy(values_of("octaves", 200_000, rng)).to(device)
    sizer = MessageSizer(LENET, counts, device)
    first = sizer(positions, values)
    for again in (sizer, MessageSizer(LENET, counts, device)):
        assert torch.equal(again(positions, values), first)


def test_no_shape_and_no_step_depends_on_the_data():
    counts = [2048, 2500, 4000]
    sizer = MessageSizer(LENET, counts, "cpu")
    with FakeTensorMode(allow_non_fake_inputs=True):  # its tensors have shapes, but nothing that could be looked at
        positions, values = torch.empty(sum(counts), dtype=torch.int64), torch.empty(sum(counts))
        with pytest.raises(DataDependentOutputException):
            values.sum().item()
        assert sizer(positions, values).shape == (3,)


def test_the_steps_for_one_message_serve_another_and_take_nothing_from_the_host():
    rng = np.random.default_rng(7)
    counts = [2048, 2500, 4000]
    seen = rows_of(["uniform"] * 3, LENET, counts, rng), values_of("normal", sum(counts), rng)
    other = rows_of(["layers", "corner", "runs"], LENET, counts, rng), values_of("octaves", sum(counts), rng)
    graph = make_fx(MessageSizer(LENET, counts, "cpu"))(*map(torch.from_numpy, seen))
    steps = " ".join(str(node.target) for node in graph.graph.nodes)
    assert "aten.scatter_add_" in steps
    assert not any(f"aten.{step}" in steps for step in ("lift_fresh", "_local_scalar_dense", "nonzero"))
    sizes = graph(*map(torch.from_numpy, other))
    np.testing.assert_array_equal(sizes.numpy(), sizes_of(LENET, counts, *other))


@pytest.mark.gpu
def test_a_sizer_is_recorded_in_a_graph():
    rng = np.random.default_rng(8)
    counts = [2048, 5000]
    sizer = MessageSizer(LENET, counts, "cuda")
    inputs = torch.cat([torch.arange(count, device="cuda") for count in counts]), torch.zeros(7048, device="cuda")
    sizer(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sizes = sizer(*inputs)
    for kind in GAPS:
        given = rows_of([kind] * 2, LENET, counts, rng), values_of("normal", 7048, rng)
        for target, array in zip(inputs, given, strict=True):
            target.copy_(torch.from_numpy(array))
        graph.replay()
        np.testing.assert_allclose(sizes.cpu(), float32_sizes(LENET, *given, np.array(counts)), rtol=1e-5, atol=2)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", GAPS)
def test_fused_sums_are_the_sums(kind):
    from fewjoules.engine.simulator.cuda.fused_sums import FusedSums

    rng = np.random.default_rng(9)
    counts = [2048, 5001, 33, 2]
    groups, shifts = GapGroups(counts, torch.device("cuda")), 13
    positions = torch.from_numpy(rows_of([kind] * 4, LENET, counts, rng)).to("cuda")
    values = torch.from_numpy(values_of("normal", sum(counts), rng)).to("cuda")
    fused, plain = FusedSums(groups, shifts), EntrySums(groups, shifts)
    gaps, near = plain.gaps(positions)
    for found, expected in zip(fused.gaps(positions), (gaps, near), strict=True):
        assert torch.equal(found, expected)
    shift = torch.from_numpy(rng.integers(0, 9, groups.total)).to("cuda")
    laws = torch.from_numpy(rng.integers(0, MEANS, groups.total)).to("cuda")
    costs = symbol_costs(torch.device("cuda"))
    assert torch.equal(fused.symbols(gaps, shift), plain.symbols(gaps, shift))
    assert torch.equal(fused.costs(gaps, shift, laws, costs), plain.costs(gaps, shift, laws, costs))
    assert torch.equal(fused.exponents(values), plain.exponents(values))


def test_32_gaps_that_are_all_near_want_no_larger_shift():
    def bits(count, high):
        terms = ((1, count + high), (-1, count), (-1, high))
        return sum(sign * x * math.log2(x) for sign, x in terms if x)

    assert all(bits(32, high) - bits(32, high // 2) < 32 for high in range(128))


@pytest.mark.parametrize("size", [4096, 2**20, 2**31 - 1])
def test_the_search_for_a_shift_leaves_none_out(size):
    """Short last groups, whose best shift may be any."""
    digits = (size - 1).bit_length()
    for members in (1, 2, 7, 31, 32):
        search = ShiftSearch(size, GapGroups([members], torch.device("cpu")))
        for gap in [0, 1, 100, size // members - 1] + [(1 << length) - 1 for length in range(digits + 1)]:
            if gap * members >= size:
                continue
            near = torch.full((search.count, 1), (members << 32) + gap * members)
            near[: max(0, gap.bit_length() - 7)] = 0
            nats, shift = search.best(near)
            assert (float(nats[0]) / math.log(2.0), int(shift[0])) == pytest.approx(best_shift(members, gap), rel=1e-9)


def best_shift(members, gap):
    found = (math.inf, 0)
    for shift in range(41):
        near = members if gap.bit_length() <= shift + 7 else 0
        high = near * gap >> shift
        if near and high >= 16 * near:
            continue
        terms = ((1, near + high), (-1, near), (-1, high))
        bits = sum(sign * x * math.log2(x) for sign, x in terms if x) + shift * members + 68 * (members - near)
        found = min(found, (bits, shift))
    return found


def test_sums_survive_an_overflow_on_the_way():
    values = torch.tensor([[2**62, 2**62, 5], [2**62, 7, 2**62]])
    sums = sums_between(values, torch.tensor([0, 1, 2, 0]), torch.tensor([1, 2, 3, 1]))
    assert sums.tolist() == [[2**62, 2**62, 5, 2**62], [2**62, 7, 2**62, 2**62]]


def test_what_a_sizer_takes():
    assert sizable(4096, 2048)
    assert sizable(SIZE_LIMIT - 1, 2048)
    assert not sizable(4096, 2047)
    assert not sizable(4095, 2048)
    assert not sizable(SIZE_LIMIT, 2048)


@pytest.mark.parametrize("counts", [[2047], [5000, 50_001], []])
def test_other_counts_are_refused(counts):
    with pytest.raises(InvalidInputError, match=r"counts must"):
        MessageSizer(100_000, counts, "cpu")
