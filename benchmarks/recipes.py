"""What tuning brings beside every baseline: python benchmarks/recipes.py STUDY ... --out recipes.jsonl

For each study (a task and the costs of its devices) this tunes a recipe with the usual budget and with a quarter of it,
tunes the step size of the paper's plan and of every baseline by one rule, and trains all of them with several seeds to
the target accuracy on the test set. The rule: the step size that reaches the target in the fewest rounds on data kept
aside, with the seed of tuning, in steps of a factor of 2 from a usual one on, until a larger one is worse or diverges.
Every finished piece of work is one line of the file; a second start goes on. ``--report`` prints tables of the file.
"""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from report import describe_run, print_table

TUNING_SEED = 1000
Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A scenario, a target, and the joules of FlexibleSpar in docs/reproduction.md."""

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


_GROUPS = {'architecture = "resnet20"': 'architecture = "resnet20-gn"'}
STUDIES = {
    "digits": Study(
        scenario="embedded", target=0.95, seeds=3, most_steps=1500, data="digits", precision="float32", first_rate=0.1
    ),
    "mnist": Study(
        scenario="fig2cd.toml", target=0.985, seeds=5, most_steps=2000, data="mnist", reproduced_joules=27.1
    ),
    "mnist-lte": Study(
        scenario="fig2cd-lte.toml",
        target=0.985,
        seeds=5,
        most_steps=2000,
        data="mnist",
        bit_scale=1000.0,
        reproduced_joules=51.3,
    ),
    "mnist-phones": Study(scenario="phones", target=0.985, seeds=5, most_steps=2500, data="mnist-phones"),
    "mnist-dirichlet": Study(
        scenario="fig2cd-dirichlet.toml", target=0.985, seeds=5, most_steps=2500, data="mnist-dirichlet"
    ),
    "writers": Study(scenario="fig2cd-writers.toml", target=0.985, seeds=5, most_steps=2000, data="writers"),
    "cifar10": Study(
        scenario="fig2ab.toml",
        target=0.65,
        seeds=3,
        most_steps=3000,
        data="cifar10",
        precision="bf16",
        evaluate_steps=50,
        changes=_GROUPS,
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
        changes=_GROUPS,
    ),
}
LOCAL_MOMENTUM = {"inner": "momentum", "momentum": 0.9, "compressor": "none", "error_feedback": False}
BASELINES: dict[str, tuple[str | None, dict[str, Any], float]] = {  # preset, or options; usual step size
    "dense SGD": (None, {"local_steps": 1, "compressor": "none", "error_feedback": False}, 0.1),
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
    from fewjoules_reproduction.embedded import embedded_scenario

    scenario = embedded_scenario(study.scenario)
    text = scenario.text
    for old, new in study.changes.items():
        assert old in text
        text = text.replace(old, new)
    return Scenario.from_text(text, scenario.name, scenario.folder)


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
        from fewjoules.runs.task import varied
        from fewjoules.tuning.aim import Aim

        aim = Aim("accuracy", self.study.target)
        options = self.task.training.options(self.scenario.files) | {"precision": self.precision}
        lab = Pilots(varied(self.task, seed=TUNING_SEED), options, aim, seed=TUNING_SEED)
        lab._graphs = self.graphs
        return lab, aim

    def tune(self, part: float) -> Record:
        """Tune a recipe with a part of the usual budget."""
        from fewjoules.planner.schemes import flexible
        from fewjoules.tuning.books import Budget
        from fewjoules.tuning.planning import FleetPlanning
        from fewjoules.tuning.tuner import Tuner

        lab, aim = self.pilots()
        base = flexible(self.scenario.problem())
        planning = FleetPlanning(self.scenario.problem())
        tuner = Tuner(
            lab,
            planning,
            aim,
            self.study.first_rate,
            budget=Budget(trainings=4.0 * part),
            prior_steps=base.rounds * base.local_steps if self.study.scenario in ("embedded",) else None,
        )
        found = tuner.tune()
        plan = found.plan
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
            "bits": [float(planning.sizes[found.message].bits(plan.parameters, one)) for one in plan.sparsity[[0, -1]]],
            "pilot_client_steps": found.client_steps,
            "pilot_joules": found.joules,
            "share": found.client_steps / (plan.rounds * plan.local_steps * lab.clients),
            "notes": list(found.notes),
            "pilots": [
                {
                    "options": dict(one.spec.options),
                    "H": one.spec.local_steps,
                    "sparsity": float(np.mean(one.spec.sparsity)),
                    "steps": one.local_steps_taken,
                    "loss": one.final_loss() if one.alive else None,
                    "metric": aim.best(one),
                    "reached": one.reached,
                }
                for one in found.pilots
            ],
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
        return options, H, [sparsity] * clients, rate

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

    def run(self, options: Record, H: int, sparsity: list[float], seed: int) -> Record:
        """Train an entry on all data to the target on the test set; return what it took."""
        from fewjoules.engine.algorithm.options import TrainingOptions, overridden
        from fewjoules.runs.task import varied
        from fewjoules.runs.training import train_task

        task = varied(self.task, seed=seed)
        given = self.task.training.options(self.scenario.files)
        given |= {"seed": seed, "precision": self.precision, "target_accuracy": self.study.target}
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
            "reached": training.reason == "target accuracy",
            "reason": training.reason,
            "rounds": training.rounds,
            "steps": training.rounds * H,
            "message_bits": 8.0 * float(rows["payload_bytes"].mean()) if rows.size else None,
            "joules": {kind: float(np.nansum(rows[f"{kind}_joules"])) for kind in kinds},
            "returns": list(training.simulator.state.returns),
            "seconds": round(time.monotonic() - began, 2),
        }


_benches: dict[str, Bench] = {}


def work(job: Record, device: str, data_dir: str | None) -> Record:
    """Do one piece of work in this process."""
    import torch

    began = time.monotonic()
    torch.set_num_threads(1 if device == "cuda" else 2)
    if job["study"] not in _benches:
        _benches[job["study"]] = Bench(job["study"], device, data_dir)
    bench = _benches[job["study"]]
    try:
        if job["kind"] == "tune":
            found = bench.tune(job["part"])
        elif job["kind"] == "rate":
            found = bench.rate(job["entry"])
        else:
            found = bench.run(job["options"], job["H"], job["sparsity"], job["seed"])
    except Exception as error:
        import traceback

        found = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-1500:]}
    return job | {"found": found, "work_seconds": round(time.monotonic() - began, 2)}


def key_of(job: Record) -> str:
    """Return what tells a job from the others."""
    names = ("study", "kind", "part", "entry", "seed", "options", "H", "sparsity")
    return json.dumps({name: job.get(name) for name in names}, sort_keys=True)


def first_jobs(names: list[str]) -> list[Record]:
    """Return the tunings and the searches of step sizes; baselines of shared data are searched once."""
    jobs: list[Record] = []
    seen = set()
    for name in names:
        study = STUDIES[name]
        jobs += [{"study": name, "kind": "tune", "part": part} for part in (1.0, 0.25)]
        jobs.append({"study": name, "kind": "rate", "entry": "flexible"})
        if study.data not in seen:
            seen.add(study.data)
            jobs += [{"study": name, "kind": "rate", "entry": entry} for entry in BASELINES]
    return jobs


def trainings_of(record: Record) -> list[Record]:
    """Return the trainings of what a tuning or a search of a step size found."""
    study, found = STUDIES[record["study"]], record["found"]
    if record["kind"] == "tune":
        entry = "fewest" if record["part"] == 1.0 else "fewest, a quarter of the budget"
        options, H, sparsity = dict(found["options"]), found["H"], found["sparsity"]
        if found["downlink_sparsity"] is not None:
            options["downlink_sparsity"] = found["downlink_sparsity"]
    else:
        entry = record["entry"]
        options, H, sparsity, _ = entry_of(record["study"], entry)
        options = options | {"learning_rate": found["rate"]}
    same = {"study": record["study"], "kind": "run", "entry": entry, "options": options, "H": H, "sparsity": sparsity}
    return [same | {"seed": seed} for seed in range(study.seeds)]


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
        record = done.get(key_of(job))
        if record is None:
            waiting.add(pool.submit(work, job, given.device, given.data_dir))
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
            with given.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
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
        print(f"\n{name}: to {study.target:.1%} on the test set, {study.seeds} seeds")
        totals: dict[str, list[float]] = {}
        facts: dict[str, Record] = {}
        for record in done.values():
            shared = STUDIES[record["study"]].data == study.data
            own = record["study"] == name
            if record["kind"] != "run" or "error" in record["found"]:
                continue
            if not own and not (shared and record["entry"] in BASELINES):
                continue
            found = record["found"]
            scale = study.bit_scale / STUDIES[record["study"]].bit_scale
            joules = sum(value * (scale if kind == "uplink" else 1.0) for kind, value in found["joules"].items())
            totals.setdefault(record["entry"], []).append(joules if found["reached"] else math.inf)
            facts[record["entry"]] = record
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
                    f"{mean[entry] / base:.3g}",
                    "" if study.reproduced_joules is None else f"{mean[entry] / study.reproduced_joules:.3g}",
                ]
            )
        header = ["entry", "H", "sparsity", "step size", "J", "least to most", "met", "x flexible", "x reproduced"]
        print_table(header, rows)
        for record in done.values():
            if record["study"] == name and record["kind"] == "tune":
                found = record["found"]
                if "error" in found:
                    print(f"  tuning with {record['part']:g} of the budget failed: {found['error']}")
                    continue
                print(f"  {tuning_sentence(record, done)}")


def tuning_sentence(record: Record, done: dict[str, Record]) -> str:
    """Return what a tuning found, what it cost, and how well it predicted the trainings."""
    found = record["found"]
    entry = "fewest" if record["part"] == 1.0 else "fewest, a quarter of the budget"
    runs = [one["found"] for one in done.values() if one.get("entry") == entry and one["study"] == record["study"]]
    seen = [one for one in runs if one.get("reached")]
    rounds, bits = (float(np.mean([one[key] for one in seen] or [math.nan])) for key in ("rounds", "message_bits"))
    return (
        f"budget {record['part']:g}: {found['optimiser']}, step size {found['options']['learning_rate']:.3g}, "
        f"{found['message']}, H {found['H']}; "
        f"pilots took {found['share']:.2f} trainings and {found['pilot_joules']:.3g} J; "
        f"rounds predicted {found['rounds']:.4g}, measured {rounds:.4g}; joules predicted {found['joules']:.4g}; "
        f"bits of a message predicted {np.mean(found['bits']):.4g}, measured {bits:.4g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=STUDIES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-dir")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e6, help="stop after so long; a second start goes on")
    parser.add_argument("--only", help="only jobs whose kind or entry is one of these, separated by commas")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    given = parser.parse_args()
    given.until = time.monotonic() + given.seconds
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    done = {key_of(record): record for record in map(json.loads, lines) if "error" not in record["found"]}
    wanted = None if given.only is None else set(given.only.split(","))

    if not given.report:
        jobs = first_jobs(given.studies)
        carry_out([job for job in jobs if wanted is None or {job["kind"], job.get("entry")} & wanted], given, done)
    run = describe_run(
        "python benchmarks/recipes.py " + " ".join(sys.argv[1:]), 0, os.cpu_count() or 1, ("numpy", "torch")
    )
    print(f"{run['command']}\ncommit {run['git_commit']}, {run['started']}\n{run['machine']}")
    report(given.studies, done)


if __name__ == "__main__":
    main()
