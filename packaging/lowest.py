"""Print the lowest versions that pyproject.toml allows, as requirements for pip: for ``make test-lowest``.

python packaging/lowest.py [EXTRA...]

Those of the core are printed, then those of the extras named. PyTorch is left out: it is installed as it is pinned.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENT = re.compile(r"(?P<name>[\w-]+)(?:\[.*\])?>=(?P<lowest>[\d.]+)")


def lowest(requirements: list[str]) -> list[str]:
    """Return ``name==bound`` for each ``name>=bound``; refuse a requirement without a lower bound."""
    pinned = []
    for requirement in requirements:
        found = REQUIREMENT.match(requirement)
        if found is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} must have a lower bound, such as name>=1.2")
        pinned.append(f"{found['name']}=={found['lowest']}")
    return pinned


if __name__ == "__main__":
    extras = [line for name in sys.argv[1:] for line in PROJECT["optional-dependencies"][name]]
    own = [line for line in extras if not line.startswith(("fewjoules[", "torch>"))]
    print("\n".join(dict.fromkeys(lowest([*PROJECT["dependencies"], *own]))))
