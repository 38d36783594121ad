"""Methods of the literature as names: each preset is a set of options with the constants of its paper.

A constant is here only if the paper or its authors' code gives it. Step sizes and their schedules, batches and numbers
of rounds belong to a task and are left to the user. ``local_steps`` and ``sparsity`` apply where neither the caller
nor a plan gives them. tests/reference/presets.py implements each method again, as its paper states it, and lists where
a preset differs from its paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fewjoules.errors import InvalidInputError

OptionValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Preset:
    """A method's name, its key in docs/references.md, its options and one sentence that says what it does."""

    name: str
    key: str
    options: dict[str, OptionValue]
    summary: str


def preset_options(name: str) -> dict[str, OptionValue]:
    """Return a copy of a preset's options."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InvalidInputError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}")
    return dict(PRESETS[name].options)


_DENSE: dict[str, OptionValue] = {"compressor": "none", "sparsity": 1.0, "error_feedback": False}

_ALL = (
    Preset(
        "ft-lsgd-db",
        "LI21",
        {"inner": "sgd", "compressor": "top-k", "values": "float32", "error_feedback": True, "outer": "none"},
        "Each client takes steps of SGD, sends the largest entries of its change and keeps the rest for later.",
    ),
    Preset(
        "dgc",
        "LIN18",
        {
            "inner": "momentum",
            "momentum": 0.9,
            "momentum_state": "cleared",
            "local_steps": 1,
            "compressor": "top-k",
            "sparsity": 1000.0,
            "values": "float32",
            "error_feedback": True,
            "outer": "none",
        },
        "Each client keeps its momentum, clears it where an entry was sent, and sends the largest 0.1 % after every "
        "step; the paper also warms the sparsity up and clips the gradients of recurrent networks.",
    ),
    Preset(
        "diloco",
        "DOUILLARD23",
        {
            **_DENSE,
            "inner": "adamw",
            "momentum_state": "kept",
            "weight_decay": 0.1,
            "local_steps": 500,
            "outer": "nesterov",
            "outer_momentum": 0.9,
            "outer_rate": 0.7,
        },
        "Each client takes many steps of AdamW, then the server takes a Nesterov step along the mean change; the "
        "paper's inner step size is 4e-4, warmed up over 1,000 steps, then a cosine.",
    ),
    Preset(
        "sparseloco",
        "SARFI25",
        {
            "inner": "adamw",
            "momentum": 0.9,
            "momentum_state": "kept",
            "adam_beta2": 0.95,
            "weight_decay": 0.1,
            "gradient_clip": 1.0,
            "local_steps": 30,  # the paper tries 15 to 250; its authors' large run took 30
            "compressor": "chunked-top-k",
            "sparsity": 64.0,  # 64 of each 4,096
            "values": "two-bit",
            "error_feedback": True,
            "residual_decay": 0.95,
            "outer": "none",
            "outer_rate": 1.0,
        },
        "Each client takes steps of AdamW and sends the largest 64 of each 4,096 entries in two bits; its decaying "
        "residual stands in for momentum on the server.",
    ),
    Preset(
        "slowmo",
        "WANG20",
        {
            **_DENSE,
            "inner": "momentum",
            "momentum": 0.9,
            "momentum_state": "reset",
            "local_steps": 12,
            "outer": "momentum",
            "outer_momentum": 0.7,
            "outer_rate": 1.0,
        },
        "Each client's momentum starts from rest in every round, and the server's slow momentum runs over all rounds.",
    ),
    Preset(
        "fedavgm",
        "HSU19",
        {
            **_DENSE,
            "inner": "sgd",
            "weighting": "samples",
            "outer": "momentum",
            "outer_momentum": 0.9,
            "outer_rate": 1.0,
        },
        "Clients are averaged by the size of their data and the server has momentum; the paper trains whole epochs on "
        "each client.",
    ),
    Preset(
        "stc",
        "SATTLER19",
        {
            "inner": "sgd",
            "local_steps": 1,
            "compressor": "ternary",
            "sparsity": 400.0,
            "error_feedback": True,
            "outer": "none",
            "downlink_sparsity": 400.0,
            "downlink_values": "ternary",
        },
        "Each client sends the signs of its largest 0.25 % and their mean magnitude after every step, and so does the "
        "server with what it has yet to send.",
    ),
    Preset(
        "qsparse",
        "BASU19",
        {
            "inner": "sgd",
            "local_steps": 8,
            "compressor": "top-k",
            "sparsity": 100.0,  # the paper keeps 1,000 entries of each tensor
            "values": "qsgd",
            "levels": 15,
            "error_feedback": True,
            "outer": "none",
        },
        "Each client sends its largest entries, rounded at random to 15 levels, and keeps all that this leaves out.",
    ),
    Preset(
        "qsgd",
        "ALISTARH17",
        {
            "inner": "sgd",
            "local_steps": 1,
            "compressor": "none",  # compressor "qsgd" would divide by 1 + omega, which only error feedback needs
            "sparsity": 1.0,
            "values": "qsgd",
            "levels": 15,
            "error_feedback": False,
            "outer": "none",
        },
        "Each client sends every gradient, rounded at random to 15 levels of its norm without bias, and keeps nothing.",
    ),
)

PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ALL})
