"""FewJoules's simulator in the loop of ``fewjoules train``, with messages, ledger and metrics; nothing is left out."""

import time
from unittest import mock

import numpy as np
import torch

from fewjoules.engine.algorithm.compressors.base import RowMessages
from fewjoules.engine.algorithm.options import MAX_ROUNDS, TrainingOptions
from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.physics.fleet import Fleet
from rivals.task import BATCH, CLIENT_SAMPLES, LEARNING_RATE, LOCAL_STEPS, Record, Serve, Task, new_model, samples


def compete(task: Task, serve: Serve) -> None:
    simulator = new_simulator(task)

    def answer(request: Record) -> Record:
        set_delta(simulator, request["delta"])
        run = train if request["kind"] == "rounds" else train_locally
        start = time.perf_counter()
        last = run(simulator, request["rounds"])
        return {"seconds": time.perf_counter() - start, "execution": simulator.execution.name} | last

    serve(answer)
    simulator.close()


def new_simulator(task: Task) -> Simulator:
    options = TrainingOptions(
        local_steps=LOCAL_STEPS,
        sparsity=np.full(task.clients, 1000.0),
        rounds=MAX_ROUNDS,
        learning_rate=LEARNING_RATE,
        batch_size=BATCH,
        precision=task.precision,
        seed=task.seed,
    )
    fleet = Fleet(
        joules_per_bit=np.full(task.clients, 1e-7),
        joules_per_step=0.05,
        seconds_per_bit=1e-6,
        seconds_per_step=0.01,
    )
    parts = np.split(np.arange(task.clients * CLIENT_SAMPLES), task.clients)
    federation = Federation(Samples(*samples(task)), parts)
    return Simulator(new_model(task), federation, options, loss=cross_entropy, fleet=fleet)


def set_delta(simulator: Simulator, delta: float) -> None:
    """Another sparsity without compiling again: only the number of kept entries depends on it."""
    size = simulator.state.weights.numel()
    simulator._kept = np.full(simulator.options.clients, max(1, round(size / delta)))
    simulator._ahead = None


def train(simulator: Simulator, rounds: int) -> Record:
    """Rounds as a user runs them; at the end every message is counted and every ledger row is there."""
    last = simulator.state.round + rounds
    ledger = RowLog(None, LEDGER)
    loop = TrainingLoop(simulator, ledger, RowLog(None, METRICS), should_stop=lambda: simulator.state.round >= last)
    loop.run()
    wait(simulator)
    rows = ledger.rows()
    if rows.size != rounds * simulator.options.clients or not np.all(rows["uplink_joules"] > 0.0):
        raise RuntimeError(f"the ledger must have a row with joules for each client and round, got {rows.size} rows")
    return {"payload_bytes": float(rows["payload_bytes"].mean())}


def train_locally(simulator: Simulator, rounds: int) -> Record:
    """Rounds on a GPU with compression and ledger switched off: what these come on top of."""
    backend = simulator.backend
    with mock.patch.object(backend, "_send", send_nothing), mock.patch.object(backend, "_count", count_nothing):
        for _ in range(rounds):
            simulator.start_round()
        wait(simulator)
    return {}


def send_nothing(*_: object) -> RowMessages:
    return RowMessages(np.zeros(0, dtype=np.int64), lambda span: span)


def count_nothing(*_: object) -> list[object]:
    return []


def wait(simulator: Simulator) -> None:
    if simulator.state.weights.is_cuda:
        torch.cuda.synchronize()
