"""A whole deployment on this machine: a SuperLink and three SuperNodes with TLS and keys train the digits model.

python examples/flower/demo.py [--rounds 10] [--folder deploy-demo]
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from fewjoules.integrations.flower.loopback import Loopback
from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER
from fewjoules.provenance import KINDS

APP = Path(__file__).parent
COSTS = ({"joules-per-bit": 2e-7}, {"joules-per-bit": 4e-7}, {"joules-per-bit": 8e-7})
RUN_SECONDS = 900.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Train the digits model on three Flower nodes of this machine.")
    parser.add_argument("--rounds", type=int, default=10, help="rounds to train (10)")
    parser.add_argument("--folder", type=Path, default=Path("deploy-demo"), help="for everything (deploy-demo)")
    options = parser.parse_args()
    console, folder = Console(), options.folder.absolute()
    if folder.exists():
        shutil.rmtree(folder)
    console.print(f"Starting a SuperLink and three SuperNodes with TLS and keys in {options.folder} ...")
    began = time.monotonic()
    with Loopback(folder / "flower", node_configs(folder)) as deployment:
        console.print(f"All three are online after {time.monotonic() - began:.0f} s, at https://{deployment.address}.")
        run = deployment.run(APP, {"folder": str(folder / "run"), "rounds": options.rounds, "min-replies": 3})
        watch(run, console)
        if run.wait(60.0) != 0:
            console.print(run.log_text()[-3000:])
            return 1
    print_ledger(folder / "run", console)
    console.print("Everything that was started has been stopped.")
    return 0


def node_configs(folder: Path) -> list[dict[str, str | int | float]]:
    return [
        {
            "client-id": f"node-{number}",
            "device": number,
            "state-dir": str(folder / f"state-{number}"),
            "joules-per-step": 0.001,
            **cost,
        }
        for number, cost in enumerate(COSTS)
    ]


def watch(run, console: Console) -> None:
    """Show the lines of the strategy as a table that grows with every round."""
    table = Table("round", "train loss", "accuracy", "uploads so far", "joules so far")
    with Live(table, console=console, refresh_per_second=4):
        for line in run.lines(RUN_SECONDS):
            text = line.split("INFO", 1)[-1].strip("\x1b[0m :\n\t").strip()
            if text.startswith("round ") and "train loss" in text:
                table.add_row(*cells(text))
            elif text.startswith(("plan ", "client ", "finished", "going on")):
                console.print(text)


def cells(text: str) -> list[str]:
    """Return the cells of 'round 1: train loss 2.1, accuracy 35 %, 3 kB of uploads so far, 2 J so far'."""
    number, rest = text.removeprefix("round ").split(": ", 1)
    parts = [part.strip() for part in rest.split(", ")]
    found = {word: next((part for part in parts if word in part), "") for word in ("loss", "accuracy", "kB", " J")}
    return [
        number,
        found["loss"].removeprefix("train loss "),
        found["accuracy"].removeprefix("accuracy "),
        found["kB"].removesuffix(" of uploads so far"),
        found[" J"].removesuffix(" so far"),
    ]


def print_ledger(folder: Path, console: Console) -> None:
    rows = read_table(folder / "ledger.parquet", LEDGER)
    table = Table("client", "rounds", "entries a round", "bytes up", "bytes down", "joules", title="Ledger")
    for device in np.unique(rows["device"]):
        own = rows[rows["device"] == device]
        joules = sum(own[f"{kind}_joules"].sum() for kind in KINDS)
        table.add_row(
            f"node-{device}",
            str(own.size),
            f"{own['entries'].mean():.0f}",
            f"{own['payload_bytes'].sum():,}",
            f"{own['downlink_bytes'].sum():,}",
            f"{joules:.4g}",
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
