"""How long the studio takes to answer: from an edit's request to the plan, and to the last part of the answer.

python benchmarks/studio.py [--turns 30]
"""

import argparse
import asyncio
import copy
import json
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import aiohttp
from aiohttp import web
from report import describe_run, duration, print_table

from fewjoules.studio.access import ADDRESS, Access, Workspace
from fewjoules.studio.plan.files import example, load
from fewjoules.studio.server import application, listen

EXAMPLES = Workspace.of(Path(__file__).parents[1] / "examples")
PARTS = ("plan", "ridge", "schemes", "constraints", "remarks")


def cases():
    """Return what is posted, by name: the embedded fleet, fleets of a million, and one with constraints."""
    embedded, costs = example("embedded"), load(EXAMPLES, "measured-costs.toml")
    return {
        "12 devices in 4 groups": embedded,
        "1,000,000 in 4 equal groups": with_counts(embedded, [250_000] * 4),
        "1,000,000 in 4 groups of 100,000 to 400,000": with_counts(embedded, [100_000, 200_000, 300_000, 400_000]),
        "1,000,000 in groups without a common divisor": with_counts(embedded, [249_999, 250_000, 250_000, 250_001]),
        "14 devices, deadline and battery": costs,
        "1,000,000, deadline and battery": with_counts(costs, [200_000, 500_000, 300_000]),
    }


def with_counts(posted, counts):
    made = copy.deepcopy(posted)
    for device, count in zip(made["scenario"]["device"], counts, strict=True):
        device["count"] = count
    return made


async def milliseconds(session, address, posted):
    """Return when each part arrived after the request, and for how many devices each planned one stood."""
    began = perf_counter()
    arrived, each = {}, 1
    async with session.post(f"{address}/api/plan", json=posted) as response:
        async for line in response.content:
            part = json.loads(line)
            assert "error" not in part, part
            arrived[part["part"]] = 1e3 * (perf_counter() - began)
            each = part.get("each", each)
    return arrived, each


async def measure(turns):
    """Return a row for each fleet."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        listening = listen(0)
        access = Access(listening.getsockname()[1])
        runner = web.AppRunner(application(Workspace.of(folder), access), access_log=None)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        address = f"http://{ADDRESS}:{access.port}"
        headers = {"Origin": address, "Cookie": f"{access.cookie}={access.token}"}
        async with aiohttp.ClientSession(headers=headers, read_bufsize=2**24) as session:
            for name, posted in cases().items():
                every = turns if "without a common" not in name else max(3, turns // 6)
                found = [await milliseconds(session, address, posted) for _ in range(every + 1)][1:]
                firsts, lasts = ([arrived[part] for arrived, _ in found] for part in ("plan", PARTS[-1]))
                cells = [min(firsts), statistics.median(firsts), statistics.median(lasts)]
                rows.append([name, f"{found[0][1]:,}", *(duration(one / 1e3) for one in cells)])
        await runner.cleanup()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=30)
    turns = parser.parse_args().turns
    told = describe_run(f"python benchmarks/studio.py --turns {turns}", 0, 2, ("aiohttp", "numpy"))
    found = told["machine"]
    print(f"{told['command']}, commit {told['git_commit']}, {told['started']}")
    print(f"{found['processor']}, {found['cpu_count']} cores, load average before the run {found['load_average']:.2f}")
    print(", ".join(f"{name} {version}" for name, version in told["packages"].items()))
    print("From the request until the plan arrives (best, median) and until everything has (median)\n")
    print_table(["fleet", "stands for", "plan, best", "plan", "everything"], asyncio.run(measure(turns)))


if __name__ == "__main__":
    main()
