"""The hash of a scenario, by which records are found, outlives changes of FewJoules that change no training."""

import json
from pathlib import Path

import pytest
from pydantic import Field

from fewjoules.scenario.schema.training import TrainingTable
from fewjoules_reproduction.embedded import FIRST_KEYS, embedded_scenario, hashed_training, scenario_digest
from fewjoules_reproduction.studies import STUDIES

RECORDS = Path(__file__).parents[2] / "results" / "reproduction" / "runs"
DIGESTS = {
    "mnist": "d54f55881c14ea86",
    "mnist-lte": "d54f55881c14ea86",
    "mnist-dirichlet": "ce83a27cc8483edc",
    "qmnist-writers": "7832587d3c5a3d55",
    "cifar10": "d8d9d766dbf748b7",
    "cifar10-lte": "d8d9d766dbf748b7",
    "digits": "f47ef1eebf3f9819",
    "digits-lte": "f47ef1eebf3f9819",
    "digits-dirichlet": "5570356fd4ca3c9b",
}


class LaterTable(TrainingTable):
    """[training] with keys that it may get one day."""

    optimizer: str = "sgd"
    warm_up: list[int] = Field(default_factory=list)


def test_the_digest_of_every_study_is_that_of_its_records():
    assert {name: scenario_digest(study.scenario, study.bit_scale) for name, study in STUDIES.items()} == DIGESTS


def test_every_record_in_the_repository_has_the_digest_of_its_study():
    orders = [json.loads(file.read_text(encoding="utf-8"))["order"] for file in RECORDS.rglob("*.json")]
    assert len(orders) > 200
    assert {(order["study"], order["scenario"]) for order in orders} <= set(DIGESTS.items())


def test_later_keys_at_their_defaults_are_not_hashed():
    table = embedded_scenario("fig2cd.toml").training
    later = LaterTable(**table.model_dump())
    assert hashed_training(later) == hashed_training(table)
    assert hashed_training(later).keys() == FIRST_KEYS


@pytest.mark.parametrize("change", [{"optimizer": "adam"}, {"warm_up": [1, 2]}], ids=lambda change: next(iter(change)))
def test_later_keys_with_other_values_are_hashed(change):
    assert hashed_training(LaterTable(**change)) == hashed_training(LaterTable()) | change


@pytest.mark.parametrize("change", [{"momentum": 0.9}, {"seed": 1}, {"data": "digits"}])
def test_the_first_keys_are_always_hashed(change):
    assert hashed_training(TrainingTable(**change)) == hashed_training(TrainingTable()) | change
