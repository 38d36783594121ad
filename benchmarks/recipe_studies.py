"""Studies of recipes: a task, the costs of its devices, and what takes part. benchmarks/recipes.py carries them out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Study:
    """A scenario, a target, and the joules of FlexibleSpar in docs/reproduction.md.

    ``grid`` are the cheapest single runs of results/recipe-grid-mnist.txt, trained again with every seed.
    ``laws`` are optimisers whose rounds law is measured by a few pilots, to plan ``flexible`` with; without any, that
    of the scenario is used. ``entries`` are the baselines, and ``parts`` the parts of the usual budget of tuning.
    """

    scenario: str
    target: float
    seeds: int
    most_steps: int
    data: str  # studies of the same data and model share the trainings of baselines
    bit_scale: float = 1.0  # against the study whose trainings are shared
    precision: str = "tf32"
    evaluate_steps: int = 10
    reproduced_joules: float | None = None
    changes: dict[str, str] = field(default_factory=dict)
    first_rate: float = 0.1
    metric: str = "accuracy"
    parts: tuple[float, ...] = (1.0, 0.25)
    entries: tuple[str, ...] | None = None
    laws: dict[str, dict[str, Any]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)  # from which the search of a step size starts, unless usual
    grid: tuple[tuple[str, float, int, float, str], ...] = ()  # optimiser, step size, H, sparsity, values

    def baselines(self) -> tuple[str, ...]:
        """Return the names of the baselines that take part."""
        return tuple(BASELINES) if self.entries is None else self.entries

    def grid_best(self) -> dict[str, tuple[dict[str, Any], int, float]]:
        """Return options, H and sparsity of the best recipes of a brute-force grid, by name.

        Each hands out its last model and, once more, the mean of recent ones.
        """
        from recipe_grid import optimisers

        from fewjoules.tuning.arms import AVERAGING

        options = {name: own for name, (own, _) in optimisers((), (), (), ()).items()}
        found = {}
        for name, rate, local_steps, sparsity, values in self.grid:
            message = {"compressor": "ternary" if values == "ternary" else "top-k"}
            told = f"grid: {name} {rate:g}, {local_steps} x {sparsity:g}, {values}"
            whole = {"inner": "sgd"} | options[name] | message | {"learning_rate": rate}
            found[told] = (whole, local_steps, sparsity)
            found[f"{told}, mean"] = (whole | {"averaging": AVERAGING}, local_steps, sparsity)
        return found


_GRID_CHEAP = (
    ("outer 0.9", 0.05, 1, 30.0, "float32"),
    ("inner cleared", 0.1, 4, 100.0, "float32"),
    ("inner cleared", 0.2, 1, 30.0, "float32"),
    ("adam", 0.005, 1, 30.0, "float32"),
)
_GRID_DEAR = (
    ("inner reset", 0.2, 4, 100.0, "ternary"),
    ("outer 0.6", 0.2, 4, 100.0, "ternary"),
    ("inner cleared", 0.1, 1, 300.0, "ternary"),
    ("inner kept", 0.05, 4, 1000.0, "float32"),
)
_GROUPS = {'architecture = "resnet20"': 'architecture = "resnet20-gn"'}
_TEXT_ENTRIES = ("dense SGD", "dgc", "sparseloco", "diloco")


def _text(*, sgd: float, adam: float, **changes: Any) -> Study:
    """Return a study of text by role: examples/shakespeare.toml with changes, and step sizes for the rounds laws."""
    common = {"scenario": "shakespeare", "metric": "loss", "parts": (1.0,), "entries": _TEXT_ENTRIES}
    laws = {
        "flexible": {"inner": "sgd", "learning_rate": sgd},
        "flexible Adam": {"inner": "adamw", "learning_rate": adam},
    }
    return Study(
        **{"laws": laws, "rates": {"dense SGD": sgd}, "first_rate": sgd, "seeds": 3, "precision": "bf16"}
        | common
        | changes
    )


_TINY = {
    "width = 128": "width = 24",
    "depth = 6": "depth = 1",
    "heads = 4": "heads = 2",
    "context = 80": "context = 32",
    "count = 30": "count = 7",
    "count = 10": "count = 3",
    "batch_size = 16": "batch_size = 4",
}
_FEW_ROLES = {"count = 30": "count = 9", "count = 10": "count = 3"}
_LSTM = _FEW_ROLES | {"width = 128": "width = 256", "depth = 6": "depth = 2", "heads = 4": "", '"gpt" ': '"lstm"'}
TEXT_STUDIES = {
    "gpt-tiny": _text(sgd=1.0, adam=0.005, target=2.55, most_steps=800, data="gpt-tiny", changes=_TINY),
    "gpt": _text(sgd=0.5, adam=0.001, target=2.2, most_steps=2500, data="gpt", evaluate_steps=50, changes=_FEW_ROLES),
    "lstm": _text(sgd=2.0, adam=0.003, target=2.2, most_steps=2500, data="lstm", evaluate_steps=50, changes=_LSTM),
}
STUDIES = {
    "digits": Study(
        scenario="embedded", target=0.95, seeds=3, most_steps=1500, data="digits", precision="float32", first_rate=0.1
    ),
    "mnist": Study(
        scenario="fig2cd.toml",
        target=0.985,
        seeds=5,
        most_steps=2000,
        data="mnist",
        reproduced_joules=27.1,
        grid=_GRID_CHEAP,
    ),
    "mnist-lte": Study(
        scenario="fig2cd-lte.toml",
        target=0.985,
        seeds=5,
        most_steps=2000,
        data="mnist",
        bit_scale=1000.0,
        reproduced_joules=51.3,
        grid=_GRID_DEAR,
    ),
    "mnist-phones": Study(scenario="phones", target=0.985, seeds=5, most_steps=2500, data="mnist-phones"),
    "mnist-dirichlet": Study(
        scenario="fig2cd-dirichlet.toml",
        target=0.985,
        seeds=5,
        most_steps=2500,
        data="mnist-dirichlet",
        reproduced_joules=26.5,
    ),
    "writers": Study(
        scenario="fig2cd-writers.toml",
        target=0.985,
        seeds=5,
        most_steps=2000,
        data="writers",
        reproduced_joules=23.4,
    ),
    "cifar10": Study(
        scenario="fig2ab.toml",
        target=0.65,
        seeds=3,
        most_steps=3000,
        data="cifar10",
        precision="bf16",
        evaluate_steps=50,
        reproduced_joules=20.6,
    ),
    "cifar10-lte": Study(
        scenario="fig2ab-lte.toml",
        target=0.65,
        seeds=3,
        most_steps=3000,
        data="cifar10",
        bit_scale=1000.0,
        precision="bf16",
        evaluate_steps=50,
        reproduced_joules=83.7,
    ),
    "cifar10-gn": Study(
        scenario="fig2ab.toml",
        target=0.65,
        seeds=3,
        most_steps=3000,
        data="cifar10-gn",
        precision="bf16",
        evaluate_steps=50,
        changes=_GROUPS,
    ),
    **TEXT_STUDIES,
}
LOCAL_MOMENTUM = {"inner": "momentum", "momentum": 0.9, "compressor": "none", "error_feedback": False}
BASELINES: dict[str, tuple[str | None, dict[str, Any], float]] = {  # preset, or options; usual step size
    "dense SGD": (None, {"inner": "sgd", "local_steps": 1, "compressor": "none", "error_feedback": False}, 0.1),
    "local momentum [YU19]": (None, {"local_steps": 8, **LOCAL_MOMENTUM}, 0.1),
    "dgc": ("dgc", {}, 0.05),
    "slowmo": ("slowmo", {}, 0.05),
    "fedavgm": ("fedavgm", {"local_steps": 8}, 0.02),
    "stc": ("stc", {}, 0.1),
    "qsparse": ("qsparse", {}, 0.1),
    "qsgd": ("qsgd", {}, 0.1),
    "sparseloco": ("sparseloco", {}, 0.002),
    "diloco": ("diloco", {"local_steps": 50}, 0.002),
}


def scenario_of(study: Study) -> Any:
    """Return the scenario of a study."""
    from fewjoules.scenario import Scenario

    if study.scenario == "embedded":
        return Scenario.embedded()
    if study.scenario == "phones":
        text = Scenario.embedded().text
        text = text.replace('architecture = "cnn"', 'architecture = "lenet5"').replace('"digits"', '"mnist"')
        text = text.replace("batch_size = 16", "batch_size = 32").replace("max = 400.0", "max = 1000.0")
        return Scenario.from_text(text, "phones", Path())
    if study.scenario == "shakespeare":
        scenario = Scenario.from_toml(Path(__file__).parents[1] / "examples" / "shakespeare.toml")
    else:
        from fewjoules_reproduction.embedded import embedded_scenario

        scenario = embedded_scenario(study.scenario)
    text = scenario.text
    for old, new in study.changes.items():
        assert old in text
        text = text.replace(old, new)
    return Scenario.from_text(text, scenario.name, scenario.folder)
