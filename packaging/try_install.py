"""Install the wheels of a folder into empty virtual environments and use them as a new user would.

python packaging/try_install.py dist [--python python3.13] [--torch torch==2.13.0]

Without --torch only the plain install is tried; with it also the extra train and the reproduction.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

CODEC = """
import numpy as np, fewjoules as fj
from fewjoules.codec.compressors import top_k
update, residual = np.random.default_rng(0).standard_normal((2, 10_000), dtype=np.float32)
sent, residual = top_k(update, residual, k=100)
assert fj.codec.decode(fj.codec.encode(sent, values="float32"), max_size=sent.size) == sent
"""


class Environment:
    """A virtual environment, and a folder without any file of the repository to work in."""

    def __init__(self, folder: Path, python: str) -> None:
        """Make the environment with the interpreter named."""
        self.folder, self.bin = folder, folder / "environment" / "bin"
        folder.mkdir()
        subprocess.run([python, "-m", "venv", str(folder / "environment")], check=True)

    def install(self, *requirements: str) -> None:
        """Install by pip."""
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)

    def run(self, *words: str, refused: str | None = None) -> str:
        """Run a program of the environment; it must succeed, or be refused with code 2 and this sentence."""
        command = [str(self.bin / words[0]), *words[1:]]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        right = done.returncode == (0 if refused is None else 2) and (refused or "") in done.stderr
        if not right:
            raise SystemExit(f"error: {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        if words[0] == "fewjoules":
            text = (done.stderr if refused else done.stdout).strip().splitlines()
            print(f"  $ {' '.join(words)}\n    {text[-1][:100] if text else ''}", flush=True)
        return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path, help="the folder with the wheels")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to try (this one)")
    parser.add_argument("--torch", help="PyTorch to install first, such as torch==2.13.0")
    options = parser.parse_args()
    wheel, reproduction = (
        str(next(options.dist.absolute().glob(f"{name}-*.whl"))) for name in ("fewjoules", "fewjoules_reproduction")
    )
    version = subprocess.run([options.python, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        print(f"{version}, pip install fewjoules")
        try_plain(Environment(Path(folder, "plain"), options.python), wheel)
        if options.torch is not None:
            print(f"{version}, {options.torch}, pip install 'fewjoules[train]' fewjoules-reproduction")
            try_training(Environment(Path(folder, "train"), options.python), wheel, reproduction, options.torch)


def try_plain(environment: Environment, wheel: str) -> None:
    environment.install(wheel)
    for command in ("--version", "profiles", "plan", "plan --scheme all", "plan --plot ridge.png", "plan --json"):
        environment.run("fewjoules", *command.split())
    environment.run("python", "-c", CODEC)
    environment.run("fewjoules", "train", refused="fewjoules train needs PyTorch: pip install 'fewjoules[train]'")
    environment.run("fewjoules", "reproduce", refused="fewjoules-reproduction")


def try_training(environment: Environment, wheel: str, reproduction: str, torch: str) -> None:
    environment.install(torch)
    environment.install(f"{wheel}[train]", reproduction)
    environment.run("fewjoules", "compare", "--out", "comparison")
    environment.run("fewjoules", "train", "--out", "run")
    environment.run("fewjoules", "reproduce", "fig1a", "--out", "reproduction")
    for file in ("comparison/page.html", "run/ledger.parquet", "run/model.safetensors", "reproduction"):
        if not (environment.folder / file).exists():
            raise SystemExit(f"error: {file} was not written")


if __name__ == "__main__":
    main()
