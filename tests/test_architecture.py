"""Imports point one way, heavy libraries load late, and the public names are the promised ones."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import fewjoules

SOURCE = Path(fewjoules.__file__).parent
REPRODUCTION = Path(__file__).parents[1] / "reproduction" / "src" / "fewjoules_reproduction"
SHARED = {"arrays", "cores", "errors", "extras", "files", "measurements", "own_code", "provenance", "torchrun"}
CORE = {"planner", "convergence", "physics"}
OF_REPORTS = {"runs", "tuning", "scenario", "ledger", "profiles", "metering", *CORE}
ALLOWED = {
    "physics": set(),
    "convergence": set(),
    "embedded": set(),
    "codec": set(),
    "datasets": {"embedded"},
    "ledger": set(),
    "profiles": set(),
    "metering": set(),
    "planner": {"convergence", "physics"},
    "tuning": {"planner", "convergence", "physics"},
    "engine": {"codec", "ledger", *CORE},
    "scenario": {"engine", "datasets", "profiles", *CORE},
    "runs": {"engine", "tuning", "scenario", "datasets", "codec", "ledger", "metering", *CORE, "__init__"},
    "integrations": {"runs", "engine", "scenario", "codec", "ledger", *CORE, "__init__"},
    "flower": {"integrations"},
    "loggers": {"runs"},
    "comparing": {"reports", "runs", "engine", "scenario", *CORE},
    "reports": OF_REPORTS,
    "studio": {*OF_REPORTS, "reports", "embedded"},
    "cli": {"comparing", *OF_REPORTS, "reports", "studio", "engine", "__init__"},
    "__init__": {"comparing", "loggers", "scenario", "runs", "codec", *CORE},
    "__main__": {"cli"},
    **{name: set() for name in SHARED},
}
FOR_REPRODUCTION = {"cli", "reports", "runs", "engine", "scenario", "codec", "ledger", *CORE, *SHARED, "__init__"}


def area(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_areas(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fewjoules":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("fewjoules.")}
    return {"__init__" if name == "__version__" else name for name in found}


def test_imports_point_from_the_shell_to_the_core():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        extra = imported_areas(path) - ALLOWED[area(path)] - SHARED - {area(path)}
        wrong += [f"{path.relative_to(SOURCE)} imports {name}" for name in extra]
    assert wrong == []


def test_only_the_engine_and_what_runs_it_know_pytorch():
    users = {
        area(path)
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*(import|from) (torch|triton)", path.read_text(), re.M)
    }
    assert users == {"engine", "runs", "integrations"}


def test_only_its_integration_imports_flower():
    users = {path for path in SOURCE.rglob("*.py") if re.search(r"^\s*(import|from) flwr", path.read_text(), re.M)}
    assert users
    assert {path.parent for path in users} == {SOURCE / "integrations" / "flower"}


def test_only_the_studio_imports_its_web_server():
    users = {
        area(path) for path in SOURCE.rglob("*.py") if re.search(r"^(import|from) aiohttp", path.read_text(), re.M)
    }
    assert users == {"studio"}


def test_the_studio_needs_no_pytorch():
    loaded = modules_after("import fewjoules.studio.server")
    assert "aiohttp" in loaded
    assert loaded.isdisjoint({"torch", "matplotlib", "numba"})


def test_the_process_that_passes_messages_to_a_worker_needs_no_pytorch():
    loaded = modules_after("from fewjoules.flower import client_app; client_app('json:loads')")
    assert "flwr" in loaded
    assert loaded.isdisjoint({"torch", "numba", "scipy", "matplotlib", "safetensors"})


def test_every_area_is_listed():
    assert {area(path) for path in SOURCE.rglob("*.py")} == set(ALLOWED)


def imported_names(path: Path) -> set[str]:
    """Full names of all that a module imports, as ``package.module.name``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_nothing_in_the_package_imports_the_reproduction():
    imported = {name.split(".")[0] for path in SOURCE.rglob("*.py") for name in imported_names(path)}
    assert "fewjoules" in imported
    assert "fewjoules_reproduction" not in imported


def test_the_reproduction_imports_public_names_of_these_areas_only():
    paths = list(REPRODUCTION.rglob("*.py"))
    assert len(paths) > 20
    wrong = []
    for path in paths:
        own = {name for name in imported_names(path) if name.startswith("fewjoules.")}
        private = {name for name in own if re.search(r"\._(?!_)", name)}
        areas = imported_areas(path) - FOR_REPRODUCTION
        wrong += [f"{path.name} imports {name}" for name in private | areas]
    assert wrong == []


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_importing_the_package_stays_light():
    heavy = {"torch", "matplotlib", "pydantic", "rich", "typer", "scipy", "numba", "plotly", "pyarrow"}
    assert modules_after("import fewjoules").isdisjoint(heavy)


def test_the_command_line_loads_no_plotting_and_no_compiler():
    assert modules_after("import fewjoules.cli").isdisjoint(
        {"torch", "matplotlib", "numba", "plotly", "pyarrow", "aiohttp"}
    )


def test_a_training_does_not_import_the_compiler_of_pytorch():
    chosen = "rounds=1, local_steps=1, sparsity=1, learning_rate=0.1"
    statements = (
        "import fewjoules, numpy, torch",
        "x = numpy.zeros((6, 2), 'float32'), numpy.zeros(6, 'int64')",
        f"fewjoules.train(torch.nn.Linear(2, 2), clients=[x], test=x, {chosen})",
    )
    assert "torch._dynamo" not in modules_after("; ".join(statements)), "it takes a second"


def test_the_public_names_are_these():
    assert sorted(fewjoules.__all__) == [
        "Availability",
        "BoundRounds",
        "Callback",
        "ClientSlices",
        "Comparison",
        "ControlProblem",
        "CorruptPayloadError",
        "DivergedError",
        "Downlink",
        "EarlyStopping",
        "FewJoulesError",
        "FewJoulesWarning",
        "Fleet",
        "InfeasiblePlanError",
        "InvalidInputError",
        "MessageSize",
        "OngoingRun",
        "OperatingPoints",
        "PaperRounds",
        "Plan",
        "PowerLawRounds",
        "Recipe",
        "RoundsModel",
        "Run",
        "Scenario",
        "SparseUpdate",
        "TargetOutOfReachError",
        "codec",
        "compare",
        "loggers",
        "resume",
        "schemes",
        "solve",
        "train",
        "tune",
    ]
    for name in fewjoules.__all__:
        assert getattr(fewjoules, name) is not None
