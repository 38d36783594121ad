"""A user's own partition is read from any of its formats, or refused with the line that is wrong."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import fewjoules as fj
from fewjoules.datasets.partition_file import read_partition
from fewjoules.runs.task import identity_of_task, prepare
from tests.scenario.test_training_scenario import trained_with
from tests.test_bad_input import assert_refused, run, write

OWNERS = st.integers(1, 5).flatmap(
    lambda clients: st.tuples(st.just(clients), st.lists(st.integers(-1, clients - 1), min_size=1, max_size=40))
)


def written(folder, name, samples, clients):
    path = folder / name
    if path.suffix == ".csv":
        path.write_text("client,sample\n" + "".join(f"{c},{s}\n" for s, c in zip(samples, clients, strict=True)))
    else:
        columns = {"sample": pa.array(samples), "client": pa.array(clients), "weight": pa.nulls(len(samples))}
        parquet.write_table(pa.table(columns), path)
    return path


@settings(max_examples=25)
@given(OWNERS, st.randoms())
def test_all_formats_say_the_same_in_any_order_of_rows(tmp_path_factory, given_owners, random):
    clients, owners = given_owners
    owners += list(range(clients))  # nobody is left without
    folder = tmp_path_factory.mktemp("partition")
    np.save(folder / "p.npy", np.array(owners, dtype=np.int16))
    rows = [(sample, client) for sample, client in enumerate(owners) if client >= 0]
    random.shuffle(rows)
    wanted = [[sample for sample, owner in enumerate(owners) if owner == client] for client in range(clients)]
    files = [
        folder / "p.npy",
        *(written(folder, f"p{kind}", *zip(*rows, strict=True)) for kind in (".csv", ".parquet")),
    ]
    for file in files:
        found = read_partition(file, len(owners), clients)
        assert [part.tolist() for part in found] == wanted
        assert all(part.dtype == np.int64 for part in found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sample,client\n0,0\n1,1\n\n7,1\n", "line 5: sample must be a whole number from 0 to 4, got 7"),
        ("sample,client\n0,0\n1,2\n", "line 3: client must be a whole number from 0 to 1, got 2"),
        ("sample,client\n0,0\n1,-1\n", "line 3: client must be a whole number from 0 to 1, got something else"),
        ("sample,client\n0,0\n1.5,1\n", "line 3: sample must be a whole number"),
        ("sample,client\n0,0\n,1\n", "line 3: sample .* got nothing"),
        ("sample,client\n0,0\n" + "9" * 5000 + ",1\n", "line 3: sample .* got something else"),
        ("sample,client\n0,0\n3,1\n3,0\n", "line 4: sample 3 must belong to one client, .* after line 3"),
        ("sample,client\n0,0\n1,0\n", "each of 2 clients must have at least one sample, got none for client 1"),
        ("sample,device\n0,0\n", "the header must name client once"),
        ("sample,client\n", "at least one row"),
        ("sample,client\n0\n", "line 2: must have 2 cells"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, says):
    file = tmp_path / "clients.csv"
    file.write_text(text)
    with pytest.raises(fj.InvalidInputError, match=says):
        read_partition(file, 5, 2)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.array([0, 1, 0]), r"each of 5 samples.*got int64 of shape \(3,\)"),
        (np.array([0, 1, 0, 1, 2]), "entry 4: client must be a whole number from 0 to 1, got 2"),
        (np.array([0, 1, 0, 1, -2]), "entry 4: client .* got -2"),
        (np.array([0.0, 1, 0, 1, 1]), "got float64"),
        (np.array([0, 1, None, 1, 1]), "NumPy's .npy format"),
    ],
)
def test_a_wrong_array_is_refused(tmp_path, array, says):
    np.save(tmp_path / "clients.npy", array)
    with pytest.raises(fj.InvalidInputError, match=says):
        read_partition(tmp_path / "clients.npy", 5, 2)


@pytest.mark.parametrize(
    ("samples", "clients", "says"),
    [
        ([0, 5], [0, 1], "row 1: sample must be a whole number from 0 to 4, got 5"),
        ([0.0, 1.0], [0, 1], "sample must be whole numbers without gaps, got double"),
        ([0, None], [0, 1], "sample must be whole numbers without gaps"),
        ([2, 2], [0, 1], "row 1: sample 2 must belong to one client, .* after row 0"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path, samples, clients, says):
    with pytest.raises(fj.InvalidInputError, match=says):
        read_partition(written(tmp_path, "clients.parquet", samples, clients), 5, 2)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("clients.txt", "must end in .csv, .parquet, .npy, got '.txt'"),
        ("none.csv", "cannot be read"),
        ("text.parquet", "must be a Parquet file"),
        ("text.npy", "NumPy's .npy format"),
    ],
)
def test_another_file_is_refused(tmp_path, name, says):
    for text in ("clients.txt", "text.parquet", "text.npy"):
        (tmp_path / text).write_text("hello")
    with pytest.raises(fj.InvalidInputError, match=says):
        read_partition(tmp_path / name, 5, 2)


OWN = trained_with('partition = "file"', 'partition_file = "clients.csv"')


def test_a_scenario_trains_with_its_partition_and_tells_another_one(tmp_path):
    scenario = fj.Scenario.from_toml(write(tmp_path, OWN))
    clients = len(scenario.fleet)
    unequal = [range(1), *(range(1 + 5 * c, 6 + 5 * c) for c in range(clients - 1))]
    rows = [(sample, client) for client, part in enumerate(unequal) for sample in part]
    written(tmp_path, "clients.csv", *zip(*rows, strict=True))
    task = prepare(scenario, torch.device("cpu"))
    assert [part.tolist() for part in task.federation.parts] == [list(part) for part in unequal]
    assert run("train", tmp_path / "scenario.toml", "--out", tmp_path / "out").exit_code == 0

    same = prepare(scenario, torch.device("cpu"))
    rows[0], rows[1] = (rows[0][0], rows[1][1]), (rows[1][0], rows[0][1])
    written(tmp_path, "clients.csv", *zip(*rows, strict=True))
    other = prepare(scenario, torch.device("cpu"))
    assert identity_of_task(task) == identity_of_task(same) != identity_of_task(other)


def test_a_scenario_with_a_wrong_partition_file_is_refused(tmp_path):
    written(tmp_path, "clients.csv", [0, 9999], [0, 1])
    assert_refused(run("train", write(tmp_path, OWN), "--out", tmp_path / "out"), "clients.csv, line 3", "1436", "9999")
    assert not (tmp_path / "out").exists()
    outside = OWN.replace("clients.csv", "../clients.csv")
    assert_refused(run("train", write(tmp_path, outside)), "training.partition_file", "below the folder")
