"""The samples that a function of the user's own returned, and what tells them from others when a run is resumed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fewjoules.arrays import IntArray
from fewjoules.engine.simulator.federation import Samples, SampleSource
from fewjoules.engine.simulator.read_samples import ReadSamples
from fewjoules.errors import InvalidInputError
from fewjoules.own_code import own_source_digest
from fewjoules.runs.client_data import require_loss, rule_of
from fewjoules.runs.data_facts import data_facts
from fewjoules.runs.sources import collect, collect_one
from fewjoules.scenario.own_data import OwnData


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnSamples:
    """Samples to train and to test on. ``parts`` are the sample numbers of each client where the data come divided."""

    train: SampleSource
    test: SampleSource | None
    parts: list[IntArray] | None
    labels: IntArray | None
    facts: dict[str, Any]


def own_samples(given: OwnData, folder: Path, device: torch.device, memory_gib: float | None) -> OwnSamples:
    """Gather what the function returned; refuse samples that do not fit together."""
    try:
        parts: list[IntArray] | None = None
        rule = rule_of(given.loss)
        if given.clients is None:
            train = collect_one(given.train, device, "train", memory_gib, rule)
        else:
            train, found = collect(given.clients, device, memory_gib=memory_gib, rule=rule)
            parts = list(found)
        test = None if given.test is None else collect_one(given.test, device, "test", memory_gib, rule)
        require_loss(f"the function {given.name!r}", given.loss, train)
    except InvalidInputError as error:
        raise InvalidInputError(f"training.data {given.name!r}: {error}") from error
    return OwnSamples(
        train=train,
        test=test,
        parts=parts,
        labels=_labels(train),
        facts={
            "source": own_source_digest("training.data", given.name, folder),
            "train": data_facts(train),
            "test": None if test is None else data_facts(test),
        },
    )


def _labels(samples: SampleSource) -> IntArray | None:
    if isinstance(samples, ReadSamples):
        return samples.labels()
    targets = samples.targets if isinstance(samples, Samples) else None
    if not torch.is_tensor(targets) or targets.ndim != 1 or targets.is_floating_point():
        return None
    return targets.cpu().numpy()
