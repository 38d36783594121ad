"""One of the ranks that tests start: ``python -m tests.ranks FOLDER`` does everything and tells it as JSON."""

import json
import signal
import sys
import warnings
from pathlib import Path

from fewjoules.runs.ranks import joined_ranks
from tests.ranks.failures import death, refusals
from tests.ranks.folders import RESUMED, begun, broken, failed, failed_moving, resumed
from tests.ranks.kinds import KINDS, digest_of
from tests.ranks.rounds import CASES, digests, own_weights

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    warnings.simplefilter("ignore")
    with joined_ranks() as ranks:
        told = {"rounds": {name: digests(name, ranks) for name in CASES}}
        told["kinds"] = {name: digest_of(name) for name in KINDS}
        told["begun"] = begun(folder / "begun-by-two", 6, None if ranks.is_first else signal.SIGTERM, memory_gib=0)
        told["resumed"] = {}
        for name, how in RESUMED.items():
            run, seen = resumed(folder / name, **how)
            told["resumed"][name] = [run.stop_reason, len(run.metrics), seen]
        told["broken"] = broken(folder / "broken", 5, not ranks.is_first)
        told["failed"] = failed(folder / "failed", 7, not ranks.is_first)
        for name in ("client_state", "put_client"):
            told[name] = failed_moving(folder / name, name, not ranks.is_first)
        told["own weights"] = own_weights(seed=ranks.rank)
        told["refusals"] = refusals(ranks)
        (folder / f"rank-{ranks.rank}.json").write_text(json.dumps(told))
        told["death"] = death(ranks)
        (folder / f"rank-{ranks.rank}.json").write_text(json.dumps(told))
