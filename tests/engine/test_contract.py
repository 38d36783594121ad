"""The contract of all backends: what they deliver and what their clients keep are those of the pure functions.

Every backend runs the same rounds from the same server states. The GPU's own code is also run here on the processor,
with its kernels and graphs replaced by their twins; on a real GPU the same cases are marked ``gpu``.
"""

import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fewjoules.codec.select import top_k_with_feedback
from fewjoules.engine.algorithm.client import settled
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import ClientOrder, RoundResult, Uploads
from fewjoules.engine.algorithm.server import mean_buffers, server_step
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.cuda import backend as cuda_backend
from fewjoules.engine.simulator.cuda import graph as cuda_graph
from fewjoules.engine.simulator.cuda import messages as cuda_messages
from fewjoules.engine.simulator.cuda import row_sizes as cuda_row_sizes
from fewjoules.engine.simulator.failures import delivered_uploads
from fewjoules.engine.simulator.federation import Federation
from fewjoules.engine.simulator.read_samples import ReadSamples
from fewjoules.engine.store.client_store import StorePlace
from fewjoules.integrations.flower.backend import FlowerBackend, RoundRules
from fewjoules.integrations.flower.client import client_app
from fewjoules.integrations.flower.memory import NodeMemory
from fewjoules.integrations.flower.roster import Roster
from fewjoules.physics.fleet import Fleet
from fewjoules.runs.readers import ArrayReader
from tests.engine.contract import PlainBackend
from tests.engine.kinds import KINDS
from tests.engine.simulators import federation_of, simulator_of
from tests.integrations.flower.grid import JumpingClock, LocalGrid
from tests.reference.training import made_up_clients

SIZES, FEATURES, CLASSES, ROUNDS = [9, 17, 30, 12, 21], 12, 5, 4
CLIENTS = made_up_clients(SIZES, FEATURES, CLASSES, 3)
BASE = {"local_steps": 2, "sparsity": [1.0, 3.0, 7.0, 20.0, 60.0], "rounds": ROUNDS, "learning_rate": 0.1}
BASE |= {"batch_size": 6, "seed": 11}
CASES = {
    "plain": {},
    "one local step": {"local_steps": 1},
    "growing batches": {"batch_growth": 1.2},
    "all data": {"batch_size": None},
    "lost uploads": {"failure_probability": 0.4, "failures": {2: {0}}},
    "sampling": {"participation": 0.6},
    "sampling and lost uploads": {"participation": 0.6, "failure_probability": 0.4, "weighting": "samples"},
    "sampling by energy": {"participation": 0.6, "sampling": "energy", "failure_probability": 0.2},
    "no feedback": {"error_feedback": False, "failure_probability": 0.4},
    "decaying residuals": {"residual_decay": 0.8, "failure_probability": 0.4},
    "momentum reset": {"inner": "momentum", "momentum": 0.7},
    "momentum kept": {"inner": "momentum", "momentum_state": "kept", "participation": 0.6},
    "momentum cleared": {"inner": "momentum", "momentum_state": "cleared", "failure_probability": 0.4},
    "adamw": {"inner": "adamw", "learning_rate": 0.02, "weight_decay": 0.1, "participation": 0.6},
    "adamw reset": {"inner": "adamw", "momentum_state": "reset", "learning_rate": 0.02},
    "weight decay": {"weight_decay": 0.1},
    "clipped": {"gradient_clip": 0.3, "inner": "momentum"},
    "outer momentum": {"outer": "momentum", "outer_rate": 0.5},
    "outer nesterov": {"outer": "nesterov", "outer_rate": 0.7},
    "outer adam": {"outer": "adam", "outer_rate": 0.02},
    "warm-up and cosine": {"warmup_rounds": 3, "schedule": "cosine"},
    **{f"compressor {name}": {"compressor": name, "failure_probability": 0.4} for name in COMPRESSORS},
    **{
        f"values {kind}": {"values": kind, "failure_probability": 0.4, "participation": 0.6}
        for kind in ("float16", "bfloat16", "int8", "qsgd", "two-bit")
    },
    "random entries of few values": {"compressor": "random-k", "values": "qsgd"},
    "downlink of few entries": {"downlink_sparsity": 9.0, "participation": 0.6},
    "downlink of signs": {"downlink_sparsity": 9.0, "downlink_values": "ternary", "failure_probability": 0.3},
    "downlink rounded at random": {"downlink_values": "qsgd", "downlink_sparsity": 30.0, "participation": 0.4},
    "everything": {
        "participation": 0.6,
        "failure_probability": 0.3,
        "batch_growth": 1.1,
        "inner": "momentum",
        "momentum_state": "cleared",
        "residual_decay": 0.9,
        "outer": "nesterov",
        "outer_rate": 0.7,
        "values": "int8",
        "gradient_clip": 1.0,
        "weight_decay": 0.01,
        "schedule": "step",
        "decay_rounds": (2,),
        "weighting": "samples",
        "downlink_sparsity": 5.0,
        "downlink_values": "int8",
    },
}


def network(norm=False):
    layers = [nn.Linear(FEATURES, 16), *([nn.BatchNorm1d(16)] if norm else []), nn.Tanh(), nn.Linear(16, CLASSES)]
    module = nn.Sequential(*layers)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.4, generator=generator)
    return module


class Here:
    """An event of a GPU that has always happened."""

    def synchronize(self):
        pass

    def record(self):
        pass


class Replayed:
    """A recorded graph that is run again instead."""

    def __init__(self, steps):
        self.replay = steps


def select_rows(updates, residuals, counts, left, sent):
    rows = zip(updates.numpy(), residuals.numpy(), counts, left.numpy(), strict=True)
    chosen = [top_k_with_feedback(update, residual, k, out=rest)[0] for update, residual, k, rest in rows]
    positions, values = (np.concatenate([getattr(one, name) for one in chosen]) for name in ("positions", "values"))
    sent.copy_(torch.from_numpy(np.stack([one.to_dense() for one in chosen])))
    return torch.from_numpy(positions), torch.from_numpy(values), torch.zeros(len(counts))


@pytest.fixture
def without_gpu(monkeypatch):
    """The GPU's backend on the processor: twins stand in for selection kernels, graphs and events."""
    twins = types.ModuleType("fewjoules.engine.simulator.cuda.topk")
    twins.select_rows, twins.rows_with_nan, twins.forget_selections = select_rows, lambda _: [], lambda: None
    monkeypatch.setitem(sys.modules, "fewjoules.engine.simulator.cuda.topk", twins)
    for module in (cuda_backend, cuda_messages, cuda_row_sizes):
        monkeypatch.setattr(module, "to_host", lambda *tensors: ([tensor.clone() for tensor in tensors], Here()))
    monkeypatch.setattr(cuda_graph, "pinned_zeros", torch.zeros_like)
    monkeypatch.setattr(torch.cuda, "Event", Here)
    monkeypatch.setattr(cuda_graph.RecordedSteps, "_recorded", lambda self: Replayed(self._all_steps))


def on_processor(module, options, chunk, clients=CLIENTS):
    return simulator_of(module, clients, options, chunk=chunk, threads=2, fleet=fleet_for(options))


def fleet_for(options):
    """Devices of very different costs, where these decide who takes part."""
    return Fleet(joules_per_bit=np.geomspace(1e-4, 1.0, 5), joules_per_step=1e-3) if "sampling" in options else None


def on_gpu_stood_in(module, options, chunk, clients=CLIENTS):
    simulator = on_processor(module, options, chunk, clients)
    simulator.backend = cuda_backend.CudaBackend(
        module, cross_entropy, simulator.federation, simulator.options, simulator.execution, compiled=False
    )
    return simulator


def on_gpu(module, options, chunk, clients=CLIENTS):
    return simulator_of(module, clients, options, device="cuda", chunk=chunk, compiled=False, fleet=fleet_for(options))


class InProcessFlower(FlowerBackend):
    """Flower nodes in this process, whose memories can be read; replies are lost as a simulated network loses them."""

    folder, known = None, {}  # set for each test: the nodes' state outlives a server

    def __init__(self, module, clients):
        nodes = {}
        for number, data in enumerate(clients):
            app = client_app(module, lambda _context, data=data: data)
            nodes[100 + number] = {"app": app, "config": {"client-id": str(number), "state-dir": str(self.folder)}}
        clock, rules = JumpingClock().clock(), RoundRules(deadline_seconds=5.0, min_replies=0)
        names = [str(number) for number in range(len(CLIENTS))]
        super().__init__(LocalGrid(nodes), Roster(clock=clock), names, "contract", [], rules=rules, clock=clock)

    def run(self, state, plan, meanwhile):
        self.started_from = state.weights.numpy().copy()
        gone = set(plan.participants[~delivered_uploads(plan)].tolist())

        def lost(message, reply):
            return "model" in message.content and int(reply.content["fewjoules"]["client-id"]) in gone

        self.grid.lost = lost
        for client, accepted in zip(plan.participants.tolist(), plan.accepted.tolist(), strict=True):
            self.known[client] = accepted if client in gone else plan.number
        return super().run(state, plan, meanwhile)

    def held(self, client):
        """What a node has on its disk."""
        return NodeMemory(self.folder, str(client), "contract").load()

    def client_state(self, client):
        held = self.held(client)
        return None if held is None else settled(held.state, self.known[client])


@pytest.fixture(autouse=True)
def flower_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(InProcessFlower, "folder", tmp_path)
    monkeypatch.setattr(InProcessFlower, "known", {})


def on_flower(module, options, chunk, clients=CLIENTS):
    simulator = on_processor(module, options, chunk, clients)
    simulator.backend = InProcessFlower(module, clients)
    size = simulator.state.weights.numel()
    simulator.state = replace(simulator.state, changed=torch.zeros(size, dtype=torch.int32))
    return simulator


BACKENDS = [
    pytest.param(on_flower, 1, id="Flower"),
    pytest.param(on_processor, 1, id="processor, one by one"),
    pytest.param(on_processor, 2, id="processor, two at a time"),
    pytest.param(on_gpu_stood_in, 5, id="GPU stood in for"),
    pytest.param(on_gpu_stood_in, 2, id="GPU stood in for, two at a time"),
    pytest.param(on_gpu, 5, id="GPU", marks=pytest.mark.gpu),
    pytest.param(on_gpu, 2, id="GPU, two at a time", marks=pytest.mark.gpu),
]


def rounds_of(start, chunk, given, norm=False, before_round=lambda simulator: None, rounds=ROUNDS, kind=None):
    """Plan, expected and found result, and both backends, after each round; the server goes on by the expected one."""
    module, options = network(norm) if kind is None else kind.network(), BASE | {"rounds": rounds} | given
    simulator = start(module, options, chunk, CLIENTS if kind is None else kind.clients)
    own = () if kind is None else (kind.loss,)
    plain = PlainBackend(module, CLIENTS if kind is None else kind.clients, simulator.options, *own)
    device = simulator.state.weights.device
    state = simulator.state
    try:
        for number in range(1, rounds + 1):
            before_round(simulator)
            plan = simulator._plan(number)
            here = to_device(state, torch.device("cpu"))
            expected = plain.run(here, plan, lambda: None)
            found = simulator.backend.run(to_device(state, device), plan, lambda: None)
            yield plan, expected, found, plain, simulator.backend
            state = server_step(here, plan, expected)
            simulator.state = to_device(state, device)
    finally:
        simulator.close()


def to_device(state, device):
    names = ("weights", "buffers", "broadcast", "residual", "changed")
    moved = {name: getattr(state, name).to(device) for name in names}
    return replace(state, **moved, outer={name: tensor.to(device) for name, tensor in state.outer.items()})


def close(found, expected, tolerance=2e-6):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5, atol=tolerance)


def same_state(found, expected):
    assert (found is None) == (expected is None)
    if found is None:
        return
    for name in ("residual", "velocity", "squares"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None), name
        if one is not None:
            close(one, other)
    assert found.steps == expected.steps
    assert found.last_upload is None


@pytest.mark.parametrize("given", CASES.values(), ids=CASES)
@pytest.mark.parametrize(("start", "chunk"), BACKENDS)
def test_a_backend_does_what_the_pure_functions_do(without_gpu_if_stood_in, start, chunk, given):
    for plan, expected, found, plain, backend in rounds_of(start, chunk, given):
        close(found.mean_update.cpu(), expected.mean_update)
        np.testing.assert_array_equal(found.delivered, expected.delivered)
        sent, wanted = found.uploads(), expected.uploads()
        told = found.delivered if start is on_flower else np.ones_like(found.delivered)  # a lost message tells nothing
        np.testing.assert_array_equal(sent.entries[told], wanted.entries[told])
        np.testing.assert_allclose(sent.payload_bytes[told], wanted.payload_bytes[told], atol=4)
        np.testing.assert_array_equal(sent.written, found.delivered & (start is on_flower))
        close(sent.losses[:, told], wanted.losses[:, told], 1e-5)
        assert not sent.entries[~told].any()
        assert np.isnan(sent.losses[:, ~told]).all()
        for client in range(len(SIZES)):
            same_state(backend.client_state(client), plain.client_state(client))
        assert plan.participants.size == sent.entries.size


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("start", "chunk"), BACKENDS)
def test_tokens_adapters_and_dicts_are_trained_as_a_literal_loop_trains_them(
    without_gpu_if_stood_in, start, chunk, kind
):
    given = {"inner": "momentum", "momentum_state": "kept", "participation": 0.6, "rounds": 3}
    for _, expected, found, plain, backend in rounds_of(start, chunk, given, rounds=3, kind=kind):
        close(found.mean_update.cpu(), expected.mean_update)
        assert found.mean_update.numel() == sum(p.numel() for p in kind.network().parameters() if p.requires_grad)
        close(found.uploads().losses, expected.uploads().losses, 1e-5)
        for client in range(len(SIZES)):
            same_state(backend.client_state(client), plain.client_state(client))


DOWNLINKS = {name: given for name, given in CASES.items() if "downlink_sparsity" in given} | {"exact": {}}


@pytest.mark.parametrize("start", [on_processor, on_gpu_stood_in])
def test_samples_that_are_read_train_as_those_in_memory(without_gpu, monkeypatch, start):
    def weights():
        simulator = start(network(), BASE | {"participation": 0.6, "batch_growth": 1.2}, 2)
        for _ in range(ROUNDS):
            simulator.start_round()()
        simulator.close()
        return simulator.state.weights

    in_memory = weights()
    readers = [ArrayReader(*data, f"clients[{number}]") for number, data in enumerate(CLIENTS)]
    read = Federation(ReadSamples(readers, torch.device("cpu")), federation_of(CLIENTS).parts)
    monkeypatch.setattr("tests.engine.simulators.federation_of", lambda clients, device: read)
    close(weights(), in_memory)


@pytest.mark.parametrize("given", DOWNLINKS.values(), ids=DOWNLINKS)
def test_nodes_that_were_away_train_from_the_servers_weights_to_the_bit(given):
    """Few entries change in a round, so that a node that comes back gets those instead of the whole model.

    Where a reply is lost, the server takes the node's model to be older than it is.
    """
    few = {"sparsity": [60.0] * len(SIZES), "participation": 0.4, "failure_probability": 0.3}
    taken, forms = 0, set()
    for plan, _, found, _, backend in rounds_of(on_flower, 1, given | few, rounds=8):
        weights = backend.started_from.view(np.uint32)
        for client in plan.participants.tolist():
            held = backend.held(client)
            assert held.model_round == plan.number - 1
            np.testing.assert_array_equal(held.weights.view(np.uint32), weights)
            taken += 1
        sent = [message.content["fewjoules"] for message in backend.grid.sent if "model" in message.content]
        assert len(sent) == taken, "no node had to ask for the whole model"
        forms |= {(told["base"] >= 0, told["assigns"]) for told in sent}
        told = [message.content["model"] for message in backend.grid.sent if "model" in message.content]
        lengths = [sum(len(record[name]) for name in ("weights", "buffers")) for record in told]
        assert sum(found.received.payload_bytes) == sum(lengths[-plan.participants.size :])
    assert forms == {(False, True), (True, True), (True, False)}


@pytest.mark.parametrize(("start", "chunk"), BACKENDS)
def test_buffers_are_averaged_over_what_arrived(without_gpu_if_stood_in, start, chunk):
    given = {"failure_probability": 0.4, "weighting": "samples"}
    for _, expected, found, _, _ in rounds_of(start, chunk, given, norm=True):
        close(found.buffers.cpu(), expected.buffers, 1e-5)
        told = found.delivered if start is on_flower else slice(None)
        np.testing.assert_allclose(found.uploads().payload_bytes[told], expected.uploads().payload_bytes[told], atol=4)


@pytest.mark.parametrize("given", [CASES["everything"], CASES["adamw"]], ids=["everything", "adamw"])
@pytest.mark.parametrize(("start", "chunk"), BACKENDS)
def test_saving_and_restoring_changes_nothing(without_gpu_if_stood_in, start, chunk, given):
    def forget_and_restore(simulator):
        saved = simulator.backend.save()
        restored = start(network(), BASE | given, chunk)
        restored.backend.restore(saved)
        simulator.backend = restored.backend
        restored.workers.close()
        simulator.backend._workers = simulator.workers

    for _, expected, found, plain, backend in rounds_of(start, chunk, given, before_round=forget_and_restore):
        close(found.mean_update.cpu(), expected.mean_update)
        for client in range(len(SIZES)):
            same_state(backend.client_state(client), plain.client_state(client))


HERE = [one for one in BACKENDS if one.values[0] is not on_flower]


@pytest.mark.parametrize("given", [CASES["everything"], CASES["adamw"]], ids=["everything", "adamw"])
@pytest.mark.parametrize(("start", "chunk"), HERE)
def test_what_does_not_fit_into_memory_is_the_same_on_disk(without_gpu_if_stood_in, start, chunk, given):
    """No row stays in memory, and a GPU has room for two."""

    def leave_no_room(simulator):
        simulator.backend.store.place = StorePlace(memory_bytes=0)
        if hasattr(simulator.backend, "_kept"):
            simulator.backend._kept._most = 2

    for _, expected, found, plain, backend in rounds_of(start, chunk, given, before_round=leave_no_room):
        close(found.mean_update.cpu(), expected.mean_update)
        for client in range(len(SIZES)):
            same_state(backend.client_state(client), plain.client_state(client))
        assert backend.store.resident == 0


@pytest.mark.parametrize("given", [CASES["everything"], CASES["adamw"]], ids=["everything", "adamw"])
@pytest.mark.parametrize(("start", "chunk"), HERE)
def test_what_is_kept_in_bfloat16_is_rounded_after_every_round(without_gpu_if_stood_in, start, chunk, given):
    """Where backends differ in the last bit of a float32, they may differ in the last bit of a bfloat16."""
    for _, expected, found, plain, backend in rounds_of(start, chunk, given | {"kept_values": "bfloat16"}, rounds=2):
        close(found.mean_update.cpu(), expected.mean_update, 1e-3)
        for client in range(len(SIZES)):
            kept, wanted = backend.client_state(client), plain.client_state(client)
            assert (kept is None) == (wanted is None)
            for name in ("residual", "velocity", "squares") if kept is not None else ():
                if getattr(wanted, name) is not None:
                    one, other = getattr(kept, name), getattr(wanted, name)
                    assert not np.any(np.ascontiguousarray(one).view(np.uint32) & 0xFFFF)
                    np.testing.assert_allclose(one, other, rtol=2.0**-7, atol=1e-4)


@pytest.mark.parametrize(("start", "chunk"), BACKENDS)
def test_nothing_is_kept_for_clients_that_never_took_part(without_gpu_if_stood_in, start, chunk):
    seen = set()
    for plan, _, _, _, backend in rounds_of(start, chunk, {"participation": 0.2}):
        seen |= set(plan.participants.tolist())
        assert {client for client in range(len(SIZES)) if backend.client_state(client) is not None} == seen
        kept = backend.save().tensors()["numbers"].shape[0]
        assert kept == (0 if start is on_flower else len(seen))
    assert len(seen) < len(SIZES)


def run_in_parts(backend, state, plan, chunk):
    """A round as several processes run it: its chunks one after the other, each adding to the sums of those before."""
    parts = [backend.run_part(state, plan, part) for part in plan.parts(chunk)]
    sums = torch.zeros(state.weights.numel(), dtype=backend.sums_type)
    for part in parts:
        for first in range(0, sums.numel(), 100):
            part.add_to(sums[first : first + 100], first)
    delivered = delivered_uploads(plan)
    stacked = torch.cat([part.buffers for part in parts])
    uploads = Uploads.joined([part.uploads() for part in parts])
    buffers = mean_buffers(stacked, state.buffers, delivered, plan.shares)
    return RoundResult(sums.float(), buffers, delivered, lambda: uploads)


@pytest.mark.parametrize(
    "name",
    ["sampling and lost uploads", "sampling by energy", "growing batches", "momentum cleared", "compressor qsgd"],
)
@pytest.mark.parametrize(
    ("start", "chunk"), [(on_processor, 1), (on_processor, 2), (on_gpu_stood_in, 2)], ids=["one by one", "two", "GPU"]
)
def test_parts_of_a_round_add_up_to_the_round_to_the_bit(without_gpu_if_stood_in, start, chunk, name):
    whole, split = (start(network(norm=True), BASE | CASES[name], chunk) for _ in range(2))
    try:
        for number in range(1, ROUNDS + 1):
            state, plan = whole.state, whole._plan(number)
            expected = whole.backend.run(state, plan, lambda: None)
            found = run_in_parts(split.backend, state, plan, chunk)
            assert torch.equal(found.mean_update.view(torch.int32), expected.mean_update.view(torch.int32))
            assert torch.equal(found.buffers, expected.buffers)
            sent, wanted = found.uploads(), expected.uploads()
            for column in ("entries", "payload_bytes", "written", "losses", "correct"):
                np.testing.assert_array_equal(getattr(sent, column), getattr(wanted, column))
            whole.state = server_step(state, plan, expected)
        kept, wanted = (one.backend.save().tensors() for one in (split, whole))
        assert all(torch.equal(kept[one], wanted[one]) for one in wanted)
    finally:
        whole.close()
        split.close()


@pytest.fixture
def without_gpu_if_stood_in(request):
    if request.getfixturevalue("start") is on_gpu_stood_in:
        request.getfixturevalue("without_gpu")


def test_orders_are_plain_data_that_fit_a_message():
    import json

    simulator = on_processor(network(), BASE | CASES["everything"], 1)
    try:
        order = simulator._plan(3).order(0)
    finally:
        simulator.close()
    assert ClientOrder.from_dict(json.loads(json.dumps(order.to_dict()))) == order


def test_federations_of_the_contract_have_clients_of_different_sizes():
    assert federation_of(CLIENTS).sizes.tolist() == SIZES
    assert TrainingOptions.of(**BASE | {"sparsity": np.array(BASE["sparsity"])}).clients == len(SIZES)
