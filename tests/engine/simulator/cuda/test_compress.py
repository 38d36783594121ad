"""The torch compressors give what their NumPy twins give, bit for bit, on every device."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.codec import compressors, select
from fewjoules.errors import InvalidInputError

torch = pytest.importorskip("torch")
from fewjoules.engine.simulator.cuda import compress  # noqa: E402

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
SIZES = [1, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097]
on_every_device = pytest.mark.parametrize("device", DEVICES)


def generator():
    return np.random.default_rng(3)


def vectors(kind, shape, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "normal":
        return rng.normal(size=shape).astype(np.float32)
    if kind == "ties":
        return rng.integers(-2, 3, shape).astype(np.float32)
    if kind == "zeros":
        return np.where(rng.random(shape) < 0.5, 0.0, -0.0).astype(np.float32)
    if kind == "denormal":
        return rng.integers(0, 2**12, shape).astype(np.uint32).view(np.float32)
    return np.ldexp(rng.normal(size=shape), rng.integers(-100, 100, shape)).astype(np.float32)


VECTORS = ["normal", "ties", "zeros", "denormal", "octaves"]


def on(device, array):
    return torch.from_numpy(array.copy()).to(device)


def bits_of(tensor):
    array = tensor.detach().cpu().numpy() if isinstance(tensor, torch.Tensor) else tensor
    return np.ascontiguousarray(array).view(np.uint32)


def assert_same(sparse, left, expected, expected_left, device):
    assert sparse.size == expected.size
    assert sparse.positions.dtype == torch.int64
    assert sparse.values.dtype == left.dtype == torch.float32
    assert {sparse.positions.device.type, sparse.values.device.type, left.device.type} == {device}
    np.testing.assert_array_equal(sparse.positions.cpu().numpy(), expected.positions)
    np.testing.assert_array_equal(bits_of(sparse.values), bits_of(expected.values))
    np.testing.assert_array_equal(bits_of(left), bits_of(expected_left))


def check(name, device, update, residual, *arguments, **options):
    """Both twins on the same input, each with a generator of the same seed where it needs one."""
    needs_generator = name in ("random_k", "qsgd")
    extra = [(*arguments, generator()) if needs_generator else arguments for _ in range(2)]
    expected, expected_left = getattr(compressors, name)(update, residual, *extra[0], **options)
    tensors = on(device, update), on(device, residual)
    sparse, left = getattr(compress, name)(*tensors, *extra[1], **options)
    assert_same(sparse, left, expected, expected_left, device)
    np.testing.assert_array_equal(bits_of(tensors[0]), bits_of(update))
    np.testing.assert_array_equal(bits_of(tensors[1]), bits_of(residual))


@on_every_device
@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("name", ["top_k", "ternary", "random_k"])
def test_compressors_of_k_entries_give_what_their_twins_give(device, kind, name):
    for size in SIZES:
        update, residual = vectors(kind, size, 1), vectors(kind, size, 2)
        for k in {0, 1, size // 10, size // 2, size}:
            check(name, device, update, residual, k)


@on_every_device
@pytest.mark.parametrize("kind", VECTORS)
def test_unbiased_random_k_gives_what_its_twin_gives(device, kind):
    for size in SIZES:
        for k in {1, size // 2 + 1, size}:
            check("random_k", device, vectors(kind, size, 1), vectors(kind, size, 2), k, unbiased=True)


@on_every_device
@pytest.mark.parametrize("kind", VECTORS)
def test_qsgd_gives_what_its_twin_gives(device, kind):
    for size in SIZES:
        for levels in (1, 15, 127):
            check("qsgd", device, vectors(kind, size, 1), vectors(kind, size, 2), levels)


@on_every_device
@pytest.mark.parametrize("kind", VECTORS)
def test_none_gives_what_its_twin_gives(device, kind):
    for size in SIZES:
        check("none", device, vectors(kind, size, 1), vectors(kind, size, 2))


@on_every_device
@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 3000), st.sampled_from(VECTORS), st.integers(0, 2**32 - 1), st.data())
def test_top_k_gives_what_its_twin_gives(device, size, kind, seed, data):
    update, residual = vectors(kind, size, seed), vectors(kind, size, seed + 1)
    check("top_k", device, update, residual, data.draw(st.integers(0, size)))


@on_every_device
@pytest.mark.parametrize("k", [1, 1000, 200_000, 2**20 + 77])
@pytest.mark.parametrize("kind", ["normal", "ties"])
def test_a_long_vector(device, k, kind):
    update, residual = vectors(kind, 2**20 + 77, 1), vectors(kind, 2**20 + 77, 2)
    check("top_k", device, update, residual, k)


@on_every_device
@pytest.mark.parametrize("stride", [64, 1000, 1024])
def test_spikes_in_step_with_a_sample_do_not_deceive_the_threshold(device, stride):
    update = (1 + np.random.default_rng(stride).random(200_000)).astype(np.float32)
    update[::stride] = 100.0
    for k in (200_000 // stride, 200, 20_000):
        check("top_k", device, update, np.zeros_like(update), k)


@on_every_device
def test_the_residual_may_be_written_in_place(device):
    update, residual = vectors("normal", 5000, 1), vectors("normal", 5000, 2)
    expected, expected_left = compressors.top_k(update, residual, 100)
    memory = on(device, residual)
    sparse, left = compress.top_k(on(device, update), memory, 100, out=memory)
    assert left.data_ptr() == memory.data_ptr()
    assert_same(sparse, memory, expected, expected_left, device)


@on_every_device
@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("in_place", [False, True])
def test_clients_together_give_what_each_gives_alone(device, kind, in_place):
    size, counts = 3001, [0, 1, 30, 1500, 3001]
    updates, residuals = vectors(kind, (5, size), 1), vectors(kind, (5, size), 2)
    expected, expected_left = select.top_k_of_clients(updates, residuals, counts)
    memory = on(device, residuals)
    options = {"out": memory} if in_place else {}
    sparse, left = compress.top_k_of_clients(on(device, updates), memory, counts, **options)
    assert len(sparse) == 5
    assert (left.data_ptr() == memory.data_ptr()) == in_place
    for client in range(5):
        assert_same(sparse[client], left[client], expected[client], expected_left[client], device)


def with_nan(tensor):
    spoilt = tensor.clone()
    spoilt[4] = float("nan")
    return spoilt


BAD_CALLS = {
    "top_k above the size": lambda ones: compress.top_k(ones, ones, 11),
    "top_k below zero": lambda ones: compress.top_k(ones, ones, -1),
    "top_k of two lengths": lambda ones: compress.top_k(ones, ones[:9], 1),
    "top_k of float64": lambda ones: compress.top_k(ones.double(), ones, 1),
    "top_k of nan": lambda ones: compress.top_k(with_nan(ones), ones, 1),
    "top_k of a residual of nan": lambda ones: compress.top_k(ones, with_nan(ones), 1),
    "ternary above the size": lambda ones: compress.ternary(ones, ones, 11),
    "ternary of nan": lambda ones: compress.ternary(with_nan(ones), ones, 1),
    "random_k above the size": lambda ones: compress.random_k(ones, ones, 11, generator()),
    "random_k of two lengths": lambda ones: compress.random_k(ones, ones[:1], 3, generator()),
    "none of two lengths": lambda ones: compress.none(ones, ones[:1]),
    "qsgd of no levels": lambda ones: compress.qsgd(ones, ones, 0, generator()),
    "qsgd of 128 levels": lambda ones: compress.qsgd(ones, ones, 128, generator()),
    "qsgd of nan": lambda ones: compress.qsgd(with_nan(ones), ones, 15, generator()),
    "qsgd of two lengths": lambda ones: compress.qsgd(ones, ones[:1], 15, generator()),
    "clients without a count": lambda ones: compress.top_k_of_clients(ones.reshape(2, 5), ones.reshape(2, 5), [1]),
    "clients above the size": lambda ones: compress.top_k_of_clients(ones.reshape(2, 5), ones.reshape(2, 5), [1, 6]),
    "clients of nan": lambda ones: compress.top_k_of_clients(with_nan(ones).reshape(2, 5), ones.reshape(2, 5), [1, 1]),
}


@on_every_device
@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_arguments_are_refused(device, call):
    with pytest.raises(InvalidInputError):
        call(torch.ones(10, device=device))
