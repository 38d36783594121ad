"""Names and versions of the files in a results folder. docs/ledger.md describes each."""

from fewjoules.files import PARTIAL_SUFFIX

RUN_VERSION = 1
SETTINGS_VERSION = 1
OWN_COMMAND = "fewjoules.train"  # in settings.json of a run from Python
COMPARISON_VERSION = 3
CHECKPOINT, PLAN, SCENARIO, RUN = "checkpoint.safetensors", "plan.json", "scenario.toml", "run.json"
SETTINGS = "settings.json"  # how the command was called; a folder with it can be resumed
LIVE = "live.parquet"  # beside the parts of the metrics, while a run trains
METER = "meter.json"  # what meters have read so far, while a run with --meter goes on
MODEL, PAGE, COMPARISON = "model.safetensors", "page.html", "comparison.json"
PILOTS, TUNING = "pilots.jsonl", "tuning.json"
BELIEFS = "beliefs.jsonl"  # what a tuning believed after each pilot
LEDGER_TABLE, METRICS_TABLE = "ledger.parquet", "metrics.parquet"
RESULT_FILES = (SCENARIO, PLAN, LEDGER_TABLE, METRICS_TABLE, MODEL)  # what run.json has the checksums of
BEGUN = f".begun{PARTIAL_SUFFIX}"  # exists while the first files are being written
