"""The optimisers that a race starts with, and the step sizes at which it begins.

All but plain SGD warm up over a few local steps, which saves seeds that a large first step would blow up, and hand out
the mean of recent models, which bears larger steps than the last one and costs the devices nothing.
A step size is found for plain SGD first. The others begin at a fixed part of it: momentum of beta makes steps up to
1 / (1 - beta) times as long. Adam's steps do not depend on the size of gradients, so it begins at a number of its own,
which is smaller where it takes many steps in a round: with few of them 0.008 was better than 0.004 in all studies of
images but one, with 50 of them 0.002 and 0.004 were best (docs/tuning.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fewjoules.tuning.pilot import OptionValue

DENSE = 4.0  # below this sparsity a message clears most of a client's momentum, so that it is kept instead
ADAM_RATES = (0.008, 0.004)  # with few and with many local steps in a round
FIRST_RATES = (1.0, 2.0, 4.0, 0.5)  # times the step size of the scenario, in the order of trial
WARM_UP_STEPS = 20
AVERAGING = 0.05  # part of the rounds, whose models are averaged
MANY_STEPS = 10  # in a round: from this H on, optimisers that adapt within a round come first


@dataclass(frozen=True, slots=True)
class Optimiser:
    """An optimiser: its options without the step size, and the step size at which its search begins.

    That is ``rate``, times the best one of plain SGD where it is ``of_plain``. A step size that stays stable falls with
    H by about the power ``rate_power``.
    """

    name: str
    options: Mapping[str, OptionValue] = field(compare=False)
    rate: float = field(compare=False)
    of_plain: bool = field(default=True, compare=False)
    rate_power: float = field(default=-0.5, compare=False)

    def first_rate(self, plain_rate: float) -> float:
        """Return the step size at which the search begins."""
        return self.rate * plain_rate if self.of_plain else self.rate

    def options_for(self, local_steps: int) -> dict[str, OptionValue]:
        """Return the options with the warm-up for this H."""
        warm_up = 0 if self == PLAIN else WARM_UP_STEPS // local_steps
        return {**self.options, "warmup_rounds": warm_up, "averaging": 0.0 if self == PLAIN else AVERAGING}


PLAIN = Optimiser("SGD", {"inner": "sgd", "outer": "none", "residual_decay": 1.0}, 1.0)


def optimisers(local_steps: int, sparsity: float) -> list[Optimiser]:
    """Return the optimisers to race against plain SGD at about this H and sparsity, the most promising first."""
    few = local_steps < MANY_STEPS
    state = "kept" if sparsity < DENSE else "cleared"
    inner: dict[str, OptionValue] = {"inner": "momentum", "momentum": 0.9, "momentum_state": state, "outer": "none"}
    adam: dict[str, OptionValue] = {"inner": "adamw", "outer": "none", "residual_decay": 0.95}
    heavy = Optimiser("server Nesterov 0.9", _nesterov(0.9), 0.25)
    light = Optimiser("server Nesterov 0.6", _nesterov(0.6), 0.5)
    client = Optimiser(f"client momentum 0.9, {state}", inner | {"residual_decay": 1.0}, 0.5)
    scaled = Optimiser("client Adam", adam, ADAM_RATES[0 if few else 1], of_plain=False, rate_power=0.0)
    return [heavy, scaled, client, light] if few else [scaled, light, heavy, client]


def _nesterov(momentum: float) -> dict[str, OptionValue]:
    return {"inner": "sgd", "outer": "nesterov", "outer_momentum": momentum, "residual_decay": 1.0}
