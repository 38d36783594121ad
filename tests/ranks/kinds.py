"""Trainings of samples without targets and of adapters on frozen weights: alone, or as one of several ranks."""

import hashlib
import importlib.util

import torch
from torch.nn import functional

import fewjoules as fj
from tests.engine.kinds import Words, clients_of, words_of

OPTIONS = {"local_steps": 2, "sparsity": 3.0, "rounds": 3, "learning_rate": 0.05, "batch_size": 4}
OPTIONS |= {"inner": "momentum", "momentum_state": "kept", "participation": 0.8, "clients_at_a_time": 2}
CLIENTS = [{"tokens": tokens, "labels": labels} for tokens, labels in clients_of(words_of)]


class Judging(Words):
    """Gives its loss with its scores, as models of Hugging Face do."""

    def forward(self, tokens, labels):
        scores = super().forward(tokens)
        return {"scores": scores, "loss": functional.cross_entropy(scores.flatten(0, 1), labels.flatten())}


def own_loss(model, batch):
    return model(**batch)["loss"]


def of_samples(client):
    """A data set of dicts, which is read sample by sample."""
    return [{name: array[place] for name, array in client.items()} for place in range(len(client["tokens"]))]


def plain():
    torch.manual_seed(4)
    return Judging()


def adapted():
    import peft

    return peft.get_peft_model(plain(), peft.LoraConfig(r=2, target_modules=["mixing"], lora_dropout=0.2))


KINDS = {
    "inputs alone": (plain, [(client, None) for client in CLIENTS]),
    "data sets of dicts": (plain, [of_samples(client) for client in CLIENTS]),
}
if importlib.util.find_spec("peft"):
    KINDS["adapters of peft"] = (adapted, [(client, None) for client in CLIENTS])


def digest_of(name):
    """Train a kind; return the execution and a digest of weights, ledger and metrics."""
    model, clients = KINDS[name]
    read_late = {"data_memory_gib": 0} if name == "data sets of dicts" else {}
    run = fj.train(model(), clients=clients, test=clients[0], loss=own_loss, **OPTIONS, **read_late)
    arrays = [*(one.numpy() for one in run.model.state_dict().values()), run.ledger, run.metrics]
    return [run.execution, hashlib.sha256(b"".join(one.tobytes() for one in arrays)).hexdigest()]
