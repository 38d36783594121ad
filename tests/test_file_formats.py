"""The page of file formats tells the versions that the code writes and reads."""

import re
from pathlib import Path

import pytest

from fewjoules.codec.layout import VERSIONS
from fewjoules.integrations.flower.deployment import DEPLOYMENT_VERSION, DEPLOYMENT_VERSIONS
from fewjoules.integrations.flower.memory import MEMORY_VERSION
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.planner.plan import PLAN_VERSION, PLAN_VERSIONS
from fewjoules.runs import files
from fewjoules.runs.checkpoint import CHECKPOINT_VERSION
from fewjoules.runs.pilot_journal import JOURNAL_VERSION
from fewjoules.runs.tuning_text import TUNING_VERSION

PAGE = (Path(__file__).parents[1] / "docs" / "file-formats.md").read_text(encoding="utf-8")
OWN_METRICS = METRICS.with_metrics(("f1",)).version
WRITTEN_AND_READ = {
    "`plan.json`": ([PLAN_VERSION], PLAN_VERSIONS),
    "`ledger.parquet`": ([LEDGER.version], range(1, LEDGER.version + 1)),
    "`metrics.parquet`": ([METRICS.version, OWN_METRICS], range(1, OWN_METRICS + 1)),
    "`run.json`": ([files.RUN_VERSION], [files.RUN_VERSION]),
    "`settings.json`": ([files.SETTINGS_VERSION], [files.SETTINGS_VERSION]),
    "`checkpoint.safetensors`": ([CHECKPOINT_VERSION], [CHECKPOINT_VERSION]),
    "`comparison.json`": ([files.COMPARISON_VERSION], []),
    "`pilots.jsonl`": ([JOURNAL_VERSION], [JOURNAL_VERSION]),
    "`tuning.json`": ([TUNING_VERSION], []),
    "payload": (VERSIONS, VERSIONS),
    "`deployment.json`": ([DEPLOYMENT_VERSION], DEPLOYMENT_VERSIONS),
    "memory": ([MEMORY_VERSION], [MEMORY_VERSION]),
}


@pytest.mark.parametrize("name", WRITTEN_AND_READ)
def test_the_versions_of_a_file_are_those_of_the_code(name):
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name}")]
    _, _, _, writes, reads, *_ = row.split("|")
    written, read = WRITTEN_AND_READ[name]
    assert [int(one) for one in re.findall(r"\d", writes)] == list(written)
    assert [int(one) for one in re.findall(r"\d", reads)] == sorted({min(read), max(read)} if read else [])


def test_every_file_of_a_results_folder_is_on_the_page():
    names = {*files.RESULT_FILES, files.CHECKPOINT, files.RUN, files.SETTINGS, files.PAGE, files.COMPARISON}
    names |= {files.PILOTS, files.TUNING}
    assert {name for name in names - {files.SCENARIO} if name not in PAGE} == set()
