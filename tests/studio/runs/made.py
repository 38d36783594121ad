"""A folder with real small results of every kind: runs with hostile names, a comparison over seeds, a tuning."""

import shutil
from pathlib import Path

from tests.scenario.test_training_scenario import ROUNDS, trained_with
from tests.test_bad_input import run, write

HOSTILE = "<script>alert(1)</script>"
FOLDER = f"{HOSTILE[:7]}b>ü日本".replace("/", "")  # a name that a file system takes


def hostile_text(*lines: str, rounds: int = 5) -> str:
    """The small scenario with a device whose name is a script."""
    text = trained_with(*lines).replace(ROUNDS, f"rounds = {rounds}")
    assert 'name = "near"' in text
    return text.replace('name = "near"', f'name = "{HOSTILE}"')


def make_results(folder: Path) -> Path:
    """Train, compare and tune the small scenario below a folder."""
    file = write(folder, hostile_text(), f"{HOSTILE[:8]}.toml")
    assert run("train", file, "--device", "cpu", "--out", folder / FOLDER).exit_code == 0
    text = write(folder, trained_with("target_accuracy = 0.5").replace(ROUNDS, "rounds = 8"), "small.toml")
    done = run(
        "compare", text, "--device", "cpu", "--schemes", "flexible,fedavg", "--seeds", 3, "--out", folder / "sides"
    )
    assert done.exit_code == 0, done.stderr
    assert (
        run("train", text, "--device", "cpu", "--scheme", "unified", "--out", folder / "deep" / "er" / "one").exit_code
        == 0
    )
    tuned = write(folder, trained_with("target_accuracy = 0.8"), "tune.toml")
    assert (
        run("tune", tuned, "--device", "cpu", "--folder", folder / "tuning", "--out", folder / "tuned.toml").exit_code
        == 0
    )
    return folder


def copied(source: Path, target: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(source, target, symlinks=True)
    return target
