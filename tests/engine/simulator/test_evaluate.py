"""Evaluations take as many samples at a time as memory is meant for, and say the same whatever that number."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import _get_current_dispatch_mode

from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.models.objective import Measure
from fewjoules.engine.simulator import evaluate
from fewjoules.engine.simulator.cpu.workers import Workers
from fewjoules.engine.simulator.evaluate import Evaluator, batch_for
from fewjoules.engine.simulator.federation import Samples
from fewjoules.engine.simulator.live_bytes import LiveBytes

WORDS, LENGTH = 3000, 16
LARGEST = {"cpu": 256, "cuda": 4096}


@pytest.fixture
def workers():
    pool = Workers(2)
    yield pool
    pool.close()


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def evaluated(evaluator, model):
    return evaluator(flat(model), torch.zeros(0))


def language(words=WORDS, samples=90, seed=0):
    """A model of words, and texts in which some labels do not count."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(words, 4), nn.Linear(4, words))
    tokens = torch.randint(0, words, (samples, LENGTH))
    return model, Samples(tokens, torch.where(torch.rand(tokens.shape) < 0.3, -100, tokens))


# How many samples.


@pytest.mark.parametrize("device", LARGEST)
def test_small_samples_are_evaluated_by_the_hundred_or_thousand(device):
    assert batch_for(0, device) == batch_for(2**20, device) == LARGEST[device]


@pytest.mark.parametrize("device", LARGEST)
def test_large_samples_are_as_many_as_fit(device):
    most = LARGEST[device] * 2**20
    for size in (2**20 + 1, 3 * 10**6, 10**7, 10**8):
        batch = batch_for(size, device)
        assert batch * size <= most < 2 * batch * size
    assert batch_for(10**12, device) == 1


def test_scores_of_many_words_make_batches_small(workers):
    """Scores and their softmax are alive at once: 2 x 16 x 30,000 x 4 bytes, of which 256 MiB hold 69 samples."""
    model, samples = language(words=30_000)
    evaluator = Evaluator(model, cross_entropy, samples, workers)
    assert evaluator.batch == 64
    each = 8 * LENGTH * 30_000
    assert 90 * each <= evaluator.peak_bytes <= 1.05 * 90 * each  # two threads have all of them at once


def test_batches_of_usual_models_stay_as_they_were(workers):
    convolutions = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 32 * 32, 10))
    images = Samples(torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.int64))
    assert Evaluator(convolutions, cross_entropy, images, workers).batch == 256


class Rescaled(nn.Linear):
    """A layer that makes new weights in each pass."""

    def forward(self, inputs):
        return functional.linear(inputs, 2.0 * self.weight, self.bias)


@pytest.mark.parametrize("count", [1, 3, 600])
def test_tensors_as_large_as_weights_count_once_for_each_thread(workers, count):
    width = 1500
    samples = Samples(torch.zeros(count, width), torch.zeros(count, dtype=torch.int64))
    evaluator = Evaluator(Rescaled(width, width), cross_entropy, samples, workers)
    weights, each = 4 * width**2, 2 * 4 * width  # scores and their softmax
    assert evaluator.batch == 256
    threads = 2 if count > 256 else 1
    assert threads * weights <= evaluator.peak_bytes <= threads * weights + 1.05 * min(count, 512) * each


def test_what_a_first_pass_leaves_behind_is_not_counted(workers):
    class Remembers(nn.Linear):
        table = None

        def forward(self, inputs):
            self.table = torch.ones(1000, 1000) if self.table is None else self.table
            return super().forward(inputs)

    samples = Samples(torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64))
    evaluator = Evaluator(Remembers(2, 3), cross_entropy, samples, workers)
    assert evaluator.batch == 256
    assert evaluator.peak_bytes < 1000


def test_samples_that_need_operations_of_their_own_are_judged_by_the_peaks(workers):
    class OneByOne(nn.Linear):
        def forward(self, inputs):
            return torch.stack([super(OneByOne, self).forward(one) for one in inputs])

    samples = Samples(torch.zeros(300, 2), torch.zeros(300, dtype=torch.int64))
    evaluator = Evaluator(OneByOne(2, 200_000), cross_entropy, samples, workers)
    assert evaluator.batch == 128  # scores, before and after they are stacked: 1.6 MB of each sample


def test_a_model_that_cannot_be_watched_is_judged_by_its_scores(workers):
    class Shy(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.inner = model

        def forward(self, tokens):
            if _get_current_dispatch_mode() is not None:
                raise RuntimeError("not now")
            return self.inner(tokens)

    model, samples = language(words=30_000, samples=40)
    seen, shy = (Evaluator(one, cross_entropy, samples, workers) for one in (model, Shy(model)))
    assert seen.batch == shy.batch == 64
    assert evaluated(seen, model) == evaluated(shy, model)


# What they say.


@pytest.mark.parametrize("limit", [1, 40_000_000, 2**30])
def test_means_are_those_of_the_whole_set_whatever_the_batch(limit, workers, monkeypatch):
    """Batches of one, of some with a smaller last one, and all at once, beside means taken directly."""
    monkeypatch.setattr(evaluate, "_BATCH_BYTES", {"cpu": limit})
    model, samples = language()
    each = Measure.of("metric", "each", lambda outputs, targets: outputs.abs().amax((1, 2)))
    pairs = Measure.of("metric", "pairs", lambda outputs, targets: (outputs.sum((1, 2)), targets[:, 0].abs().float()))
    whole = Measure.of("metric", "whole", lambda outputs, targets: outputs.mean())
    evaluator = Evaluator(model, cross_entropy, samples, workers, (each, pairs, whole))
    found = evaluated(evaluator, model)
    with torch.no_grad():
        outputs, labels = model(samples.inputs).double(), samples.targets
    counted = labels != -100
    direct = (
        functional.cross_entropy(outputs.flatten(0, 1), labels.flatten(), ignore_index=-100),
        (outputs.argmax(-1) == labels)[counted].double().mean(),
        outputs.abs().amax((1, 2)).mean(),
        outputs.sum() / labels[:, 0].abs().sum(),
        outputs.mean(),
    )
    assert evaluator.batch == {1: 1, 40_000_000: 64, 2**30: 256}[limit]
    assert found == pytest.approx([float(one) for one in direct], rel=1e-5, abs=1e-8)


def test_watching_a_model_draws_no_random_numbers_for_others(workers):
    class Noisy(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs) + torch.randn(1)

    model, samples = Noisy(2, 3), Samples(torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64))
    before = torch.random.get_rng_state()
    Evaluator(model, cross_entropy, samples, workers)
    assert torch.equal(torch.random.get_rng_state(), before)


# What tensors take.


def test_bytes_that_live_at_once_are_counted():
    weights = torch.ones(100, 100)
    with torch.no_grad(), LiveBytes() as live:
        first = torch.ones(10, 100)  # 4,000 bytes
        second = first @ weights.T  # 4,000 more; a transpose shares memory
        second += 1.0
        shown = second[2:].view(-1)
        del second  # its memory lives on in ``shown``
        third = torch.cat([shown, shown])  # 6,400
        del first, shown, third
        torch.ones(2000)  # 8,000, alone
    assert live.peak == 14_400


def test_the_count_is_the_same_in_every_run():
    model, samples = language()
    peaks = set()
    for _ in range(3):
        with torch.no_grad(), LiveBytes() as live:
            cross_entropy(model(samples.inputs), samples.targets)
        peaks.add(live.peak)
    assert len(peaks) == 1
