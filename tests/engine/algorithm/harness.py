"""Small federations on which the engine is held to the float64 references, and how to look into its clients."""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from torch import nn

import fewjoules as fj
from fewjoules.engine.algorithm.sampling import draw_batches
from fewjoules.engine.algorithm.streams import stream_key
from tests.engine.simulators import simulator_of
from tests.reference import optimisers, training

TOLERANCE = 5e-6
SMALLEST_ROOT = 1e-3  # below it AdamW turns the noise of float32 gradients into steps
FEATURES, CLASSES = 2, 3


@dataclass(frozen=True)
class Task:
    """A model with its start, the clients' data, and the options of a run; ``sparsity`` has one entry a client."""

    model: object
    clients: list
    module: nn.Module
    options: dict

    @property
    def start(self):
        return training.flat(self.module)

    @property
    def sizes(self):
        return [float(len(targets)) for _, targets in self.clients]

    def but(self, **changes):
        """The same task with other options."""
        return replace(self, options=self.options | changes)

    def train(self, **how):
        return fj.train(self.module, clients=self.clients, device="cpu", **self.options, **how)

    def simulator(self, **how):
        """The engine's simulator with one thread; ``how`` may have a chunk."""
        return simulator_of(self.module, self.clients, self.options, threads=1, **how)

    def setting(self, ledger=None):
        """The reference's setting; who took part and whose upload was lost is read off the ledger."""
        taken = {name: value for name, value in self.options.items() if name in SETTING}
        weigh = self.options.get("weighting") == "samples"
        return optimisers.Setting(
            **taken, importance=self.sizes if weigh else None, **({} if ledger is None else attendance(ledger))
        )

    def trace(self, ledger=None):
        """The reference's run."""
        return optimisers.run(self.model, self.clients, self.start, self.setting(ledger), self.draw)

    def safe_trace(self, ledger=None):
        """The reference's run, if float32 can be expected to follow it."""
        trace = self.trace(ledger)
        assume(trace.smallest_gap > 2 * TOLERANCE)
        assume(trace.smallest_root > SMALLEST_ROOT)
        return trace

    def draw(self, t, m, b):
        """The engine's own sample numbers, asked for one client and one step at a time."""
        key = stream_key(self.options["seed"], "batches")
        numbers, _ = draw_batches(key, np.array([m]), np.array([len(self.clients[m][1])]), t, np.array([[b]]))
        return numbers[0, 0]


SETTING = set(optimisers.Setting.__dataclass_fields__)

models = st.sampled_from(
    [training.SoftmaxRegression(FEATURES, CLASSES), training.TwoLayers(FEATURES, hidden=3, classes=CLASSES)]
)


def make_task(model, sizes, data_seed, **options):
    """A task whose data and start depend on ``data_seed`` alone."""
    clients = training.made_up_clients(sizes, model.features, model.classes, data_seed)
    return Task(model, clients, training.seeded_module(model, data_seed), options)


def attendance(ledger):
    """Participants of each round and lost uploads by round, from the ledger's rows."""
    of_round = {number: ledger[ledger["round"] == number] for number in np.unique(ledger["round"])}
    return {
        "participants": [rows["device"].tolist() for rows in of_round.values()],
        "lost": {int(number): set(rows["device"][~rows["delivered"]].tolist()) for number, rows in of_round.items()},
    }


def rounds_of(simulator):
    """The number and the ledger's rows of each round, after it; the simulator is closed at the end."""
    try:
        for number in range(1, simulator.options.rounds + 1):
            yield number, simulator.start_round()().rows
    finally:
        simulator.close()


def weights_of(simulator):
    """The global weights as a float64 vector."""
    return simulator.state.weights.double().numpy().copy()


def client_state(simulator, client):
    """What a client that took part keeps: ``residual``, ``velocity``, ``squares`` and ``steps`` as arrays.

    What it does not keep is zero.
    """
    state = simulator.backend.client_state(client)
    nothing = np.zeros(simulator.state.weights.numel(), dtype=np.float32)
    kept = {name: getattr(state, name) for name in ("residual", "velocity", "squares")}
    arrays = {name: nothing if array is None else np.array(array) for name, array in kept.items()}
    return arrays | {"steps": np.array(state.steps)}


def close(engine, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(np.asarray(engine, dtype=np.float64), expected, rtol=0, atol=tolerance)
