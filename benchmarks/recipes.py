"""What tuning brings beside every baseline: python benchmarks/recipes.py STUDY ... --out recipes.jsonl

For each study (a task and the costs of its devices) this tunes a recipe with the usual budget and with a quarter of it,
tunes the step size of the paper's plan and of every baseline by one rule, and trains all of them with several seeds to
the target accuracy on the test set. The rule: the step size that reaches the target in the fewest rounds on data kept
aside, with the seed of tuning, in steps of a factor of 2 from a usual one on, until a larger one is worse or diverges.
Tuned recipes are also trained to the target on data kept aside, as pilots are, to compare predictions like with like,
and with their last model handed out instead of the mean of recent ones; some of the others with the mean.
Every finished piece of work is one line of the file; a second start goes on. ``--report`` prints tables of the file.

All of it on a GPU, as many processes at once as fit (under MPS they share it well; each loads its own data, and
trainings of 12 clients leave most of a large GPU idle), CIFAR-10 first since it takes longest:

    nvidia-cuda-mps-control -d
    python benchmarks/recipes.py cifar10 cifar10-lte mnist mnist-lte mnist-phones mnist-dirichlet writers \\
        --device cuda --processes 14 --data-dir DATA --seconds 570 --out recipes.jsonl
    python benchmarks/recipes.py ... --report --out recipes.jsonl > results/recipes.txt

It needs DATA/mnist and DATA/cifar-10-batches-bin, the files of the official archives. Give the file of an earlier call
again to go on where ``--seconds`` ended it. On a processor: ``--device cpu --processes N``, one core each.
"""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from recipe_studies import BASELINES, STUDIES, scenario_of
from report import describe_run, print_table

from fewjoules.tuning.arms import AVERAGING

TUNING_SEED = 1000
ASIDE_SEEDS = 3  # trainings that are judged by data kept aside, as pilots are
_LAW_CELLS = ((1, 1.0), (8, 1.0), (32, 1.0), (8, 20.0), (1, 100.0), (32, 100.0))  # H and sparsity of the pilots
_LAW_NOISE = 0.1  # standard deviation of ln(steps) from seed to seed, assumed
_ALSO_AVERAGED = ("flexible", "local momentum [YU19]", "slowmo")  # also hand out the mean of recent models
_KINDS = ("tune", "law", "rate", "run")  # of work, what others wait for first
Record = dict[str, Any]


class Bench:
    """The task of one study in this process."""

    def __init__(self, name: str, device: str, data_dir: str | None) -> None:
        """Load the data."""
        from fewjoules.runs.device import choose_device
        from fewjoules.runs.task import prepare

        self.study = STUDIES[name]
        self.scenario = scenario_of(self.study)
        self.task = prepare(self.scenario, choose_device(device), data_dir)
        self.precision = self.study.precision if self.task.device.type == "cuda" else "float32"
        self.graphs: dict[Any, Any] = {}

    def pilots(self) -> Any:
        """Return the laboratory of tuning."""
        from fewjoules.runs.pilots import Pilots
        from fewjoules.runs.task import new_model, varied
        from fewjoules.tuning.aim import Aim

        aim = Aim(self.study.metric, self.study.target)
        options = self.task.training.options(self.scenario.files) | {"precision": self.precision}
        task = varied(self.task, seed=TUNING_SEED)
        lab = Pilots(task, options, aim, seed=TUNING_SEED, model_of=lambda seed: new_model(task, seed))
        lab._graphs = self.graphs
        return lab, aim

    def tuner(self, lab: Any, aim: Any, trainings: float) -> Any:
        """Return a tuner that may spend so many times the client-steps of the training that it plans."""
        from fewjoules.planner.schemes import flexible
        from fewjoules.runs.tuning import scenario_batches
        from fewjoules.tuning.books import Budget
        from fewjoules.tuning.planning import FleetPlanning
        from fewjoules.tuning.tuner import Tuner

        base = flexible(self.scenario.problem())
        return Tuner(
            lab,
            FleetPlanning(self.scenario.problem(), batches=scenario_batches(self.scenario, self.task)),
            aim,
            self.study.first_rate,
            budget=Budget(trainings=trainings),
            prior_steps=base.rounds * base.local_steps if self.study.scenario in ("embedded",) else None,
        )

    def tune(self, part: float) -> Record:
        """Tune a recipe with a part of the usual budget."""
        from fewjoules.engine.models.networks import statistics_count
        from fewjoules.tuning.books import USUAL_TRAININGS

        lab, aim = self.pilots()
        tuner = self.tuner(lab, aim, USUAL_TRAININGS * part)
        found = tuner.tune()
        plan = found.plan
        bits = tuner.planning.sizes[found.message].bits(plan.parameters, plan.sparsity)
        return {
            "optimiser": found.optimiser,
            "options": found.optimiser_options | found.message_options,
            "message": found.message,
            "H": plan.local_steps,
            "sparsity": plan.sparsity.tolist(),
            "downlink_sparsity": plan.downlink_sparsity,
            "rounds": plan.rounds,
            "joules": plan.energy_joules,
            "gap": plan.relative_gap,
            "law": [found.belief.law().tau, found.belief.law().c, found.belief.law().a, found.belief.law().q],
            "mean_bits": float(np.mean(bits)) + 32.0 * statistics_count(self.task.model),
            "pilot_client_steps": found.client_steps,
            "pilot_joules": found.joules,
            "share": found.client_steps / (plan.rounds * plan.local_steps * lab.clients),
            "notes": list(found.notes),
            "pilots": [
                {
                    "options": dict(one.spec.options),
                    "H": one.spec.local_steps,
                    "rounds": one.rounds,
                    "sparsity": float(np.mean(one.spec.sparsity)),
                    "steps": one.local_steps_taken,
                    "loss": one.final_loss() if one.alive else None,
                    "metric": aim.best(one),
                    "reached": one.reached,
                }
                for one in found.pilots
            ],
        }

    def law(self, name: str) -> Record:
        """Measure the rounds law of an optimiser by a few pilots, and plan ``flexible`` with it."""
        from fewjoules.planner.schemes import flexible
        from fewjoules.tuning.belief import Belief, Choice, Observation
        from fewjoules.tuning.pilot import PilotSpec

        lab, aim = self.pilots()
        options, seen, cells = self.study.laws[name], [], []
        for H, sparsity in _LAW_CELLS:
            everybody = (sparsity,) * lab.clients
            most = self.study.most_steps
            pilot = lab.train(PilotSpec(options=options, local_steps=H, sparsity=everybody, steps=most, to_target=True))
            steps = aim.steps_to_target(pilot)
            cells.append([H, sparsity, steps])
            if steps is not None:
                seen.append(Observation(Choice(H, (sparsity,)), steps, _LAW_NOISE))
        belief = Belief.prior(np.random.default_rng(TUNING_SEED)).after(*seen)
        law = belief.law()
        misfits = [math.log(one.steps / belief.predicted_steps(one.choice)[0]) for one in seen]
        plan = flexible(replace(self.scenario.problem(), rounds=law))
        return {
            "options": options,
            "H": plan.local_steps,
            "sparsity": plan.sparsity.tolist(),
            "downlink_sparsity": plan.downlink_sparsity,
            "rounds": plan.rounds,
            "joules": plan.energy_joules,
            "law": [law.tau, law.c, law.a, law.q],
            "cells": cells,
            "rms": float(np.sqrt(np.mean(np.square(misfits)))) if misfits else None,
        }

    def entry(self, name: str) -> tuple[dict[str, Any], int, list[float], float]:
        """Return options, H, sparsities and a usual step size of a baseline or of the paper's plan."""
        from fewjoules.engine.algorithm.presets import preset_options
        from fewjoules.planner.schemes import SCHEMES

        clients = len(self.scenario.fleet)
        if name in SCHEMES:
            plan = SCHEMES[name](self.scenario.problem())
            server = {} if plan.downlink_sparsity is None else {"downlink_sparsity": plan.downlink_sparsity}
            return {"inner": "sgd", **server}, plan.local_steps, plan.sparsity.tolist(), 0.1
        preset, own, rate = BASELINES[name]
        options = (preset_options(preset) if preset else {}) | own
        H, sparsity = int(options.pop("local_steps", 1)), float(options.pop("sparsity", 1.0))
        return options, H, [sparsity] * clients, self.study.rates.get(name, rate)

    def rate(self, name: str) -> Record:
        """Find the step size of an entry by the rule."""
        from fewjoules.tuning.pilot import PilotSpec

        lab, aim = self.pilots()
        options, H, sparsity, first = self.entry(name)
        tried: dict[float, float] = {}
        limit = self.study.most_steps

        def steps(rate: float) -> float:
            if rate not in tried:
                best = min([*tried.values(), float(limit)])
                most = max(H, min(limit, math.ceil(best)))
                server = options.get("downlink_sparsity")
                spec = PilotSpec(
                    options={k: v for k, v in options.items() if k != "downlink_sparsity"} | {"learning_rate": rate},
                    local_steps=H,
                    sparsity=tuple(sparsity),
                    downlink_sparsity=server,
                    steps=most,
                    to_target=True,
                )
                taken = aim.steps_to_target(lab.train(spec))
                tried[rate] = math.inf if taken is None else taken
            return tried[rate]

        rate = first
        for factor in (2.0, 0.5):
            start = rate
            while steps(rate * factor) < steps(rate) or (rate == start and factor == 0.5 and steps(rate) == math.inf):
                rate *= factor
                if rate < first / 64:
                    break
            if rate != start:
                break
        return {"rate": rate, "tried": {str(key): value for key, value in tried.items()}}

    def run(self, options: Record, H: int, sparsity: list[float], seed: int, *, aside: bool = False) -> Record:
        """Train an entry on all data to the target on the test set; return what it took.

        ``aside`` keeps a part of the training data aside instead and judges by it, as tuning does.
        """
        from fewjoules.engine.algorithm.options import TrainingOptions, overridden
        from fewjoules.runs.holdout import hold_out
        from fewjoules.runs.pilots import HELD_ASIDE
        from fewjoules.runs.task import varied
        from fewjoules.runs.training import train_task

        task = varied(self.task, seed=seed)
        task = hold_out(task, HELD_ASIDE, seed) if aside else task
        given = self.task.training.options(self.scenario.files)
        given |= {"seed": seed, "precision": self.precision, f"target_{self.study.metric}": self.study.target}
        given |= {"evaluate_every": max(1, round(self.study.evaluate_steps / H)), "channel": "average"}
        chosen = TrainingOptions.of(
            **overridden(given, options),
            local_steps=H,
            sparsity=np.array(sparsity),
            rounds=math.ceil(self.study.most_steps / H),
        )
        began = time.monotonic()
        training = train_task(task, chosen, graphs=self.graphs, keep_diverged=True)
        rows = training.loop.ledger.rows()
        kinds = ("uplink", "downlink", "tail", "compute", "codec")
        return {
            "reached": training.reason == f"target {self.study.metric}",
            "reason": training.reason,
            "rounds": training.rounds,
            "steps": training.rounds * H,
            "uplink_bits": 8.0 * float(rows["payload_bytes"].sum()),
            "downlink_bits": 8.0 * float(rows["downlink_bytes"].sum()),
            "message_bits": 8.0 * float(rows["payload_bytes"].mean()) if rows.size else None,
            "joules": {kind: float(np.nansum(rows[f"{kind}_joules"])) for kind in kinds},
            "returns": list(training.simulator.state.returns),
            "seconds": round(time.monotonic() - began, 2),
        }


_benches: dict[str, Bench] = {}


def work(job: Record, device: str, data_dir: str | None, threads: int) -> Record:
    """Do one piece of work in this process."""
    import torch

    began = time.monotonic()
    torch.set_num_threads(threads)
    if job["study"] not in _benches:
        _benches[job["study"]] = Bench(job["study"], device, data_dir)
    bench = _benches[job["study"]]
    try:
        if job["kind"] == "tune":
            found = bench.tune(job["part"])
        elif job["kind"] == "law":
            found = bench.law(job["entry"])
        elif job["kind"] == "rate":
            found = bench.rate(job["entry"])
        else:
            found = bench.run(job["options"], job["H"], job["sparsity"], job["seed"], aside=job.get("aside", False))
    except Exception as error:
        import traceback

        found = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-1500:]}
    return job | {"found": found, "work_seconds": round(time.monotonic() - began, 2)}


def key_of(job: Record) -> str:
    """Return what tells a job from the others."""
    names = (
        "study",
        "kind",
        "part",
        "entry",
        "seed",
        "options",
        "H",
        "sparsity",
        "clients",
        "precision",
        "device",
        "aside",
    )
    return json.dumps({name: job.get(name) for name in names}, sort_keys=True)


def first_jobs(names: list[str]) -> list[Record]:
    """Return the tunings, the searches of step sizes and the trainings of a grid's best recipes.

    Step sizes of baselines are searched once for studies of the same data.
    """
    jobs: list[Record] = []
    seen = set()
    for name in names:
        study = STUDIES[name]
        jobs += [{"study": name, "kind": "tune", "part": part} for part in study.parts]
        jobs += [{"study": name, "kind": "law", "entry": entry} for entry in study.laws]
        if not study.laws:
            jobs.append({"study": name, "kind": "rate", "entry": "flexible"})
        jobs += grid_trainings(name)
        if study.data not in seen:
            seen.add(study.data)
            jobs += [{"study": name, "kind": "rate", "entry": entry} for entry in study.baselines()]
    return sorted(jobs, key=lambda job: _KINDS.index(job["kind"]))


def grid_trainings(name: str) -> list[Record]:
    """Return the trainings of the best recipes of a grid."""
    study = STUDIES[name]
    clients = len(scenario_of(study).fleet) if study.grid else 0
    return [
        {"study": name, "kind": "run", "entry": entry, "options": options, "H": H, "sparsity": [sparsity] * clients}
        | {"seed": seed}
        for entry, (options, H, sparsity) in study.grid_best().items()
        for seed in range(study.seeds)
    ]


def entry_name(job: Record) -> str:
    """Return the entry that a first piece of work is for, as ``--only`` names it; "grid" for all of a grid."""
    if job["kind"] == "tune":
        return "fewest" if job["part"] == 1.0 else "quarter"
    return "grid" if job["kind"] == "run" else str(job["entry"])


def trainings_of(record: Record) -> list[Record]:
    """Return the trainings of what a tuning or a search of a step size found."""
    study, found = STUDIES[record["study"]], record["found"]
    if record["kind"] in ("tune", "law"):
        entry = "fewest" if record.get("part") == 1.0 else "fewest, a quarter of the budget"
        entry = record.get("entry", entry)
        options, H, sparsity = dict(found["options"]), found["H"], found["sparsity"]
        if found["downlink_sparsity"] is not None:
            options["downlink_sparsity"] = found["downlink_sparsity"]
    else:
        entry = record["entry"]
        options, H, sparsity, _ = entry_of(record["study"], entry)
        options = options | {"learning_rate": found["rate"]}
    same = {"study": record["study"], "kind": "run", "entry": entry, "options": options, "H": H, "sparsity": sparsity}
    runs = [same | {"seed": seed} for seed in range(study.seeds)]
    if entry == "fewest":
        runs += [one | {"entry": f"{entry}, last model", "options": options | {"averaging": 0.0}} for one in runs]
        runs += [same | {"seed": seed, "aside": True} for seed in range(ASIDE_SEEDS)]
    if entry in _ALSO_AVERAGED:
        runs += [one | {"entry": f"{entry}, mean", "options": options | {"averaging": AVERAGING}} for one in runs]
    return runs


def entry_of(study: str, name: str) -> tuple[dict[str, Any], int, list[float], float]:
    """Return what an entry trains with, without data."""
    bench = Bench.__new__(Bench)
    bench.study, bench.scenario = STUDIES[study], scenario_of(STUDIES[study])
    return bench.entry(name)


def carry_out(jobs: list[Record], given: argparse.Namespace, done: dict[str, Record]) -> None:
    """Do the jobs and the trainings of what they find, several at once, and write each down."""
    began, number = time.monotonic(), 0
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(given.processes, mp_context=context)
    waiting: set[concurrent.futures.Future[Record]] = set()

    def start(job: Record) -> None:
        if job.get("seed", 0) >= given.seeds:
            return
        record = done.get(key_of(job))
        if record is None:
            waiting.add(pool.submit(work, job, given.device, given.data_dir, given.threads))
        elif job["kind"] != "run":
            for run in trainings_of(record):
                start(run)

    for job in jobs:
        start(job)
    while waiting and time.monotonic() < given.until:
        ready, waiting = concurrent.futures.wait(waiting, 1.0, concurrent.futures.FIRST_COMPLETED)
        for future in ready:
            record = future.result()
            done[key_of(record)] = record
            note(given.out, record)
            number += 1
            names = (record.get(name, "") for name in ("study", "kind", "entry", "part", "seed"))
            told = f"{' '.join(str(name) for name in names)} {record['work_seconds']} s"
            error = record["found"].get("error", "")
            print(f"{time.monotonic() - began:5.0f} s  {number}, {len(waiting)} left  {told} {error}", file=sys.stderr)
            if record["kind"] != "run" and not error:
                for run in trainings_of(record):
                    start(run)
    for process in list(pool._processes.values()) if waiting else ():
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)


def report(names: list[str], done: dict[str, Record]) -> None:
    """Print a table for each study."""
    for name in names:
        study = STUDIES[name]
        target = f"{study.target:.1%}" if study.metric == "accuracy" else f"a {study.metric} of {study.target:g}"
        print(f"\n{name}: to {target} on the test set, up to {study.seeds} seeds")
        totals: dict[str, list[float]] = {}
        facts: dict[str, Record] = {}
        bits: dict[str, list[tuple[float, float]]] = {}
        for record in done.values():
            shared = STUDIES[record["study"]].data == study.data
            own = record["study"] == name
            if record["kind"] != "run" or "error" in record["found"] or record.get("aside"):
                continue
            if not own and not (shared and record["entry"].removesuffix(", mean") in BASELINES):
                continue
            found = record["found"]
            scale = study.bit_scale / STUDIES[record["study"]].bit_scale
            joules = sum(value * (scale if kind == "uplink" else 1.0) for kind, value in found["joules"].items())
            totals.setdefault(record["entry"], []).append(joules if found["reached"] else math.inf)
            facts[record["entry"]] = record
            sent = (found.get("uplink_bits", math.nan), found.get("downlink_bits", math.nan))
            bits.setdefault(record["entry"], []).append(sent)
        mean = {entry: float(np.mean(values)) for entry, values in totals.items()}
        base = mean.get("flexible", math.nan)
        rows = []
        for entry in sorted(mean, key=lambda one: mean[one]):
            values, fact = totals[entry], facts[entry]
            met = [value for value in values if math.isfinite(value)]
            rows.append(
                [
                    entry,
                    str(fact["H"]),
                    f"{min(fact['sparsity']):.3g} to {max(fact['sparsity']):.3g}",
                    f"{fact['options'].get('learning_rate', math.nan):.3g}",
                    f"{np.mean(met):.4g}" if met else "-",
                    f"{min(met):.4g} to {max(met):.4g}" if met else "-",
                    f"{len(met)} of {len(values)}",
                    *(f"{np.mean([one[way] for one in bits[entry]]) / 1e6:.4g}" for way in (0, 1)),
                    f"{mean[entry] / base:.3g}" if math.isfinite(mean[entry] + base) else "",
                    "" if study.reproduced_joules is None else f"{mean[entry] / study.reproduced_joules:.3g}",
                ]
            )
        header = [
            "entry",
            "H",
            "sparsity",
            "step size",
            "J",
            "least to most",
            "met",
            "Mb up",
            "Mb down",
            "x flexible",
            "x reproduced",
        ]
        print_table(header, rows)
        for record in done.values():
            if record["study"] == name and record["kind"] == "tune":
                found = record["found"]
                if "error" in found:
                    print(f"  tuning with {record['part']:g} of the budget failed: {found['error']}")
                    continue
                print(f"  {tuning_sentence(record, done)}")
            if record["study"] == name and record["kind"] == "law":
                print(f"  {law_sentence(record)}")


def law_sentence(record: Record) -> str:
    """Return the rounds law of an optimiser and the pilots that it was found by."""
    found = record["found"]
    tau, c, a, q = found["law"]
    cells = ", ".join(
        f"{H} x {sparsity:g}: {'-' if steps is None else f'{steps:g}'}" for H, sparsity, steps in found["cells"]
    )
    misfit = "" if found["rms"] is None else f", {found['rms']:.0%} rms"
    return f"{record['entry']}: tau {tau:.4g}, c {c:.3g}, a {a:.3g}, q {q:.3g}{misfit}; steps at H x sparsity {cells}"


def tuning_sentence(record: Record, done: dict[str, Record]) -> str:
    """Return what a tuning found, what it cost, and how well it predicted the trainings."""
    found = record["found"]
    seen = trainings_like(record, done, aside=False)
    bits = float(np.mean([one["message_bits"] for one in seen] or [math.nan]))
    told = (
        f"budget {record['part']:g}: {found['optimiser']}, step size {found['options']['learning_rate']:.3g}, "
        f"{found['message']}, H {found['H']}; "
        f"pilots took {found['share']:.2f} trainings and {found['pilot_joules']:.3g} J; "
        f"bits of a message predicted {found['mean_bits']:.4g}, measured {bits:.4g}"
    )
    for name, aside in (("on the test set", False), ("on data kept aside", True)):
        for kind in ("rounds", "joules"):
            told += f"\n    {kind} {prediction(kind, found[kind], trainings_like(record, done, aside=aside))} {name}"
    return told


def trainings_like(record: Record, done: dict[str, Record], *, aside: bool) -> list[Record]:
    """Return the trainings of a tuned recipe that reached the target, on the test set or on data kept aside."""
    entry = "fewest" if record["part"] == 1.0 else "fewest, a quarter of the budget"
    own = [one for one in done.values() if one.get("entry") == entry and one["study"] == record["study"]]
    return [one["found"] for one in own if one.get("aside", False) == aside and one["found"].get("reached")]


def prediction(kind: str, predicted: float, runs: list[Record]) -> str:
    """Return how a prediction compares with trainings: the mean, each of them, and by how much it is off."""
    values = [sum(one["joules"].values()) if kind == "joules" else float(one["rounds"]) for one in runs]
    if not values:
        return f"predicted {predicted:.4g}, not measured"
    mean = float(np.mean(values))
    return (
        f"predicted {predicted:.4g}, measured {mean:.4g} ({', '.join(f'{one:.4g}' for one in values)}), "
        f"off by {predicted / mean - 1.0:+.0%}"
    )


def parser(description: str | None, studies: Iterable[str]) -> argparse.ArgumentParser:
    """Return what reads the command line of a benchmark of studies."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("studies", nargs="+", choices=tuple(studies))
    found.add_argument("--out", type=Path, required=True)
    found.add_argument("--device", default="auto")
    found.add_argument("--data-dir")
    found.add_argument("--processes", type=int, default=2)
    found.add_argument("--threads", type=int, default=1, help="processor threads of each process")
    found.add_argument("--seconds", type=float, default=1e6, help="stop after so long; a second start goes on")
    found.add_argument("--only", help="only what leads to these entries (quarter: of the budget), separated by commas")
    found.add_argument("--seeds", type=int, default=1000, help="at most so many seeds of each entry")
    found.add_argument("--report", action="store_true", help="only print the tables")
    return found


def finished(file: Path) -> dict[str, Record]:
    """Return the work that the file holds, without what failed."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {key_of(record): record for record in map(json.loads, lines) if "error" not in record["found"]}


def note(file: Path, record: Record) -> None:
    """Write a finished piece of work down."""
    with file.open("a") as lines:
        lines.write(json.dumps(record) + "\n")


def carry_out_studies(given: argparse.Namespace, done: dict[str, Record]) -> None:
    """Do what is missing of the studies, until the time is over."""
    given.until = time.monotonic() + given.seconds
    wanted = None if given.only is None else given.only.split(",")
    jobs = first_jobs(given.studies)
    carry_out([job for job in jobs if wanted is None or entry_name(job) in wanted], given, done)


def main() -> None:
    given = parser(__doc__, STUDIES).parse_args()
    done = finished(given.out)
    if not given.report:
        carry_out_studies(given, done)
    run = describe_run(
        "python benchmarks/recipes.py " + " ".join(sys.argv[1:]), 0, os.cpu_count() or 1, ("numpy", "torch")
    )
    print(f"{run['command']}\ncommit {run['git_commit']}, {run['started']}\n{run['machine']}")
    report(given.studies, done)


if __name__ == "__main__":
    main()
