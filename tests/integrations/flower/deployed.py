"""Deployments of the app in ``app/`` on this machine, and what must be true of their results."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import numpy as np

from fewjoules.engine.algorithm.client import settled
from fewjoules.integrations.flower.deployment import Deployment
from fewjoules.integrations.flower.loopback import Loopback
from fewjoules.integrations.flower.memory import NodeMemory
from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER
from tests.integrations.flower.app.fewjoules_probe import task

APP = Path(__file__).with_name("app")
WORKER, CLIENT, SERVER = "fewjoules.integrations.flower.worker", "flwr-clientapp", "flwr-serverapp"
ENVIRONMENT = {
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
    "OMP_NUM_THREADS": "1",  # several processes share few cores
}


class Deployed:
    """A loopback deployment whose nodes hold the data of a task; ``told`` adds to the node config of each node."""

    def __init__(self, place: Path, what: str, told) -> None:
        self.place, self.task = place, what
        configs = [
            {"client-id": f"node-{i}", "device": i, "task": what, "state-dir": str(self.state_folder(i)), **own}
            for i, own in enumerate(told)
        ]
        self.clients = len(configs)
        self.fleet = Loopback(place / "fleet", configs, environment=ENVIRONMENT)

    def state_folder(self, node: int) -> Path:
        return self.place / f"state-{node}"

    def run(self, folder: Path, **config):
        """Start or take up a run in a folder."""
        told = {"folder": str(folder), "task": self.task, "clients": self.clients}
        return self.fleet.run(APP, told | {name.replace("_", "-"): value for name, value in config.items()})

    def journal(self, node: int):
        """What a node received and sent, in the order of its messages."""
        path = self.state_folder(node) / "journal"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def held(self, folder: Path, node: int):
        """What a node keeps of the run in a folder."""
        run = Deployment.load(folder).run
        return NodeMemory(self.state_folder(node), f"node-{node}", run).load()

    def kill(self, processes, what: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal those of these processes whose command lines have a word; return how many there were."""
        chosen = [process for process, line in processes.items() if what in line]
        for process in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        return len(chosen)


def wait_for(true, seconds: float, run=None) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        log = "" if run is None else run.log_text()[-3000:]
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain\n{log}"
        time.sleep(0.1)


def final(folder: Path):
    with np.load(folder / "final.npz") as saved:
        return dict(saved)


def ledger(folder: Path):
    return read_table(folder / "ledger.parquet", LEDGER)


def require_models(deployed: Deployed, folder: Path) -> int:
    """Check that the nodes of the last round began it with the server's model, bit by bit; return how many they are."""
    end, rows = final(folder), ledger(folder)
    last = int(rows["round"].max())
    nodes = rows[(rows["round"] == last) & rows["delivered"]]["device"].tolist()
    for node in nodes:
        held = deployed.held(folder, node)
        assert held.model_round == last - 1, f"client {node} holds the model of round {held.model_round}"
        before = end["weights"] + end["last_change"]  # exact: all changes of the counts are sums of powers of two
        np.testing.assert_array_equal(held.weights, before, err_msg=f"client {node} holds another model")
    return len(nodes)


def computed_rounds(deployed: Deployed, folder: Path, seed: int = 0) -> list[set[int]]:
    """Return the rounds that each client computed, after checking that each is counted exactly once.

    What the server accepted from a client and what the client still holds must be the sum of whole changes: the change
    of each round at most once, and of each accepted round exactly once. Changes are random integers with more entries
    than there are rounds, so that a sum tells which of them it consists of.
    """
    end, rows = final(folder), ledger(folder)
    shares = np.array(task.SAMPLES[: deployed.clients]) / sum(task.SAMPLES[: deployed.clients])
    sent = -end["weights"].reshape(task.CLIENTS, task.ENTRIES)
    rounds = int(rows["round"].max())
    found = []
    for client in range(deployed.clients):
        held = deployed.held(folder, client)
        total = sent[client] / shares[client]
        if held is not None:
            residual = settled(held.state, int(end["accepted"][client])).residual
            residual = residual.reshape(task.CLIENTS, task.ENTRIES)
            assert not np.delete(residual, client, axis=0).any()
            total = total + residual[client]
        changes = np.stack([task.change(seed, client, number).numpy() for number in range(1, rounds + 1)], axis=1)
        times = np.rint(np.linalg.lstsq(changes.astype(np.float64), total, rcond=None)[0]).astype(int)
        np.testing.assert_array_equal(changes @ times, total, err_msg=f"client {client}: not a sum of whole changes")
        assert set(times) <= {0, 1}, f"client {client}: times that each round counts: {times.tolist()}"
        accepted = rows[(rows["device"] == client) & rows["delivered"]]["round"]
        assert times[accepted - 1].all(), f"client {client}: an accepted round is missing: {times.tolist()}"
        found.append({int(number) + 1 for number in np.flatnonzero(times)})
    return found
