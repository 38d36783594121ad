"""Nodes whose changes are whole numbers, exact in float32: what they computed can be found again to the bit."""

import os
import shutil
from pathlib import Path

import numpy as np
from flwr.clientapp import ClientApp

from fewjoules.engine.algorithm.client import Steps, settled
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.streams import stream
from fewjoules.integrations.flower.backend import FlowerBackend, RoundRules
from fewjoules.integrations.flower.handler import answered_here, handle
from fewjoules.integrations.flower.identity import client_id
from fewjoules.integrations.flower.memory import NodeMemory
from fewjoules.integrations.flower.records import array_record
from fewjoules.integrations.flower.screening import Screening
from fewjoules.integrations.flower.strategy import FewJoulesStrategy
from tests.integrations.flower.grid import JumpingClock, Killed, LocalGrid

CLIENTS, SIZE, ROUNDS = 4, 12, 4  # a mean of four whole numbers is exact too
OPTIONS = {"local_steps": 2, "sparsity": np.full(CLIENTS, 4.0), "rounds": ROUNDS, "learning_rate": 0.1, "seed": 3}
NODE_STEPS = (
    "before training",
    "after training",
    "temporary file written",
    "temporary file synced",
    "before the rename",
    "after the rename",
    "after the save",
)


class ServerKilled(BaseException):
    """Stands for a kill -9 of the server."""


class CountedRun:
    """A deployment in this process: counts what its nodes computed and saved, and what its server accepted.

    ``killed_nodes`` are (client, round, step) and ``killed_server`` numbers of the server's disk operations, each a
    pair with "before" or "after"; each kill happens once. A kill leaves the folders as they are at that moment, with
    half-written files: what Python cleans up while the exception passes is put back.
    """

    def __init__(self, folder, monkeypatch, *, killed_nodes=(), killed_server=(), same_again=False, rules=None):
        self.folder, self.same_again = Path(folder), same_again
        self.server_folder = self.folder / "server"
        self.rules = rules or RoundRules(deadline_seconds=10.0)
        self.killed_nodes, self.killed_server = set(killed_nodes), set(killed_server)
        self.server_operations = 0
        self.saved = {client: [] for client in range(CLIENTS)}  # changes that reached a memory
        self.trainings = []  # (client, round) of each
        self.accepted = {}  # round -> client -> update
        self.started_elsewhere = []  # (client, round) of trainings from another model than the server's
        self._models = {}  # round -> the weights that it starts from
        self._at_node = None  # (client, round) while a node answers
        self._computed = None
        self.grid = LocalGrid(self.nodes())
        self._watch_disk(monkeypatch)
        self._watch_server(monkeypatch)

    def nodes(self, first=100):
        return {
            first + number: {
                "app": self._app(),
                "config": {"client-id": str(number), "state-dir": str(self._state(number))},
            }
            for number in range(CLIENTS)
        }

    def options(self, **given):
        return TrainingOptions.of(**OPTIONS | given)

    def strategy(self, **given):
        arguments = {"folder": self.server_folder, "rules": self.rules, "clock": JumpingClock().clock()}
        options = given.pop("options") if "options" in given else self.options()
        return FewJoulesStrategy(options, **arguments | given)

    def run(self, **given):
        """Start the server, again after each kill, until the run is over; return its last strategy."""
        while True:
            strategy = self.strategy(**given)
            try:
                strategy.start(self.grid, initial())
            except ServerKilled:
                self._put_back(self.server_folder)
                self.grid.forget_replies()
                continue
            return strategy

    def memory(self, client):
        paths = list(self._state(client).glob("*.memory"))
        assert len(paths) == 1
        name, _, run = paths[0].stem.partition("@")
        return NodeMemory(paths[0].parent, name, run).load()

    def left_over(self, client, state):
        """Return what a client holds back in the end, with its last upload if the server never accepted it."""
        return settled(self.memory(client).state, int(state.accepted[client])).residual

    def require_conserved(self, strategy):
        """Check for each client that what it computed was accepted or is held back, and that the weights agree."""
        state = strategy.loop.simulator.state
        assert state.round == ROUNDS
        assert self.started_elsewhere == []
        moved = np.zeros(SIZE)
        for client in range(CLIENTS):
            accepted = np.zeros(SIZE)
            for updates in self.accepted.values():
                if client in updates:
                    accepted += updates[client].to_dense()
            computed = np.sum(self.saved[client], axis=0)
            np.testing.assert_array_equal(self.left_over(client, state) + accepted, computed)
            moved += accepted
        unsent = state.residual.numpy() if state.residual.numel() else 0.0
        np.testing.assert_array_equal(state.weights.numpy() - unsent, start_weights() - moved / CLIENTS)

    def _state(self, client):
        return self.folder / f"node-{client}"

    def _app(self):
        app = ClientApp()

        @app.train()
        def train(message, context):
            if "model" not in message.content:
                return handle(message, context, answered_here(context, self._trainer), lambda: 1)
            client = int(client_id(context.node_config))
            number = message.content["fewjoules"]["model-round"] + 1
            self._at_node = client, number
            try:
                reply = handle(message, context, answered_here(context, self._trainer), lambda: 1)
                self._may_kill_node("after the save")
                return reply
            except Killed:
                self._put_back(self._state(client))
                raise
            finally:
                self._at_node = self._computed = None

        return app

    def _trainer(self, held, _request):
        if not np.array_equal(held.weights, self._models[self._at_node[1]]):
            self.started_elsewhere.append(self._at_node)
        return self._steps

    def _steps(self, state, order):
        self._may_kill_node("before training")
        client, number = self._at_node
        self.trainings.append((client, number))
        times = 0 if self.same_again else self.trainings.count((client, number))
        change = stream(11, "model", number, client, times).integers(-9, 10, SIZE).astype(np.float32)
        self._computed = change.copy()
        self._may_kill_node("after training")
        losses = np.ones(order.local_steps)
        return Steps(change, np.zeros(0, np.float32), state.velocity, state.squares, losses, losses)

    def _may_kill_node(self, step):
        kill = (*self._at_node, step)
        if kill in self.killed_nodes:
            self.killed_nodes.remove(kill)
            self._set_aside(self._state(kill[0]))
            raise Killed

    def _watch_disk(self, monkeypatch):
        rename, sync = os.replace, os.fsync

        def replace(source, target):
            if self._at_node is None:
                return self._on_server(lambda: rename(source, target))
            self._may_kill_node("before the rename")
            rename(source, target)
            assert str(target).endswith(".memory")
            self.saved[self._at_node[0]].append(self._computed)
            self._may_kill_node("after the rename")
            return None

        def fsync(descriptor):
            if self._at_node is None:
                return self._on_server(lambda: sync(descriptor))
            self._may_kill_node("temporary file written")
            sync(descriptor)
            self._may_kill_node("temporary file synced")
            return None

        monkeypatch.setattr(os, "replace", replace)
        monkeypatch.setattr(os, "fsync", fsync)

    def _on_server(self, operation):
        self.server_operations += 1
        self._may_kill_server("before")
        operation()
        self._may_kill_server("after")

    def _may_kill_server(self, when):
        kill = self.server_operations, when
        if kill in self.killed_server:
            self.killed_server.remove(kill)
            self._set_aside(self.server_folder)
            raise ServerKilled

    def _watch_server(self, monkeypatch):
        run, update = FlowerBackend.run, Screening.update

        def counted_run(backend, state, plan, meanwhile):
            self.accepted[plan.number] = {}
            self._models[plan.number] = state.weights.numpy().copy()
            return run(backend, state, plan, meanwhile)

        def counted_update(screening, reply, order, *rest):
            found = update(screening, reply, order, *rest)
            self.accepted[order.round][order.client] = found
            return found

        monkeypatch.setattr(FlowerBackend, "run", counted_run)
        monkeypatch.setattr(Screening, "update", counted_update)

    def _set_aside(self, folder):
        self._drop(self.folder / "at the kill")
        shutil.copytree(folder, self.folder / "at the kill")

    def _put_back(self, folder):
        self._drop(folder)
        (self.folder / "at the kill").rename(folder)

    @staticmethod
    def _drop(folder):
        if folder.exists():
            shutil.rmtree(folder)


def asks(message, client, number):
    """Whether a message asks a client for a round."""
    told = message.content["fewjoules"]
    return told.get("model-round") == number - 1 and message.metadata.dst_node_id == 100 + client


def weights_of(strategy):
    return strategy.loop.simulator.state.weights.numpy()


def start_weights():
    return np.arange(SIZE, dtype=np.float32)


def initial():
    return array_record({"layer": start_weights()})
