"""The training device, as PyTorch spells it; GPUs are made up here."""

import pytest
import torch

from fewjoules.errors import InvalidInputError
from fewjoules.runs.device import choose_device, using


def with_gpus(monkeypatch, count):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize("given", ["cpu", "cpu:0", torch.device("cpu"), torch.device("cpu", 0)], ids=str)
def test_the_processor_has_one_name(given):
    assert str(choose_device(given)) == "cpu"


def test_auto_is_a_gpu_where_there_is_one(monkeypatch):
    with_gpus(monkeypatch, 0)
    assert choose_device("auto") == torch.device("cpu")
    with_gpus(monkeypatch, 1)
    assert choose_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("given", ["cuda", "cuda:0", "cuda:1", torch.device("cuda", 1)], ids=str)
def test_a_gpu_keeps_its_number(monkeypatch, given):
    with_gpus(monkeypatch, 2)
    assert str(choose_device(given)) == str(given)


@pytest.mark.parametrize(("count", "allowed"), [(1, "cuda:0, the only GPU"), (2, "from cuda:0 to cuda:1")])
def test_a_gpu_beyond_the_last_is_refused_with_those_that_exist(monkeypatch, count, allowed):
    with_gpus(monkeypatch, count)
    with pytest.raises(InvalidInputError, match=f"device must be {allowed}.*'cuda:2'"):
        choose_device("cuda:2")


@pytest.mark.parametrize("given", ["cuda", "cuda:0", torch.device("cuda", 0)], ids=str)
def test_a_gpu_is_refused_where_there_is_none(monkeypatch, given):
    with_gpus(monkeypatch, 0)
    with pytest.raises(InvalidInputError, match=f"device = '{given}' needs a GPU"):
        choose_device(given)


@pytest.mark.parametrize("given", ["mps", "xla:1", "cuda:-1", "cuda:one", "gpu", "", 0, None, torch.device("meta")])
def test_every_other_device_is_refused_and_quoted(given):
    got = str(given) if isinstance(given, torch.device) else given
    with pytest.raises(InvalidInputError, match="device must be auto, cpu, cuda or a GPU") as caught:
        choose_device(given)
    assert repr(got) in str(caught.value)


def test_the_device_in_use_is_that_of_the_training(monkeypatch):
    used = []
    monkeypatch.setattr(torch.cuda, "device", used.append)
    using(torch.device("cuda", 1))
    with using(torch.device("cpu")):
        pass
    assert used == [torch.device("cuda", 1)]
