"""The studies of Fig. 2 and beyond: tasks, settings and sizes. docs/reproduction.md gives the reasons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.codec.compressors import qsgd_variance

LEVELS = 15  # of QSGD: four bits plus the sign
TUNING_SEED = 1000  # used by no run in the figures


@dataclass(frozen=True)
class Setting:
    """Settings of one curve: H, the sparsity of each device, and other changes to plain FT-LSGD-DB."""

    name: str
    local_steps: int
    sparsity: FloatArray
    changes: Mapping[str, Any] = field(default_factory=dict)
    rate_scale: float = 1.0  # factor on the step sizes that are tried
    adaptive: bool = False  # H is chosen by [WANG19], starting with ``local_steps``


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Size of a study: the pilot grid, the step sizes that are tried, the length of a run, the seeds."""

    sparsities: tuple[float, ...]
    local_steps: tuple[int, ...]
    learning_rates: tuple[float, ...]  # in the order of trial; a later one must need fewer rounds to be chosen
    pilot_accuracy: float
    pilot_steps: int  # a pilot run that takes longer has failed
    pilot_resolution: int  # local steps between two evaluations of a pilot run
    steps: int  # local steps of each run in the figures
    resolution: int  # local steps between two evaluations of such a run
    targets: tuple[float, ...]
    seeds: tuple[int, ...]
    gpu_precision: str = "tf32"

    @property
    def main_target(self) -> float:
        """The middle one of the targets."""
        return self.targets[len(self.targets) // 2]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A scenario trained by every scheme, with plans based on the pilot runs of the study ``pilots``.

    Studies of one ``task`` differ only in the cost of a bit, which is ``bit_scale`` times that of the first. They share
    trainings.
    """

    name: str
    title: str
    scenario: str
    pilots: str
    task: str
    scale: Scale
    baselines: bool
    bit_scale: float = 1.0


MNIST = Scale(
    sparsities=(1.0, 4.5, 20.0, 100.0, 400.0, 1000.0),
    local_steps=(1, 2, 5, 10, 20, 50),
    learning_rates=(0.1, 0.05, 0.025),
    pilot_accuracy=0.98,
    pilot_steps=3000,
    pilot_resolution=10,
    steps=5000,
    resolution=20,
    targets=(0.98, 0.985, 0.99),
    seeds=(0, 1, 2),
)
CIFAR10 = Scale(
    sparsities=(1.0, 20.0, 100.0, 1000.0),
    local_steps=(1, 5, 20, 50),
    learning_rates=(0.2, 0.4, 0.1),
    pilot_accuracy=0.6,
    pilot_steps=3000,
    pilot_resolution=25,
    steps=3000,
    resolution=50,
    targets=(0.6, 0.65, 0.7),
    seeds=(0, 1, 2),
    gpu_precision="bf16",
)
DIGITS = Scale(
    sparsities=(1.0, 20.0, 400.0),
    local_steps=(1, 5, 20),
    learning_rates=(0.4, 0.2),
    pilot_accuracy=0.9,
    pilot_steps=400,
    pilot_resolution=10,
    steps=240,
    resolution=10,
    targets=(0.92, 0.95),
    seeds=(0,),
)

STUDIES = {
    study.name: study
    for study in (
        Study(
            name="mnist",
            title="LeNet5 on MNIST",
            scenario="fig2cd.toml",
            pilots="mnist",
            task="mnist",
            scale=MNIST,
            baselines=True,
        ),
        Study(
            name="mnist-lte",
            title="LeNet5 on MNIST, bits 1000 times as expensive",
            scenario="fig2cd-lte.toml",
            pilots="mnist",
            task="mnist",
            scale=MNIST,
            baselines=True,
            bit_scale=1000.0,
        ),
        Study(
            name="mnist-dirichlet",
            title="LeNet5 on MNIST, Dirichlet 0.3",
            scenario="fig2cd-dirichlet.toml",
            pilots="mnist",
            task="mnist-dirichlet",
            scale=MNIST,
            baselines=False,
        ),
        Study(
            name="qmnist-writers",
            title="LeNet5 on QMNIST by writer",
            scenario="fig2cd-writers.toml",
            pilots="mnist",
            task="qmnist-writers",
            scale=MNIST,
            baselines=False,
        ),
        Study(
            name="cifar10",
            title="ResNet20 on CIFAR-10",
            scenario="fig2ab.toml",
            pilots="cifar10",
            task="cifar10",
            scale=CIFAR10,
            baselines=True,
        ),
        Study(
            name="cifar10-lte",
            title="ResNet20 on CIFAR-10, bits 1000 times as expensive",
            scenario="fig2ab-lte.toml",
            pilots="cifar10",
            task="cifar10",
            scale=CIFAR10,
            baselines=True,
            bit_scale=1000.0,
        ),
        Study(
            name="digits",
            title="CNN on 8x8 digits",
            scenario="quick.toml",
            pilots="digits",
            task="digits",
            scale=DIGITS,
            baselines=True,
        ),
        Study(
            name="digits-lte",
            title="CNN on 8x8 digits, bits 1000 times as expensive",
            scenario="quick-lte.toml",
            pilots="digits",
            task="digits",
            scale=DIGITS,
            baselines=False,
            bit_scale=1000.0,
        ),
        Study(
            name="digits-dirichlet",
            title="CNN on 8x8 digits, Dirichlet 0.3",
            scenario="quick-dirichlet.toml",
            pilots="digits",
            task="digits-dirichlet",
            scale=DIGITS,
            baselines=False,
        ),
    )
}


def pilot_settings(study: Study, devices: int) -> list[Setting]:
    """Settings of the pilot grid, in which all devices have the same sparsity."""
    return [
        Setting(f"pilot-h{steps}-delta{sparsity:g}", steps, np.full(devices, sparsity))
        for steps in study.scale.local_steps
        for sparsity in study.scale.sparsities
    ]


def baseline_settings(devices: int) -> list[Setting]:
    """Settings of methods from the paper's related work, with the parameters of their own papers."""
    everyone = np.ones(devices)
    return [
        Setting(
            "qsgd",
            1,
            everyone,
            {"compressor": "qsgd", "levels": LEVELS, "error_feedback": False},
            rate_scale=1.0 + qsgd_variance(LEVELS),  # the compressor divides by this
        ),
        Setting("qsparse", 8, 100.0 * everyone, {"values": "qsgd", "levels": LEVELS}),
        Setting("stc", 1, 400.0 * everyone, {"compressor": "ternary"}),
        Setting("momentum", 8, everyone, {"compressor": "none", "momentum": 0.9}),
        Setting("adaptive", 1, everyone, {"compressor": "none"}, adaptive=True),
    ]
