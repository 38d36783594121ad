"""Models that vmap cannot run, trained client by client, beside the loop that everyone writes in PyTorch.

Both train the same clients in turns on one thread: H local steps of SGD each, top-k with error feedback, and the mean.
Printed is how many times the rounds of FewJoules an hour of the processor holds over those of the loop, the median of
several turns.

    python benchmarks/any_model.py [--turns 5]
"""

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.runs.client_data import gather

CLIENTS, SAMPLES, TOKENS, WORDS, BATCH, STEPS, SPARSITY, RATE = 8, 64, 32, 65, 16, 5, 50.0, 0.1


class Recurrent(nn.Module):
    """Scores of the next token at each place by recurrent cells that vmap cannot run."""

    def __init__(self, cell: type[nn.Module], width: int, **how: bool) -> None:
        """Make the layers."""
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.cell = cell(width, width, batch_first=True, **how)
        self.scores = nn.Linear(2 * width if how else width, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (samples, tokens, words)."""
        return self.scores(self.cell(self.embedding(tokens))[0])


class Sorted(nn.Module):
    """A network whose forward pass depends on its numbers."""

    def __init__(self, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.embedding, self.scores = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (samples, tokens, words); a layer whose weights vanish is left out."""
        known = self.embedding(tokens)
        for layer in self.layers:
            known = torch.tanh(layer(known)) if float(layer.weight.detach().abs().max()) > 0.0 else known
        return self.scores(known)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "GRU, width 64": lambda: Recurrent(nn.GRU, 64),
    "GRU, width 128": lambda: Recurrent(nn.GRU, 128),
    "LSTM in two directions, width 64": lambda: Recurrent(nn.LSTM, 64, bidirectional=True),
    "data-dependent, width 32": lambda: Sorted(32),
    "data-dependent, width 128": lambda: Sorted(128),
}


def clients_of() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return windows of tokens and the tokens after them."""
    draws = np.random.default_rng(0).integers(WORDS, size=(CLIENTS, SAMPLES, TOKENS + 1))
    return [(np.ascontiguousarray(own[:, :-1]), np.ascontiguousarray(own[:, 1:])) for own in draws]


def by_loop(module: nn.Module, clients: list[tuple[np.ndarray, np.ndarray]]) -> Callable[[], None]:
    """Return a function that trains one round as people write it."""
    model, local = copy.deepcopy(module), copy.deepcopy(module).train()
    data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in clients]
    size = parameters_to_vector(model.parameters()).numel()
    residuals, kept = torch.zeros(CLIENTS, size), max(1, round(size / SPARSITY))

    def train_round() -> None:
        weights = parameters_to_vector(model.parameters()).detach()
        mean = torch.zeros(size)
        for client, (inputs, targets) in enumerate(data):
            vector_to_parameters(weights, local.parameters())
            optimiser = torch.optim.SGD(local.parameters(), lr=RATE)
            for _ in range(STEPS):
                batch = torch.randperm(SAMPLES)[:BATCH]
                optimiser.zero_grad()
                outputs = local(inputs[batch])
                functional.cross_entropy(outputs.flatten(0, 1), targets[batch].flatten()).backward()
                optimiser.step()
            update = residuals[client] + weights - parameters_to_vector(local.parameters()).detach()
            chosen = update.abs().topk(kept).indices
            mean[chosen] += update[chosen] / CLIENTS
            update[chosen] = 0.0
            residuals[client] = update
        vector_to_parameters(weights - mean, model.parameters())

    return train_round


def by_fewjoules(module: nn.Module, clients: list[tuple[np.ndarray, np.ndarray]], rounds: int) -> Callable[[], None]:
    """Return a function that trains one round in the simulator, ledger and payload sizes included."""
    options = TrainingOptions.of(
        local_steps=STEPS,
        sparsity=np.full(CLIENTS, SPARSITY),
        rounds=rounds,
        learning_rate=RATE,
        batch_size=BATCH,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        federation = Federation(*gather(clients, torch.device("cpu")))
        simulator = Simulator(module, federation, options, loss=cross_entropy, threads=1)
    assert not simulator.execution.stacked
    return lambda: float(simulator.start_round()().train_loss)


def seconds_of(train_round: Callable[[], None], rounds: int) -> float:
    """Return the processor's seconds of some rounds, over all threads: others may keep the machine busy."""
    start = time.process_time()
    for _ in range(rounds):
        train_round()
    return time.process_time() - start


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each turn")
    given = parser.parse_args()
    torch.set_num_threads(1)
    clients = clients_of()
    print("model                              over the loop   (lowest and highest turn)")
    for name, made in MODELS.items():
        torch.manual_seed(0)
        module = made()
        ours, loop = by_fewjoules(module, clients, given.rounds * (given.turns + 1)), by_loop(module, clients)
        ratios = []
        for turn in range(given.turns + 1):
            one, other = seconds_of(ours, given.rounds), seconds_of(loop, given.rounds)
            ratios += [other / one] if turn else []  # the first one warms up
        print(f"{name:34} {statistics.median(ratios):13.2f}   ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    main()
