"""How well laws of message sizes predict messages: python benchmarks/message_sizes.py [--rounds 40]

Two networks train on the embedded digits, each device with a sparsity of its own, once for every kind of values; a
third set of messages comes from made-up updates of LeNet5's size, with a scale for each layer and error feedback. Laws
are fitted to the sparsities 1, 5, 20, 100 and 500 of all kinds together (``fit_message_size``), and predict the others.
Errors are predicted / measured - 1 in percent; a star marks what was fitted, and the last column has the largest error
at the sparsities between. Below sparsity 2 the codec writes the missing positions or none at all: for coarse values no
law is fitted there, and the errors show what plans then get wrong. The last table tells what that means in joules: for
one device, H = 1, the prior law of rounds and bits of any price, the law's plan is compared with the best one by the
measured sizes (straight lines between them on logarithmic scales), and its predicted joules with the true ones.
"""

import argparse
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from report import git_commit, print_table, processor

from fewjoules.codec import SparseUpdate, encode
from fewjoules.codec.select import top_k_with_feedback
from fewjoules.convergence.rounds import PowerLawRounds
from fewjoules.physics.message_fit import VALUE_KINDS, MessageObservation, fit_message_size, least_observed_sparsity
from fewjoules.physics.message_size import MessageSize, least_entry_bits
from fewjoules.planner.schemes import unified
from fewjoules.runs.task import options_for, prepare, varied
from fewjoules.runs.training import train_task
from fewjoules.scenario import Scenario
from fewjoules.tuning.belief import PRIOR_A, PRIOR_C, PRIOR_Q

SPARSITIES = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
FITTED = (1.0, 5.0, 20.0, 100.0, 500.0)
PREDICTED = (10.0, 50.0, 200.0)
FORMULA_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "int8": 8, "qsgd": 5, "ternary": 2, "two-bit": 2}
LEVELS = 15
LENET5 = ((500, 0.02), (20, 0.03), (25_000, 4e-3), (50, 0.01), (400_000, 8e-4), (500, 3e-3), (5000, 6e-3), (10, 0.02))

DENSE_MESSAGE_STEPS = 10.0 ** np.arange(-2.0, 4.01, 0.25)  # joules of a dense float32 message, as steps

Sizes = Mapping[tuple[str, float], tuple[float, float]]  # kind and sparsity to exact sparsity and mean bits


def trained_sizes(architecture: str, rounds: int) -> tuple[int, Sizes]:
    """Train on the digits with every kind of values; return the parameters and the mean bits of messages."""
    text = Scenario.embedded().text.replace('architecture = "cnn"', f'architecture = "{architecture}"')
    scenario = Scenario.from_text(text, architecture, Path())
    task = varied(prepare(scenario, torch.device("cpu")), downlink="free", channel="average")
    base = options_for(task, unified(scenario.problem()))
    base = replace(base, sparsity=np.resize(SPARSITIES, base.clients), rounds=rounds, local_steps=5)
    base = replace(base, target_accuracy=None, evaluate_every=rounds)
    found = {}
    for kind in VALUE_KINDS:
        sends = {"compressor": "ternary"} if kind == "ternary" else {"values": kind, "levels": LEVELS}
        rows = train_task(task, replace(base, **sends)).loop.ledger.rows()
        for device, sparsity in enumerate(SPARSITIES):
            own = rows[rows["device"] == device]
            found[kind, sparsity] = _mean(scenario.parameters, own["entries"], own["payload_bytes"])
    return scenario.parameters, found


def made_up_sizes(rounds: int) -> tuple[int, Sizes]:
    """Encode made-up updates of LeNet5's size after error feedback has settled."""
    parameters, found = sum(size for size, _ in LENET5), {}
    for sparsity in SPARSITIES:
        rng = np.random.default_rng(1)
        scales = np.concatenate([_scales(rng, size, scale) for size, scale in LENET5])
        residual, kept = np.zeros(parameters, np.float32), round(parameters / sparsity)
        sent: list[SparseUpdate] = []
        for _ in range(rounds):
            update = scales * (rng.standard_normal(parameters) + 0.5 * rng.laplace(size=parameters))
            sent.append(top_k_with_feedback(update.astype(np.float32), residual, kept, out=residual)[0])
        for kind in VALUE_KINDS:
            options = {"levels": LEVELS, "rng": rng} if kind == "qsgd" else {}
            sizes = [len(encode(one, values=kind, **options)) for one in sent[rounds // 2 :]]
            found[kind, sparsity] = _mean(parameters, np.array([kept]), np.array(sizes))
    return parameters, found


def _scales(rng: np.random.Generator, size: int, scale: float) -> NDArray[np.float64]:
    """Weights of a neuron have similar gradients: one scale for fifty, and one for each."""
    neurons = np.repeat(np.exp(rng.standard_normal(-(-size // 50))), 50)[:size]
    return scale * neurons * np.exp(0.5 * rng.standard_normal(size))


def _mean(parameters: int, entries: NDArray[np.int64], size_bytes: NDArray[np.int64]) -> tuple[float, float]:
    return parameters / float(entries.mean()), 8.0 * float(size_bytes.mean())


def is_fitted(kind: str, sparsity: float) -> bool:
    """Whether a law is fitted to these messages."""
    return sparsity in FITTED and sparsity >= least_observed_sparsity(kind)


def print_errors(title: str, sizes: Sizes, parameters: int, law_of: Callable[[str], MessageSize], fitted: bool) -> None:
    """Print a row for each kind of values with the error at each sparsity."""
    print(f"\n  {title}")
    table = []
    for kind in VALUE_KINDS:
        law, cells, between = law_of(kind), [], []
        for sparsity in SPARSITIES:
            exact, bits = sizes[kind, sparsity]
            error = float(law.bits(parameters, exact)) / bits - 1.0
            cells.append(f"{100.0 * error:.1f}{'*' if fitted and is_fitted(kind, sparsity) else ''}")
            if sparsity in PREDICTED:
                between.append(abs(error))
        constants = f"{law.fixed_bits:.0f}, {law.scale:.2f}, {law.entry_bits:.2f}"
        table.append([kind, constants, *cells, f"{100.0 * max(between):.1f}"])
    print_table(["values", "law", *(f"{one:g}" for one in SPARSITIES), "10, 50, 200"], table, text_columns=2)


def print_regrets(sizes: Sizes, parameters: int, law_of: Callable[[str], MessageSize]) -> None:
    """Print what the errors of laws cost plans from sparsity 4 on: joules above the best, and errors of predictions."""
    print("\n  plans by these laws, worst of all prices of bits, in percent")
    sparsity = np.geomspace(4.0, SPARSITIES[-1], 500)
    rounds = PowerLawRounds(tau=1.0, c=PRIOR_C, a=PRIOR_A, q=PRIOR_Q).rounds(sparsity**PRIOR_Q, 1, 1)
    table = []
    for kind in VALUE_KINDS:
        exact, bits = np.log([sizes[kind, one] for one in SPARSITIES]).T
        measured, planned = np.exp(np.interp(np.log(sparsity), exact, bits)), law_of(kind).bits(parameters, sparsity)
        prices = DENSE_MESSAGE_STEPS[:, None] / (32.0 * parameters)
        true, predicted = rounds * (1.0 + prices * measured), rounds * (1.0 + prices * planned)
        rows, chosen = np.arange(len(prices)), predicted.argmin(axis=1)
        regret = true[rows, chosen] / true.min(axis=1) - 1.0
        error = predicted[rows, chosen] / true[rows, chosen] - 1.0
        table.append([kind, f"{100.0 * regret.max():.2f}", f"{100.0 * np.abs(error).max():.1f}"])
    print_table(["values", "above the best plan", "error of predicted joules"], table)


def report(title: str, parameters: int, sizes: Sizes, exponent: float) -> None:
    """Print what messages took, and the errors of formula (25) and of the fitted laws."""
    print(f"\n{title}, {parameters:,} parameters\n\n  bits of an entry, all bits of the message counted")
    rows = [
        [kind, *(f"{sizes[kind, one][1] * sizes[kind, one][0] / parameters:.2f}" for one in SPARSITIES)]
        for kind in VALUE_KINDS
    ]
    print_table(["values", *(f"{one:g}" for one in SPARSITIES)], rows)
    print_errors(
        "formula (25)", sizes, parameters, lambda kind: MessageSize.formula_25(FORMULA_BITS[kind]), fitted=False
    )
    known = [MessageObservation(kind, *size) for (kind, sparsity), size in sizes.items() if is_fitted(kind, sparsity)]
    for plans, least in (
        ("plans from sparsity 2 on, no batteries", least_entry_bits(2.0, exponent, batteries=False)),
        ("any plan", least_entry_bits()),
    ):
        fit = fit_message_size(parameters, known, least=least)
        rms = f"rms {100.0 * fit.rms_relative_residual:.1f} %"
        title = f"laws fitted for {plans} (entry_bits of at least {least:.3f}), {rms}"
        print_errors(title, sizes, parameters, fit.laws.__getitem__, fitted=True)
        print_regrets(sizes, parameters, fit.laws.__getitem__)


def main() -> None:
    """Measure, fit and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"python benchmarks/message_sizes.py --rounds {given.rounds}\ncommit {git_commit()}, {processor()}")
    exponent = Scenario.embedded().rounds.exponent
    for architecture in ("cnn", "mlp"):
        report(f"{architecture} on digits", *trained_sizes(architecture, given.rounds), exponent)
    report("made-up updates of LeNet5's size", *made_up_sizes(10), exponent)


if __name__ == "__main__":
    main()
