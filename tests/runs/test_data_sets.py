"""Clients may be arrays in memory or on disk, or data sets: what is trained is the same to the bit."""

import mmap
import resource
import warnings
from collections import UserDict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

import fewjoules as fj
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.read_samples import ReadSamples
from fewjoules.integrations.flower.local import local_training
from fewjoules.runs.holdout import hold_out
from fewjoules.runs.page_cache import ask_for_rows
from fewjoules.runs.readers import ArrayReader, DataSetReader
from fewjoules.runs.sources import collect, collect_one
from fewjoules.runs.training import Task
from tests.engine.algorithm.test_training import CLASSES, FEATURES, Case, close, fixed_case, ledger, run_rounds
from tests.reference import training as reference

CPU = torch.device("cpu")
DRAWS = np.random.default_rng(0)
INPUTS = DRAWS.standard_normal((60, 5)).astype(np.float32)
LABELS = (INPUTS @ DRAWS.standard_normal((5, 3))).argmax(1)
PARTS = [np.arange(0, 1), np.arange(1, 20), np.arange(20, 60)]
WHOLE = TensorDataset(torch.from_numpy(INPUTS), torch.from_numpy(LABELS))


class Rows(Dataset):
    """Items like those of Hugging Face's data sets: dicts of Python values, many at a time by ``__getitems__``."""

    def __init__(self, count=60):
        self.count, self.asked = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, key):
        rows = self.__getitems__([key] if isinstance(key, int) else key)
        return rows[0] if isinstance(key, int) else {name: [row[name] for row in rows] for name in rows[0]}

    def __getitems__(self, keys):
        self.asked.append(list(keys))
        return [{"x": INPUTS[key].tolist(), "label": int(LABELS[key])} for key in keys]


class Stored:
    """An array in a file, like h5py's: rows are asked for by increasing numbers, and counted."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.chunks, self.read = array, array.shape, array.dtype, True, set()

    def __getitem__(self, rows):
        numbers = np.arange(len(self.array))[rows]
        assert (np.diff(numbers) > 0).all()
        self.read |= set(numbers.tolist())
        return self.array[rows]


def mapped(folder):
    np.save(folder / "x.npy", INPUTS)
    np.save(folder / "y.npy", LABELS)
    return np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy", mmap_mode="r")


def file_tensor(folder, array):
    array.tofile(folder / "tensor.bin")
    return torch.from_file(str(folder / "tensor.bin"), size=array.size).reshape(array.shape)


def subsets(folder):
    return [Subset(WHOLE, part.tolist()) for part in PARTS]


def cut(x, y):
    return [(x[part[0] : part[-1] + 1], y[part[0] : part[-1] + 1]) for part in PARTS]


def trained(clients, model=None, **more):
    torch.manual_seed(0)
    options = {"local_steps": 3, "sparsity": 2.0, "rounds": 4, "learning_rate": 0.3, "batch_size": 8, "device": "cpu"}
    return fj.train(model or nn.Linear(5, 3), clients=clients, **options | more)


KINDS = {
    "arrays on disk": lambda folder: {"clients": cut(*mapped(folder)), "test": mapped(folder)},
    "one array on disk": lambda folder: {"clients": PARTS, "data": mapped(folder), "test": mapped(folder)},
    "a tensor in a file": lambda folder: {"clients": PARTS, "data": (file_tensor(folder, INPUTS), LABELS)},
    "arrays in chunks": lambda folder: {"clients": PARTS, "data": (Stored(INPUTS), Stored(LABELS))},
    "data sets": lambda folder: {"clients": subsets(folder), "test": WHOLE},
    "data sets that are read again": lambda folder: {"clients": subsets(folder), "test": WHOLE, "data_memory_gib": 0.0},
    "joined data sets": lambda folder: {"clients": PARTS, "data": ConcatDataset(subsets(folder))},
    "lists of samples": lambda folder: {"clients": [[WHOLE[int(i)] for i in part] for part in PARTS]},
    "shared arrays": lambda folder: {"clients": PARTS, "data": (INPUTS, LABELS)},
    "a mixture": lambda folder: {"clients": [subsets(folder)[0], *cut(*mapped(folder))[1:]]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_trains_the_same_model_as_arrays_in_memory(kind, tmp_path):
    given = {"test": (INPUTS, LABELS)} | KINDS[kind](tmp_path)
    found, wanted = trained(**given), trained(cut(INPUTS, LABELS), test=(INPUTS, LABELS))
    assert torch.equal(found.model.weight, wanted.model.weight)
    for name in ("test_loss", "test_accuracy", "train_loss"):
        np.testing.assert_array_equal(found.metrics[name], wanted.metrics[name])


MAPPINGS = {
    "arrays": lambda x: [(UserDict(input=x[part]), LABELS[part]) for part in PARTS],
    "samples": lambda x: [[(UserDict(input=x[i]), LABELS[i]) for i in part] for part in PARTS],
    "dicts": lambda x: [({"input": x[part]}, LABELS[part]) for part in PARTS],
}


@pytest.mark.parametrize("where", ["in memory", "on disk"])
@pytest.mark.parametrize("kind", MAPPINGS)
def test_mappings_train_as_dicts_do(kind, where, tmp_path):
    """A tokenizer's ``BatchEncoding`` is a ``UserDict``."""
    given = INPUTS if where == "in memory" else mapped(tmp_path)[0]
    found = trained(MAPPINGS[kind](given), test=(UserDict(input=given), LABELS), rounds=2)
    wanted = trained(cut(INPUTS, LABELS), test=(INPUTS, LABELS), rounds=2)
    assert torch.equal(found.model.weight, wanted.model.weight)
    np.testing.assert_array_equal(found.metrics["test_loss"], wanted.metrics["test_loss"])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_mappings_without_targets_are_samples_or_hold_them_all(count):
    rows = [UserDict(b=INPUTS[i], a=LABELS[i]) for i in range(count)]
    whole = UserDict(b=INPUTS[:count], a=LABELS[:count])
    for samples in (rows, whole):
        inputs, targets = collect_one(samples, CPU, "test").take(torch.arange(count))
        assert targets is None
        assert list(inputs) == ["a", "b"]
        assert torch.equal(inputs["b"], torch.from_numpy(INPUTS[:count]))


def test_a_node_of_a_deployment_takes_mappings():
    assert local_training(nn.Linear(5, 3), UserDict(input=INPUTS), LABELS).size == 60


def test_whole_numbers_on_disk_become_floats_only_where_the_model_needs_them(tmp_path):
    pixels = np.random.default_rng(1).integers(256, size=(60, 5), dtype=np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    on_disk = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    runs = [trained(PARTS, data=(x, LABELS), learning_rate=1e-5) for x in (pixels, on_disk)]
    assert torch.equal(runs[0].model.weight, runs[1].model.weight)
    np.save(tmp_path / "tokens.npy", pixels.astype(np.int64))
    given = {"data": (np.load(tmp_path / "tokens.npy", mmap_mode="r"), LABELS), "local_steps": 1, "sparsity": 1.0}
    model = nn.Sequential(nn.Embedding(256, 2), nn.Flatten(), nn.Linear(10, 3))
    tokens = fj.train(model, clients=PARTS, rounds=2, learning_rate=0.1, device="cpu", **given)
    assert np.isfinite(tokens.metrics["train_loss"]).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_tokens_of_few_bits_train_as_those_of_64(dtype, tmp_path):
    """PyTorch's embeddings take no others than int32 and int64, and files of tokens are mostly uint16."""
    tokens = np.random.default_rng(1).integers(200, size=(60, 5))
    np.save(tmp_path / "tokens.npy", tokens.astype(dtype))
    kinds = [tokens, tokens.astype(dtype), np.load(tmp_path / "tokens.npy", mmap_mode="r")]
    models = []
    for inputs in (*kinds, *({"input": one} for one in kinds)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(200, 2), nn.Flatten(), nn.Linear(10, 3))
        models.append(trained(PARTS, model, data=(inputs, LABELS)).model)
    assert all(torch.equal(models[0][2].weight, model[2].weight) for model in models)


def test_tables_of_pandas_and_arrays_that_cannot_be_written_train_as_others_do():
    pandas = pytest.importorskip("pandas")
    table, column = pandas.DataFrame(INPUTS), pandas.Series(LABELS)
    fixed, swapped = INPUTS.copy(), LABELS.astype(">i8")
    fixed.flags.writeable = False
    wanted = trained(cut(INPUTS, LABELS)).model.weight
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for clients in ([(table.iloc[part], column.iloc[part]) for part in PARTS], cut(fixed, swapped)):
            assert torch.equal(trained(clients).model.weight, wanted)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_without_targets_train_as_one_array_does(library):
    tables, options = pytest.importorskip(library), {"loss": lambda model, batch: model(batch).square().mean(-1)}
    parts = [INPUTS[part[0] : part[-1] + 1] for part in PARTS]
    wanted = trained(parts, **options).model.weight
    assert torch.equal(trained([tables.DataFrame(part) for part in parts], **options).model.weight, wanted)
    assert torch.equal(trained(PARTS, data=tables.DataFrame(INPUTS), **options).model.weight, wanted)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_train_by_their_rows_beside_arrays_on_disk_and_as_samples(library, tmp_path):
    tables = pytest.importorskip(library)
    column = tables.Series(LABELS)
    if library == "pandas":
        column.index = range(59, -1, -1)
    inputs, wanted = mapped(tmp_path)[0], trained(PARTS, data=(INPUTS, LABELS)).model.weight
    assert torch.equal(trained(PARTS, data=(inputs, column)).model.weight, wanted)
    rows = [(tables.Series(row), label) for row, label in zip(INPUTS, LABELS, strict=True)]
    assert torch.equal(trained(PARTS, data=rows).model.weight, wanted)


def test_a_data_set_that_can_also_be_a_table_is_read_as_a_data_set():
    class Tabled(TensorDataset):
        def to_numpy(self):
            raise AssertionError

    data = Tabled(*WHOLE.tensors)
    assert torch.equal(trained(PARTS, data=data).model.weight, trained(PARTS, data=WHOLE).model.weight)


def loss_of_rows(model, batch):
    return nn.functional.cross_entropy(model(batch["x"]), batch["label"], reduction="none")


@pytest.mark.parametrize("memory", [0.0, None])
def test_rows_of_python_values_train_as_arrays_do(memory):
    found = trained(PARTS, data=Rows(), loss=loss_of_rows, data_memory_gib=memory)
    assert torch.equal(found.model.weight, trained(PARTS, data=(INPUTS, LABELS)).model.weight)


# --- What is read


def test_training_reads_the_samples_of_its_batches_and_no_others():
    stored = Stored(INPUTS)
    trained(PARTS, data=(stored, LABELS), rounds=2, local_steps=1, batch_size=4)
    drawn = stored.read - {0, 1}  # by which the shapes are known
    assert 0 < len(drawn) <= 2 * (1 + 4 + 4)


def test_an_array_far_larger_than_memory_is_trained_on_in_little_memory(tmp_path):
    side, count = 1 << 14, 1 << 20  # 64 GiB, of which the disk holds nothing
    inputs = np.memmap(tmp_path / "x.bin", np.float32, "w+", shape=(count, side))
    labels = np.arange(count) % 3
    torch.manual_seed(0)
    model = nn.Sequential(nn.AvgPool1d(1 << 11), nn.Linear(8, 3))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = fj.train(model, clients=np.array_split(np.arange(count), 4), data=(inputs, labels), local_steps=2,
                   sparsity=1.0, rounds=3, learning_rate=0.1, batch_size=4, device="cpu")  # fmt: skip
    assert np.isfinite(run.metrics["train_loss"]).all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_the_system_is_asked_for_the_pages_of_the_rows_and_for_no_others(tmp_path):
    class File(mmap.mmap):
        def madvise(self, advice, begin, length):
            asked.append((begin, begin + length))

    asked, page = [], mmap.PAGESIZE
    (tmp_path / "file").write_bytes(bytes(10 * page))
    with (tmp_path / "file").open("rb") as stream:
        file = File(stream.fileno(), 0, access=mmap.ACCESS_READ)
    rows = np.frombuffer(file, dtype=np.uint8, offset=100, count=9 * page).reshape(18, page // 2)
    ask_for_rows(rows[4:], np.array([0, 9]))  # from 100 + 2 pages on, and from 100 + 6.5 pages on
    assert asked == [(2 * page, 2 * page + page // 2 + page), (6 * page, 6 * page + page // 2 + page)]
    ask_for_rows(np.array(rows), np.array([0]))
    ask_for_rows(rows[:, ::2], np.array([0]))
    assert len(asked) == 2


def test_many_items_are_asked_for_at_once_where_a_data_set_can():
    rows = Rows()
    samples = collect_one(rows, CPU, "test", 0.0)
    inputs, targets = samples.take(torch.tensor([[7, 3], [3, 9]]))
    assert targets is None
    assert rows.asked[-1] == [3, 7, 9]
    np.testing.assert_array_equal(inputs["x"], INPUTS[[[7, 3], [3, 9]]])
    assert inputs["label"].tolist() == LABELS[[[7, 3], [3, 9]]].tolist()


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_samples_of_any_numbers_are_found_whatever_was_read_ahead(data):
    sizes = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    values = np.arange(2 * sum(sizes), dtype=np.float32).reshape(-1, 2)
    ends = np.cumsum(sizes)
    cuts = [(values[end - size : end], np.arange(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    kinds = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    readers = [
        DataSetReader(list(zip(x, y, strict=True)), f"clients[{i}]") if listed else ArrayReader(x, y, f"clients[{i}]")
        for i, ((x, y), listed) in enumerate(zip(cuts, kinds, strict=True))
    ]
    samples, plain = ReadSamples(readers, CPU), Samples(torch.from_numpy(values), torch.arange(len(values)))
    numbers = st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=12)
    for ahead, wanted in data.draw(st.lists(st.tuples(st.none() | numbers, numbers), max_size=4)):
        if ahead is not None:
            samples.read_ahead(np.array(ahead))
        for one in (torch.tensor(wanted), torch.tensor([wanted, wanted[::-1]])):
            for found, expected in zip(samples.take(one), plain.take(one), strict=True):
                assert torch.equal(found, expected)
    whole = samples.loaded()
    assert torch.equal(whole.inputs, plain.inputs)
    assert torch.equal(whole.targets, plain.targets)


def test_what_tuning_keeps_aside_of_data_on_disk_is_what_it_keeps_of_arrays(tmp_path):
    tasks = []
    for data in ((INPUTS, LABELS), mapped(tmp_path)):
        samples, parts = collect(PARTS, CPU, data=data)
        given = Task(model=nn.Linear(5, 3), federation=Federation(samples, parts), test=None, loss=None, fleet=None)
        tasks.append(hold_out(given, 0.2, 3))
    held, again = (task.test.take(torch.arange(len(task.test))) for task in tasks)
    assert all(torch.equal(*pair) for pair in zip(held, again, strict=True))
    assert not tasks[1].test.resident


# --- Unequal clients


@settings(max_examples=2, deadline=None)
@given(st.sampled_from([1, 4]))
def test_clients_of_one_sample_to_thousands_train_as_algorithm_1_does(chunk):
    clients = reference.made_up_clients([1, 3000, 2, 40], FEATURES, CLASSES, 5)
    like = fixed_case(batch_size=16, batch_growth=1.5, rounds=3)
    case = Case(like.model, clients, like.module, like.options)
    rounds = list(run_rounds(case.simulator(threads=1, chunk=chunk)))
    close(rounds[-1].weights, case.trace(ledger(rounds)).rounds[-1].weights)


# --- What is refused


class Odd(Dataset):
    """Ten samples, of which one is as ``odd`` makes it."""

    def __init__(self, odd, at=6):
        self.odd, self.at, self.length = odd, at, 10

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        return self.odd(self) if number == self.at else (torch.zeros(5), 1)


def grow(data):
    data.length += 1
    return torch.zeros(5), 1


def fail(data):
    raise OSError("the disk is gone")


ODD = [
    (lambda data: (torch.zeros(4), 1), r"clients\[1\]\[6\] must have the shapes and types of .*; pad or crop"),
    (lambda data: ({"x": torch.zeros(5)}, 1), r"clients\[1\]\[6\] must have the shapes and types"),
    (lambda data: (torch.zeros(5), 1.5), r"clients\[1\]\[6\] must have the shapes and types"),
    (lambda data: torch.zeros(5), r"clients\[1\]\[6\] must have the shapes and types"),
    (lambda data: (torch.zeros(5), "cat"), r"clients\[1\]\[6\] must hold tensors, arrays or numbers: "),
    (lambda data: (torch.zeros(5), 1, 2), r"clients\[1\]\[6\] must be \(input, target\), a dict or a tensor, got 3"),
    (lambda data: (torch.full((5,), torch.nan), 1), r"clients\[1\]\[6\] must have finite inputs"),
    (lambda data: (torch.zeros(5), -1), r"clients\[1\]\[6\] must have a label of at least 0, got -1"),
    (lambda data: (torch.zeros(5), -100), r"clients\[1\]\[6\] must have a label of at least 0, got -100"),
    (lambda data: (torch.zeros(5) * 1j, 1), r"clients\[1\]\[6\] must hold real numbers"),
    (lambda data: ([1j] * 5, 1), r"clients\[1\]\[6\] must hold real numbers"),
    (lambda data: (torch.zeros(5), 1j), r"clients\[1\]\[6\] must hold real numbers"),
    (lambda data: (np.ma.masked_equal(np.zeros(5), 0), 1), r"clients\[1\]\[6\] must hold arrays without masked val"),
    (lambda data: (torch.zeros(5).to_sparse(), 1), r"clients\[1\]\[6\] must hold dense arrays"),
    (lambda data: {"x": torch.zeros(5), "said": "cat"}, r"clients\[1\]\[6\] must hold .*: 'said' is of type str"),
    (fail, r"clients\[1\]\[6\] cannot be read: OSError: the disk is gone"),
]


@pytest.mark.parametrize(("odd", "says"), ODD)
def test_an_odd_item_is_named_with_its_client(odd, says):
    with pytest.raises(fj.InvalidInputError, match=says):
        trained([Subset(WHOLE, range(9)), Odd(odd)])
    with pytest.raises(fj.InvalidInputError, match=says.partition(" of .*")[0].partition(", got -1")[0]):
        trained([Subset(WHOLE, range(9)), Odd(odd)], data_memory_gib=0.0, batch_size=None)


@pytest.mark.parametrize(
    ("client", "says"),
    [
        ([], "must have at least one sample, got 0"),
        (Subset(WHOLE, []), "must have at least one sample, got 0"),
        ((np.zeros((3, 5)), 3), "must hold arrays"),
        (iter([1]), "must be a pair of arrays"),
        (
            TensorDataset(torch.zeros(3, 4), torch.zeros(3, dtype=torch.long)),
            r"\[0\] must have inputs like those of cl",
        ),
        (TensorDataset(torch.zeros(3, 5)), "must have targets like those"),
        (TensorDataset(torch.zeros(3, 5), torch.full((3,), 7)), r"below the 3 outputs of the model, got 7"),
    ],
)
def test_a_client_that_does_not_fit_is_refused(client, says):
    with pytest.raises(fj.InvalidInputError, match=r"clients\[1\].*" + says):
        trained([Subset(WHOLE, range(9)), client], data_memory_gib=0.0)


@pytest.mark.parametrize(
    ("client", "says"),
    [
        ((np.zeros((3, 5)), np.array(["cat"] * 3)), "must hold arrays of numbers with samples of one shape: "),
        (([[1.0, 2.0], [1.0]], [0, 1]), "must hold arrays of numbers with samples of one shape: "),
        ((np.zeros((3, 5)), np.full(3, -100)), "must have labels of at least 0, got -100"),
        ((np.zeros((3, 5)),), "must be a pair of arrays .*, got tuple of 1"),
    ],
)
def test_arrays_in_memory_that_do_not_fit_are_refused(client, says):
    with pytest.raises(fj.InvalidInputError, match=r"clients\[1\].*" + says):
        trained([(INPUTS, LABELS), client])


NOT_PLAIN = {
    "complex inputs": ((INPUTS + 1j, LABELS), "must hold real numbers, got complex"),
    "complex of another order of bytes": ((INPUTS.astype(">c8"), LABELS), "must hold real numbers"),
    "complex tensors": ((torch.zeros(60, 5, dtype=torch.complex64), LABELS), "must hold real numbers"),
    "complex labels": ((INPUTS, LABELS + 1j), "must hold real numbers"),
    "complex lists": (([[1j] * 5] * 60, LABELS), "must hold real numbers"),
    "complex in a dict": (({"input": INPUTS + 1j}, LABELS), "must hold real numbers"),
    "complex in a tuple": (((INPUTS + 1j,), LABELS), "must hold real numbers"),
    "one complex array": (INPUTS + 1j, "must hold real numbers"),
    "complex in chunks": ((Stored(INPUTS + 1j), LABELS), "must hold real numbers"),
    "masked inputs": ((np.ma.masked_less(INPUTS, 0), LABELS), "must hold arrays without masked values"),
    "masked labels": ((INPUTS, np.ma.masked_equal(LABELS, 0)), "must hold arrays without masked values"),
    "masked rows": ((list(np.ma.masked_less(INPUTS, 0)), LABELS), "must hold arrays without masked values"),
    "masked in a dict": (({"input": np.ma.masked_less(INPUTS, 0)}, LABELS), "must hold arrays without masked values"),
    "masked in chunks": ((Stored(np.ma.masked_less(INPUTS, 0)), LABELS), "must hold arrays without masked values"),
    "one array of words": (np.array([["cat"]] * 60), "must hold arrays of numbers: "),
    "one array of objects": (np.array([[None]] * 60), "must hold arrays of numbers: "),
    "sparse inputs": ((torch.zeros(60, 5).to_sparse(), LABELS), r"must hold dense arrays .* torch.sparse_coo"),
    "sparse in a list": (([torch.zeros(5).to_sparse()] * 60, LABELS), "must hold dense arrays"),
    "nested": ((torch.nested.nested_tensor([torch.zeros(5)] * 60, layout=torch.jagged), LABELS), "must hold dense"),
}


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_arrays_that_would_lose_a_part_are_refused_wherever_they_are_given(kind):
    given, says = NOT_PLAIN[kind]
    for name, more in (("data", {"data": given}), ("test", {"data": (INPUTS, LABELS), "test": given})):
        with pytest.raises(fj.InvalidInputError, match=f"^{name} {says}"):
            trained(PARTS, **more)
    with pytest.raises(fj.InvalidInputError, match=rf"^clients\[0\] {says}"):
        trained([given])


@pytest.mark.parametrize("inputs", [INPUTS + 1j, np.ma.masked_less(INPUTS, 0)])
def test_a_node_of_a_deployment_refuses_arrays_that_would_lose_a_part(inputs):
    with pytest.raises(fj.InvalidInputError, match=r"^the node.s data must hold (real|arrays without masked)"):
        local_training(nn.Linear(5, 3), inputs, LABELS)


def test_masked_arrays_of_which_nothing_is_masked_train_as_others_do():
    found = trained([(np.ma.masked_array(INPUTS), LABELS)])
    assert torch.equal(found.model.weight, trained([(INPUTS, LABELS)]).model.weight)


@pytest.mark.parametrize("memory", [0.0, None])
def test_a_data_set_that_changes_its_length_is_refused(memory):
    with pytest.raises(fj.InvalidInputError, match=r"clients\[1\] must keep its 10 samples .* got 11"):
        trained([Subset(WHOLE, range(9)), Odd(grow, at=0)], data_memory_gib=memory, batch_size=None)


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ([60], "from 0 to 59, got 60"),
        ([-1, 2], "from 0 to 59, got -1"),
        ([4, 3, 4], "each sample once, got 4 twice"),
        ([0.5], "must hold sample numbers"),
        ((INPUTS, LABELS), "must hold sample numbers .* got tuple of 2; leave data out"),
        (Subset(WHOLE, range(5)), "must hold sample numbers .* got Subset; leave data out"),
        (torch.zeros(3, dtype=torch.long).to_sparse(), "must hold sample numbers .* got Tensor"),
        ([], "must hold sample numbers"),
    ],
)
def test_sample_numbers_that_do_not_fit_are_refused(numbers, says):
    with pytest.raises(fj.InvalidInputError, match=r"clients\[1\].*" + says):
        trained([[0, 1], numbers], data=(INPUTS, LABELS))


def test_arrays_on_disk_of_other_lengths_and_values_are_refused(tmp_path):
    x, y = mapped(tmp_path)
    with pytest.raises(fj.InvalidInputError, match=r"data must have as many inputs as targets.*\(60, 5\) and \(50,\)"):
        trained(PARTS, data=(x, y[:50]))
    np.save(tmp_path / "bad.npy", np.where(np.arange(60)[:, None] == 33, np.inf, INPUTS))
    with pytest.raises(fj.InvalidInputError, match=r"data\[33\] must have finite inputs"):
        trained(PARTS, data=(np.load(tmp_path / "bad.npy", mmap_mode="r"), y), batch_size=None)
    with pytest.raises(fj.InvalidInputError, match="an output for each label up to 9, got 3"):
        trained(PARTS, data=(x, np.where(np.arange(60) == 5, 9, LABELS)))
    with pytest.raises(fj.InvalidInputError, match="data_memory_gib must be a finite number at least 0"):
        trained(subsets(tmp_path), data_memory_gib=-1.0)
