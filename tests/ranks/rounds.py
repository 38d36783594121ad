"""A few rounds of small federations as digests: alone, or as one of several ranks."""

import hashlib

import numpy as np
import torch
from torch import nn

import fewjoules as fj
from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.ranks import ALONE
from fewjoules.engine.simulator.federation import Samples
from fewjoules.engine.store.client_store import StorePlace
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.physics.fleet import Fleet
from tests.engine.simulators import simulator_of
from tests.reference.training import made_up_clients

SIZES, FEATURES, CLASSES = [9, 17, 30, 12, 21, 8, 26], 12, 5
CLIENTS = made_up_clients(SIZES, FEATURES, CLASSES, 3)
BASE = {"local_steps": 2, "sparsity": [1.0, 3.0, 7.0, 20.0, 60.0, 5.0, 9.0], "rounds": 5, "learning_rate": 0.1}
BASE |= {"batch_size": 6, "seed": 11, "evaluate_every": 2}
KEPT = {"inner": "adamw", "momentum_state": "kept", "participation": 0.6, "failure_probability": 0.3}
CASES = {
    "stacked": ({"weighting": "samples"}, 2),
    "one by one": ({"values": "int8"}, 1),
    "momentum kept, some clients": ({"inner": "momentum", "momentum_state": "kept", "participation": 0.6}, 2),
    "lost uploads, downlink": (
        {"failure_probability": 0.4, "participation": 0.6, "downlink_sparsity": 5.0, "downlink_values": "qsgd"},
        2,
    ),
    "buffers": ({"failure_probability": 0.3, "compressor": "qsgd", "averaging": 0.3}, 2),
    "one chunk": ({"outer": "adam", "outer_rate": 0.02}, 7),
    "the guard": ({"learning_rate": 3e3, "rounds": 13, "gradient_clip": 1e9}, 2),
    "dropout": ({"error_feedback": False}, 2),
    "nothing kept in memory": (KEPT, 2),
    "a row kept in memory": (KEPT | {"kept_values": "bfloat16"}, 2),
}


def network(name):
    torch.manual_seed(2)
    extra = {"buffers": [nn.BatchNorm1d(16)], "dropout": [nn.Dropout(0.3)]}.get(name, [])
    return nn.Sequential(nn.Linear(FEATURES, 16), *extra, nn.Tanh(), nn.Linear(16, CLASSES))


WEIGHTS = sum(one.numel() for one in network("").parameters())
ROW_BYTES = 3 * WEIGHTS * 2  # a residual and two moments in bfloat16
MEMORY_BYTES = {"nothing kept in memory": 0, "a row kept in memory": ROW_BYTES}  # of each of several ranks


def require_spilled(name, simulator):
    """See that the clients of this rank keep on disk what is more than its memory holds."""
    rows = simulator.backend.save().rows.values()
    assert sum(row.vectors is None for row in rows) == len(rows) - MEMORY_BYTES[name] // ROW_BYTES > 0


def trained(name, ranks=ALONE):
    """Train a case; return its simulator, its loop and why it ended."""
    given, chunk = CASES[name]
    fleet = Fleet(
        joules_per_bit=np.full(len(SIZES), 1e-6),
        joules_per_step=np.full(len(SIZES), 1e-3),
        downlink_joules_per_bit=np.full(len(SIZES), 1e-7),
    )
    how = {"chunk": chunk, "threads": 1, "fleet": fleet, "ranks": ranks}
    if spills := ranks.size > 1 and name in MEMORY_BYTES:
        how["place"] = StorePlace(MEMORY_BYTES[name])
    simulator = simulator_of(network(name), CLIENTS, BASE | given, **how)
    inputs, targets = (torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*CLIENTS[:4], strict=True))
    tests = Samples(inputs.repeat(8, 1), targets.repeat(8))
    evaluator = simulator.evaluator(network(name), cross_entropy, tests)
    loop = TrainingLoop(simulator, RowLog(None, LEDGER), RowLog(None, METRICS), evaluator=evaluator)
    try:
        reason = loop.run()
        if spills:
            require_spilled(name, simulator)
        return simulator, loop, reason
    finally:
        simulator.close()


def digests(name, ranks=ALONE):
    """Weights, buffers, tables and end of a case as text that differs if a bit does."""
    simulator, loop, reason = trained(name, ranks)
    state = simulator.state
    arrays = {"weights": state.weights.numpy(), "buffers": state.buffers.numpy(), "accepted": state.accepted}
    arrays |= {"mean of weights": state.result[0].numpy(), "mean of buffers": state.result[1].numpy()}
    arrays |= {"ledger": loop.ledger.rows(), "metrics": loop.metrics.rows()}
    told = {what: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() for what, array in arrays.items()}
    return told | {"reason": reason, "returns": list(state.returns), "accuracy": loop.last_test[1]}


def own_weights(seed):
    """Train a model whose weights, trained and frozen, are drawn in this process; return a digest of the result."""
    torch.manual_seed(seed)
    frozen = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.BatchNorm1d(FEATURES)).requires_grad_(False)
    model = nn.Sequential(frozen, nn.Linear(FEATURES, CLASSES))
    before = model[1].weight.detach().clone()
    run = fj.train(model, clients=CLIENTS, local_steps=2, sparsity=3.0, rounds=3, learning_rate=0.1)
    assert torch.equal(model[1].weight, before), "the caller's model is not changed"
    return hashlib.sha256(b"".join(one.numpy().tobytes() for one in run.model.state_dict().values())).hexdigest()
