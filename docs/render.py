"""Fill the pages of the reproduction with the numbers of results/reproduction: ``python docs/render.py [--check]``.

Each page NAME.md is made from NAME.template.md, where these are replaced:

{{value TABLE COLUMN key=value ... | FORMAT}}     one cell; ``key=a/b`` divides the cell of a by that of b,
                                                      ``key=least`` takes the row in which it is least
{{joules STUDY SETTING STEP TARGET | FORMAT}}     mean joules of the runs with that step size
{{tuned STUDY SETTING STEP | FORMAT}}             rounds to the pilot accuracy with that step size
{{claims FIGURE ...}}                             the claims about figures that begin so
{{verdicts}}                                      how many claims about each figure have each verdict
{{summary TABLE TARGET}}                          every setting at one target accuracy
{{pilots TABLE}}                                  rounds by H and sparsity
{{not-run}}                                       what has no record
{{diary}}                                         when, where and how the records were made
"""

import json
import math
import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from fewjoules_reproduction.claims import Claim, Verdict, claims_markdown
from fewjoules_reproduction.table import Table

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results" / "reproduction"
PAGES = ("reproduction", "reproduction-claims")
NAMES = {
    "flexible": "FlexibleSpar",
    "unified": "UnifiedSpar",
    "greedy": "GreedySpar",
    "synchronous": "SynSgdSpar",
    "dense": "dense SGD",
    "fedavg": "local SGD (FedAvg)",
    "flexible-paper": "FlexibleSpar by the paper's form",
    "flexible-bound": "FlexibleSpar by the bound",
    "qsgd": "QSGD",
    "qsparse": "Qsparse-local-SGD",
    "stc": "STC",
    "momentum": "local SGD with momentum",
    "adaptive": "adaptive local steps",
}


def table(name: str) -> Table:
    return Table.read_csv(RESULTS / f"{name}.csv")


def value(name: str, column: str, *conditions: str) -> float:
    wanted = dict(condition.split("=", 1) for condition in conditions)
    least = [key for key, text in wanted.items() if text == "least"]
    if least:
        others = [condition for condition in conditions if not condition.endswith("=least")]
        return float(min(_matching(name, others), key=lambda row: float(row[least[0]]))[column])
    for key, text in wanted.items():
        if "/" in text:
            above, below = (f"{key}={part}" for part in text.split("/"))
            others = [condition for condition in conditions if not condition.startswith(f"{key}=")]
            return value(name, column, above, *others) / value(name, column, below, *others)
    rows = _matching(name, conditions)
    if len(rows) != 1:
        raise SystemExit(f"{name} {column} {' '.join(conditions)}: must be one row, got {len(rows)}")
    return float(rows[0][column])


def _matching(name: str, conditions: Sequence[str]) -> list[dict[str, object]]:
    wanted = dict(condition.split("=", 1) for condition in conditions)
    return [row for row in table(name).rows() if all(_same(row[key], text) for key, text in wanted.items())]


def _same(cell: object, text: str) -> bool:
    return str(cell) == text if isinstance(cell, str) else math.isclose(float(str(cell)), float(text))


def joules(study: str, setting: str, step: str, target: str) -> float:
    found = []
    for file in sorted((RESULTS / "runs" / study).glob(f"run-{setting}-rate{step}-seed*.json")):
        curve = json.loads(file.read_text(encoding="utf-8"))["curve"]
        found.append(
            next(j for j, a in zip(curve["total_joules"], curve["test_accuracy"], strict=True) if a >= float(target))
        )
    return sum(found) / len(found)


def tuned(study: str, setting: str, step: str) -> float:
    record = json.loads((RESULTS / "runs" / study / f"tune-{setting}.json").read_text(encoding="utf-8"))
    return next(float(one["rounds"]) for one in record["tried"] if math.isclose(one["learning_rate"], float(step)))


def claims(*figures: str) -> str:
    return claims_markdown([claim for claim in _all_claims() if claim.figure.startswith(figures)])


def verdicts() -> str:
    counts = Counter((claim.figure, claim.verdict) for claim in _all_claims())
    kinds = get_args(Verdict)
    lines = [_line(["figure", *kinds]), "|---" * (len(kinds) + 1) + "|"]
    for figure in dict.fromkeys(claim.figure for claim in _all_claims()):
        lines.append(_line([figure, *(counts[figure, kind] for kind in kinds)]))
    return "\n".join(lines) + "\n"


def _all_claims() -> list[Claim]:
    return [Claim(**row) for row in table("claims").rows()]


def summary(name: str, target: str) -> str:
    header = ("scheme", "H", "sparsity", "step size", "rounds predicted", "measured", "joules predicted", "measured")
    lines = [
        _line((*header, "minimum to maximum", "times FlexibleSpar", "final accuracy")),
        "|---" * (len(header) + 3) + "|",
    ]
    rows = [row for row in table(name).rows() if _same(row["target"], target)]
    for row in sorted(rows, key=lambda row: list(NAMES).index(str(row["setting"]))):
        low, high = (float(row[f"{end}_sparsity"]) for end in ("smallest", "largest"))
        cells = [NAMES[str(row["setting"])], f"{row['local_steps']}"]
        cells.append(_number(low) if low == high else f"{_number(low)} to {_number(high)}")
        if row["seeds"] == 0:
            lines.append(_line((*cells, *["not run"] * 8)))
            continue
        known = {key: _number(float(row[key])) for key in row if key not in ("setting",)}
        missed = f"{row['reached']} of {row['seeds']} seeds" if row["reached"] != row["seeds"] else ""
        spread = f"{known['joules_min']} to {known['joules_max']}"
        accuracy = f"{100 * float(row['final_accuracy_mean']):.2f} %"
        diverged = f"{row['diverged']} of {row['seeds']} diverged" if row["diverged"] else ""
        cells += [known["learning_rate"], known["predicted_rounds"], missed or known["rounds_mean"]]
        cells += [known["predicted_joules"], missed or known["joules_mean"], "" if missed else spread]
        cells += [known["ratio_to_flexible"], diverged or accuracy]
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def pilots(name: str) -> str:
    rows = table(name).rows()
    sparsities = sorted({float(row["sparsity"]) for row in rows})
    lines = [_line(["H \\ sparsity", *(f"{one:g}" for one in sparsities)]), "|---" * (len(sparsities) + 1) + "|"]
    for steps in sorted({int(row["local_steps"]) for row in rows}):
        found = {float(row["sparsity"]): row["rounds"] for row in rows if row["local_steps"] == steps}
        lines.append(_line([str(steps), *(f"{found.get(one, math.nan):g}" for one in sparsities)]))
    return "\n".join(lines) + "\n"


def diary() -> str:
    lines = ["| when | command | trained | wall time | commit | machine |", "|---|---|---|---|---|---|"]
    for entry in map(json.loads, (RESULTS / "diary.jsonl").read_text(encoding="utf-8").splitlines()):
        if entry.get("trained"):
            machine = entry["machine"]
            where = machine["gpu"] or f"{machine['cores']} cores"
            seconds = f"{entry['wall_seconds']:,.0f} s"
            lines.append(
                _line([entry["time"], f"`{entry['command']}`", entry["trained"], seconds, entry["commit"], where])
            )
    return "\n".join(lines) + "\n"


def not_run() -> str:
    return (RESULTS / "not-run.md").read_text(encoding="utf-8") or "Nothing is missing.\n"


def _line(cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _number(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


NUMBERS = {"value": value, "joules": joules, "tuned": tuned}
BLOCKS = {
    "claims": claims,
    "verdicts": verdicts,
    "summary": summary,
    "pilots": pilots,
    "diary": diary,
    "not-run": not_run,
}


def fill(match: re.Match[str]) -> str:
    kind, *arguments = shlex.split(match[1].split("|")[0])
    if kind in NUMBERS:
        return format(NUMBERS[kind](*arguments), match[1].split("|")[1].strip())
    return BLOCKS[kind](*arguments).rstrip("\n")


def rendered(page: str) -> str:
    template = (DOCS / f"{page}.template.md").read_text(encoding="utf-8")
    return re.sub(r"\{\{(.+?)\}\}", fill, template)


def main() -> None:
    for name in PAGES:
        page, text = DOCS / f"{name}.md", rendered(name)
        if "--check" not in sys.argv[1:]:
            page.write_text(text, encoding="utf-8")
        elif page.read_text(encoding="utf-8") != text:
            raise SystemExit(f"docs/{name}.md is not what docs/render.py makes of results/reproduction")


if __name__ == "__main__":
    main()
