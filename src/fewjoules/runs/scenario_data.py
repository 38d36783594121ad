"""The data of a scenario on the training device, and how they are dealt out to its devices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.datasets import partition, shakespeare
from fewjoules.datasets.dataset import Dataset
from fewjoules.datasets.load import load
from fewjoules.datasets.partition_file import read_partition
from fewjoules.datasets.shapes import TEXTS, USUAL_CONTEXT
from fewjoules.engine.algorithm.streams import stream
from fewjoules.engine.models.architectures import Images, Shape, Text
from fewjoules.engine.models.loss import Loss, cross_entropy
from fewjoules.engine.simulator.federation import Samples, SampleSource
from fewjoules.errors import InvalidInputError
from fewjoules.own_code import is_own
from fewjoules.runs.own_samples import own_samples
from fewjoules.scenario import Scenario
from fewjoules.scenario.own_data import own_data
from fewjoules.scenario.schema.training import TrainingTable


@dataclass(frozen=True, kw_only=True, eq=False)
class ScenarioData:
    """Training and test samples, and what networks and partitions need to know of them.

    ``facts`` are what a resumed run knows the data by: the SHA-256 of a data set, or facts of the user's own samples.
    ``shape`` is what a network is built for; None: the user's own network for the user's own data. ``labels`` and
    ``writers`` are those of the training samples, where there are any; ``test_writers`` are those of the test samples.
    The writers of a play are its roles. ``parts`` are the sample numbers of each client where the data come divided.
    """

    name: str
    facts: Any
    train: SampleSource
    test: SampleSource | None
    shape: Shape | None
    labels: IntArray | None
    writers: IntArray | None = None
    test_writers: IntArray | None = None
    parts: list[IntArray] | None = None
    loss: Loss = cross_entropy
    metrics: Mapping[str, Any] = field(default_factory=dict)


def load_data(
    scenario: Scenario,
    training: TrainingTable,
    device: torch.device,
    data_dir: str | None,
    progress: Callable[[int, int | None], None] | None,
) -> ScenarioData:
    """Load the data that [training] names, from ``data_dir`` or from the store, which downloads missing files."""
    name = training.require("data")
    if name in TEXTS:
        return _text(scenario.context or USUAL_CONTEXT, device)
    if is_own(name):
        return _own(scenario, training, device)
    dataset = load(name, data_dir, progress)
    return ScenarioData(
        name=dataset.name,
        facts=dataset.sha256,
        train=_images_of(dataset, dataset.train_images, dataset.train_labels, device),
        test=_images_of(dataset, dataset.test_images, dataset.test_labels, device),
        shape=Images(*dataset.shape, dataset.classes),
        labels=dataset.train_labels,
        writers=dataset.writers,
    )


def deal_out(scenario: Scenario, training: TrainingTable, data: ScenarioData) -> list[IntArray]:
    """Return the sample numbers of each device, by the partition that [training] asks for."""
    clients, rng = len(scenario.fleet), stream(training.seed, "partition")
    if data.parts is not None:
        return _given_parts(training, data, data.parts, clients)
    if training.partition == "file":
        file = scenario.files.file("training.partition_file", training.require("partition_file"))
        return read_partition(file, _size(data), clients)
    if training.partition == "dirichlet":
        return partition.dirichlet(_labels(data), clients, training.require("dirichlet_concentration"), rng)
    if training.partition == "shards":
        return partition.shards(_labels(data), clients, training.require("shards_per_client"), rng)
    if training.partition == "writers":
        return partition.writers(_writers(training, data, "'qmnist' or 'shakespeare'"), clients, rng)
    if training.partition == "roles":
        return partition.roles(_writers(training, data, "'shakespeare'"), clients, rng)
    return partition.iid(np.zeros(_size(data), dtype=np.int64), clients, rng)


def samples_to_test(data: ScenarioData, parts: Sequence[IntArray]) -> SampleSource | None:
    """Return the test samples; of a text only those of roles that some client plays."""
    if data.test is None or data.writers is None or data.test_writers is None:
        return data.test
    played = np.unique(data.writers[np.concatenate(parts)])
    chosen = np.flatnonzero(np.isin(data.test_writers, played))
    if chosen.size == 0:
        raise InvalidInputError(
            "the roles of the devices must have a window to test on in the last tenths of their texts, got none; take "
            "more devices or a smaller model.context"
        )
    return data.test if chosen.size == len(data.test) else Samples(*data.test.take(torch.from_numpy(chosen)))


def _given_parts(training: TrainingTable, data: ScenarioData, parts: list[IntArray], clients: int) -> list[IntArray]:
    if "partition" in training.model_fields_set:
        raise InvalidInputError(
            f"training.partition is unused: training.data {data.name!r} returns the data of each client"
        )
    if len(parts) != clients:
        raise InvalidInputError(
            f"training.data {data.name!r} must return the data of each of {clients} devices, got {len(parts)} clients"
        )
    return parts


def _size(data: ScenarioData) -> int:
    return len(data.train)


def _labels(data: ScenarioData) -> IntArray:
    if data.labels is None:
        raise InvalidInputError(f"training.partition needs a label for each sample, which {data.name!r} does not have")
    return data.labels


def _writers(training: TrainingTable, data: ScenarioData, wanted: str) -> IntArray:
    if data.writers is None:
        raise InvalidInputError(f"training.partition = {training.partition!r} needs data = {wanted}, got {data.name!r}")
    return data.writers


def _own(scenario: Scenario, training: TrainingTable, device: torch.device) -> ScenarioData:
    given = own_data(training.require("data"), scenario.folder)
    found = own_samples(given, scenario.folder, device, training.data_memory_gib)
    shape = None if is_own(str(scenario.architecture)) else given.shape()
    return ScenarioData(
        name=given.name,
        facts=found.facts,
        train=found.train,
        test=found.test,
        shape=shape,
        labels=found.labels,
        parts=found.parts,
        metrics=given.metrics or {},
        loss=given.loss or cross_entropy,
    )


def _text(context: int, device: torch.device) -> ScenarioData:
    dataset = shakespeare.read(context)
    parts = (dataset.train_inputs, dataset.train_targets), (dataset.test_inputs, dataset.test_targets)
    train, test = (Samples(*(torch.from_numpy(array).to(device) for array in part)) for part in parts)
    return ScenarioData(
        name=dataset.name,
        facts=dataset.sha256,
        train=train,
        test=test,
        shape=Text(context, dataset.classes),
        labels=None,
        writers=dataset.train_roles,
        test_writers=dataset.test_roles,
    )


def _images_of(dataset: Dataset, images: Any, labels: IntArray, device: torch.device) -> Samples:
    inputs = torch.from_numpy(dataset.normalised(images)).to(device)
    return Samples(inputs, torch.from_numpy(labels).to(device))
