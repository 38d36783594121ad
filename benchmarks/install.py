"""What an install takes: megabytes, seconds, and how fast the command starts, for an older commit beside this one.

python benchmarks/install.py [--before 0ab0b49] [--torch 2.13.0] > results/install.txt

Each line is an empty virtual environment. All wheels are downloaded first, so that the seconds are those of pip's
own work and not of a network; PyTorch is pinned, since its size differs tenfold between builds.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
from datetime import UTC, datetime
from pathlib import Path

from report import git_commit, print_table, processor

ROOT = Path(__file__).parents[1]
SCENARIO = ROOT / "examples" / "paper-four-groups.toml"
STARTS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default="0ab0b49", help="the commit to compare with (0ab0b49)")
    parser.add_argument("--torch", default="2.13.0", help="the PyTorch of both (2.13.0)")
    options = parser.parse_args()
    command = f"python benchmarks/install.py --before {options.before} --torch {options.torch}"
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    print(f"Installs into empty virtual environments: {command}")
    print(f"{processor()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, Python "
          f"{platform.python_version()}, torch {options.torch}, {now}, commit {git_commit()[:7]}\n")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder, "before")
        before.mkdir()
        archive = subprocess.run(["git", "archive", options.before], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(before)], input=archive, check=True)
        cases = {
            f"{options.before}, pip install fewjoules": str(before),
            "now, pip install fewjoules": str(ROOT),
            "now, pip install 'fewjoules[train]'": f"{ROOT}[train]",
        }
        rows = [
            (name, *measured(Path(folder, str(number)), wanted, options.torch))
            for number, (name, wanted) in enumerate(cases.items())
        ]
    header = ("", "packages", "wheels, MB", "installed, MB", "pip, s", "import, s", "plan, s")
    print_table(header, rows)
    print("\nMB are 10^6 bytes. import and plan are the least of", STARTS, "starts of python -c 'import fewjoules' and")
    print(f"fewjoules plan examples/{SCENARIO.name}, the interpreter included, taken one after the other.")
    print("Wheels of PyTorch that bring CUDA take several times as many megabytes as this one.")


def measured(folder: Path, wanted: str, torch: str) -> list[str]:
    """Download, install and start one case; return the cells of its row."""
    wheels, environment = folder / "wheels", folder / "environment"
    pin = folder / "pin.txt"
    folder.mkdir()
    pin.write_text(f"torch=={torch}\n")
    pinned = ["--quiet", "--constraint", str(ROOT / "constraints.txt"), "--constraint", str(pin)]
    run(sys.executable, "-m", "pip", "wheel", *pinned, "--wheel-dir", str(wheels), wanted)
    venv.create(environment, with_pip=True)
    bare = megabytes(environment)
    python = environment / "bin" / "python"
    name = "fewjoules[train]" if wanted.endswith("[train]") else "fewjoules"
    began = time.perf_counter()
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(wheels), name)
    seconds = time.perf_counter() - began
    imports, plans = [], []
    for _ in range(STARTS):
        imports.append(timed(python, "-c", "import fewjoules"))
        plans.append(timed(environment / "bin" / "fewjoules", "plan", str(SCENARIO)))
    return [
        str(len(list(wheels.iterdir()))),
        f"{megabytes(wheels):,.0f}",
        f"{megabytes(environment) - bare:,.0f}",
        f"{seconds:.0f}",
        f"{min(imports):.2f}",
        f"{min(plans):.2f}",
    ]


def megabytes(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def timed(*words: str | Path) -> float:
    began = time.perf_counter()
    run(*words)
    return time.perf_counter() - began


def run(*words: str | Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, env=environment)


if __name__ == "__main__":
    main()
