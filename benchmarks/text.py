"""Text by role, in joules, bits and seconds: python benchmarks/text.py STUDY ... --out text.jsonl

For each study (recipe_studies.py: a character transformer or an LSTM on phones with one of Shakespeare's roles each)
this measures rounds laws by six pilots each, plans with them, tunes a recipe, finds step sizes for DiLoCo, SparseLoCo,
DGC and dense SGD by the rule of recipes.py, and trains all of them to the same test loss. ``--speed`` measures the
simulator beside the plain loop and a vmap instead. Every finished piece of work is one line of the file; a second start
goes on. ``--report`` prints tables of the file, ``--figure FILE`` draws joules over bits of the first study. On a GPU:

    python benchmarks/text.py gpt lstm --out text.jsonl --device cuda
    python benchmarks/text.py gpt lstm --out text.jsonl --device cuda --speed
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import recipes
import text_figure
from recipe_studies import TEXT_STUDIES
from report import describe_run, print_table

Record = dict[str, Any]
CLIENTS = (10, 40)
TURNS = {"cpu": 5, "cuda": 4}


def speed_jobs(studies: list[str], device: str) -> list[Record]:
    """Return what is measured: each network in float32 with 10 clients, on a GPU also in bf16 and with 40."""
    models = [model for name in studies for model in ({"gpt-tiny": ["gpt-tiny", "lstm-tiny"]}.get(name) or [name])]
    precisions, clients = (("float32",), CLIENTS[:1]) if device == "cpu" else (("float32", "bf16"), CLIENTS)
    return [
        {"kind": "speed", "study": model, "clients": number, "precision": precision, "device": device}
        for model in dict.fromkeys(models)
        for precision in precisions
        for number in clients
    ]


def speed_key(job: Record) -> str:
    """Return what tells a measurement from the others."""
    return json.dumps([job[name] for name in ("study", "clients", "precision", "device")])


def measure_speeds(given: Any, done: dict[str, Record]) -> None:
    """Measure what is missing and write each down."""
    import torch
    from rivals.task import Task
    from text_speed import speeds

    device = "cuda" if given.device == "auto" and torch.cuda.is_available() else given.device.replace("auto", "cpu")
    torch.set_num_threads(given.threads)
    for job in speed_jobs(given.studies, device):
        if speed_key(job) not in done:
            task = Task(job["study"], job["clients"], job["precision"], device, 0)
            record = job | {"found": speeds(task, TURNS[device])}
            done[speed_key(job)] = record
            recipes.note(given.out, record)


def report_speeds(done: dict[str, Record]) -> None:
    """Print the local steps a second of all clients together."""
    rows = []
    for record in done.values():
        found = record["found"]
        speed = found["steps_per_second"]
        ratios = (f"{speed['simulator'] / speed[name]:.2f}" for name in ("loop", "vmap"))
        steps = (f"{speed[name]:.4g}" for name in ("loop", "vmap", "simulator"))
        about = (record["study"], f"{found['parameters']:,}", str(record["clients"]), record["precision"])
        rows.append([*about, *steps, *ratios, f"{record['device']}, {found['execution']}"])
    header = ["network", "parameters", "clients", "precision", "loop", "vmap", "simulator", "x loop", "x vmap", "how"]
    print("\nlocal steps a second (on a processor: of its own time), median of turns")
    print("batches of 32, 5 local steps a round, sparsity 100; the simulator also counts messages and keeps a ledger")
    print_table(header, rows)


def main() -> None:
    parser = recipes.parser(__doc__, TEXT_STUDIES)
    parser.add_argument("--speed", action="store_true", help="measure the speed of the simulator and its rivals only")
    parser.add_argument("--figure", type=Path, help="draw the first study into this file (png, pdf or svg)")
    given = parser.parse_args()
    done = recipes.finished(given.out)
    fast = {speed_key(one): one for one in done.values() if one["kind"] == "speed"}
    if given.speed and not given.report:
        measure_speeds(given, fast)
    elif not given.report:
        recipes.carry_out_studies(given, done)
    command = "python benchmarks/text.py " + " ".join(sys.argv[1:])
    run = describe_run(command, recipes.TUNING_SEED, given.threads * given.processes, ("numpy", "torch"))
    print(f"{run['command']}\ncommit {run['git_commit']}, {run['started']}\n{run['machine']} {os.cpu_count()} cores")
    recipes.report(given.studies, {key: one for key, one in done.items() if one["kind"] != "speed"})
    if fast:
        report_speeds(fast)
    if given.figure is not None:
        study = given.studies[0]
        target = TEXT_STUDIES[study].target
        title = f"{study}: joules and bits to a test loss of {target:g} nats a character"
        text_figure.draw(done.values(), study, title, given.figure)


if __name__ == "__main__":
    main()
