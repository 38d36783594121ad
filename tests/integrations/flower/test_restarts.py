"""A server that is started again in its folder, folders of other runs, and two servers in one folder."""

import json

import numpy as np
import pytest

from fewjoules.errors import InvalidInputError
from fewjoules.integrations.flower.records import array_record
from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.runs.files import CHECKPOINT
from fewjoules.runs.lock import locked
from tests.integrations.flower.counted import CLIENTS, ROUNDS, initial, weights_of


def started_until(run, number, **given):
    """Stop the run after so many rounds, as an exception of the user's own function would."""

    def stop(done, _arrays):
        if done == number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.strategy(options=run.options(evaluate_every=1, **given)).start(run.grid, initial(), evaluate_fn=stop)


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


EXACT, COMPRESSED = {}, {"downlink_sparsity": 6.0, "downlink_values": "float16"}


@pytest.mark.parametrize("given", [EXACT, COMPRESSED], ids=["exact", "compressed"])
@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_a_server_goes_on_after_the_last_complete_round(counted, number, given):
    undisturbed = counted()
    options = undisturbed.options(evaluate_every=1, **given)
    expected = undisturbed.run(options=options)
    run = counted()
    started_until(run, number, **given)
    strategy = run.run(options=options)
    np.testing.assert_array_equal(weights_of(strategy), weights_of(expected))
    run.require_conserved(strategy)
    for table in (LEDGER, METRICS):
        found, wanted = (read_table(each.server_folder / f"{table.name}.parquet", table) for each in (run, undisturbed))
        assert found.tobytes() == wanted.tobytes(), (found, wanted)
    assert len(run.trainings) == CLIENTS * ROUNDS


def test_a_finished_run_that_is_started_again_trains_nothing_and_returns_its_model(counted):
    run = counted()
    first = weights_of(run.run())
    trained, before = len(run.trainings), files_of(run.server_folder)
    result = run.strategy().start(run.grid, initial())
    np.testing.assert_array_equal(result.arrays["layer"].numpy(), first)
    assert len(run.trainings) == trained
    assert files_of(run.server_folder) == before


def test_clients_keep_their_numbers_and_nodes_their_memories(counted):
    """Nodes come back in another order, with another node id, and beside a client that sorts before them."""
    run = counted()
    started_until(run, 2)
    names = json.loads((run.server_folder / "deployment.json").read_text())["clients"]
    assert [one["client"] for one in names] == ["0", "1", "2", "3"]
    run.grid.nodes = dict(reversed(run.nodes(first=100).items()))
    strategy = run.run(options=run.options(evaluate_every=1))
    run.require_conserved(strategy)
    np.testing.assert_array_equal(weights_of(strategy), weights_of(counted().run()))


@pytest.mark.parametrize(
    ("rounds", "given", "sentence"),
    [
        (2, {"learning_rate": 0.2}, r"learning_rate"),
        (2, {"sparsity": np.full(CLIENTS + 1, 4.0)}, r"the run was begun with 4 clients, got 5"),
        (1, {"sparsity": np.full(CLIENTS + 1, 4.0)}, r"the run was begun with 4 clients, got 5"),
    ],
)
def test_a_folder_of_a_run_with_other_options_is_refused_and_left_as_it_is(counted, rounds, given, sentence):
    """Stopped in round 1 it has no checkpoint yet."""
    run = counted()
    started_until(run, rounds)
    assert (run.server_folder / CHECKPOINT).exists() == (rounds > 1)
    before = files_of(run.server_folder)
    with pytest.raises(InvalidInputError, match=sentence) as caught:
        run.strategy(options=run.options(evaluate_every=1, **given)).start(run.grid, initial())
    assert "\n" not in str(caught.value)
    assert files_of(run.server_folder) == before


def test_a_folder_of_a_run_with_another_model_is_refused(counted):
    run = counted()
    started_until(run, 2)
    other = array_record({"layer": np.zeros(5, np.float32)})
    with pytest.raises(InvalidInputError, match="parameters") as caught:
        run.strategy(options=run.options(evaluate_every=1)).start(run.grid, other)
    assert "\n" not in str(caught.value)
    run.require_conserved(run.run(options=run.options(evaluate_every=1)))


def test_a_folder_of_a_run_that_was_no_deployment_is_refused_before_anybody_is_asked(counted):
    run = counted()
    run.server_folder.mkdir(parents=True)
    (run.server_folder / CHECKPOINT).write_bytes(b"of fewjoules train")
    with pytest.raises(InvalidInputError, match="must be empty or the folder of a deployment"):
        run.run()
    assert run.grid.sent == []
    assert files_of(run.server_folder).keys() == {(run.server_folder / CHECKPOINT).relative_to(run.server_folder)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 3}',
        '{"version": 2}',
        '{"version": 1}',
        '{"version": 1, "run": "a", "clients": 3, "keys": {}}',
    ],
)
def test_a_damaged_deployment_file_is_refused_in_one_sentence(counted, text):
    run = counted()
    run.server_folder.mkdir(parents=True)
    (run.server_folder / "deployment.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"deployment\.json: ") as caught:
        run.run()
    assert "\n" not in str(caught.value)


def test_a_second_server_in_a_folder_is_refused(counted):
    run = counted()
    with locked(run.server_folder), pytest.raises(InvalidInputError, match="is writing to this folder"):
        run.run()
    assert run.grid.sent == []
    run.require_conserved(run.run())


def test_a_second_run_with_another_folder_has_memories_of_its_own(counted):
    run = counted()
    run.run()
    trained = len(run.trainings)
    run.strategy(folder=run.folder / "second").start(run.grid, initial())
    assert len(run.trainings) == 2 * trained
    assert len(list((run.folder / "node-0").glob("*.memory"))) == 2
