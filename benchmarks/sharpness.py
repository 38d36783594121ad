"""How near to the edge of stability dense SGD trains LeNet5 on MNIST: the largest eigenvalue of the Hessian.

    python benchmarks/sharpness.py --data-dir DIR [--rounds 100 500 1120] [--learning-rate 0.1] [--seed 1]

The run is that of `fewjoules reproduce fig2d` (dense SGD, 12 devices). At each of the rounds power iteration gives the
eigenvalue of largest size on batches of as many samples as all devices use in a step. Then the run goes on for a while
to see whether it diverges.
"""

import argparse

import numpy as np
import torch
from report import describe_run, print_table

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.layout import Layout
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.runs.task import prepare, varied
from fewjoules.runs.training import Task
from fewjoules_reproduction.embedded import embedded_scenario

BATCHES = 5
ITERATIONS = 25
MORE_ROUNDS = 100


def largest_eigenvalue(net: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Of the Hessian of the mean loss, by power iteration; its size."""
    parameters = list(net.parameters())
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(sum(p.numel() for p in parameters), generator=generator).to(inputs.device)
    size = 0.0
    for _ in range(ITERATIONS):
        direction /= direction.norm()
        loss = cross_entropy(net(inputs), targets).mean()
        gradient = _flat(torch.autograd.grad(loss, parameters, create_graph=True))
        direction = _flat(torch.autograd.grad(gradient @ direction, parameters))
        size = float(direction.norm())
    return size


def _flat(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def sharpness(task: Task, weights: torch.Tensor, batch: int, seed: int) -> list[float]:
    """On random batches of the training set."""
    net, samples = task.model, task.federation.samples
    Layout(dict(net.named_parameters())).load(net, weights)
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(BATCHES):
        numbers = torch.from_numpy(rng.choice(len(samples), batch, replace=False))
        found.append(largest_eigenvalue(net, *samples.take(numbers)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--rounds", type=int, nargs="+", default=[100, 500, 1120])
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rounds = " ".join(map(str, given.rounds))
    command = (
        f"python benchmarks/sharpness.py --rounds {rounds} --learning-rate {given.learning_rate} --seed {given.seed}"
    )
    about = describe_run(command, given.seed, torch.get_num_threads(), ["torch"])
    print(f"{command}\ncommit {about['git_commit']}, {about['started']}, {about['machine']['processor']}")
    task = varied(prepare(embedded_scenario("fig2cd.toml"), torch.device("cpu"), given.data_dir), seed=given.seed)
    devices = len(task.federation.parts)
    last = max(given.rounds)
    chosen = {"learning_rate": given.learning_rate, "seed": given.seed, "rounds": last + MORE_ROUNDS}
    chosen |= {"compressor": "none"}
    chosen |= {"local_steps": 1, "sparsity": np.ones(devices)}
    options = TrainingOptions.of(**task.training.options(task.scenario.files) | chosen)
    simulator = Simulator(task.model, task.federation, options, loss=cross_entropy)
    batch = devices * options.batch_size
    rows = []
    for number in range(1, last + 1):
        outcome = simulator.start_round()()
        if number in given.rounds:
            found = sharpness(task, simulator.state.weights, batch, given.seed)
            cells = [f"{outcome.train_loss:.4f}", *(f"{one:.1f}" for one in (min(found), np.mean(found), max(found)))]
            rows.append([str(number), *cells, f"{2.0 / given.learning_rate:.1f}"])
    print(f"eigenvalues on {BATCHES} batches of {batch} samples")
    print_table(["round", "loss", "least", "mean", "largest", "2 / step size"], rows, text_columns=0)
    print(_divergence(simulator, last))
    simulator.close()


def _divergence(simulator: Simulator, last: int) -> str:
    for number in range(last + 1, last + MORE_ROUNDS + 1):
        loss = simulator.start_round()().train_loss
        if loss > np.log(10.0):
            return f"the loss exceeds that of guessing, log 10, in round {number}: {loss:.3g}"
    return f"no divergence in {MORE_ROUNDS} more rounds"


if __name__ == "__main__":
    main()
