"""Write what commands print now into their pages: ``python -m tests.snippets.update docs/tutorial.md ...``."""

import sys
import tempfile
from pathlib import Path

from tests.snippets import rounding
from tests.snippets.page import run_page


def update(page: Path) -> int:
    """Replace every output that differs; return how many did."""
    changes: list = []
    with tempfile.TemporaryDirectory() as folder:
        run_page(page.absolute(), Path(folder), changes=changes)
    lines = page.read_text(encoding="utf-8").splitlines()
    for block, printed in reversed(changes):
        lines[block.first : block.last] = [line.rstrip() for line in printed.strip("\n").splitlines()]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(changes)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(f"{name}: {update(Path(name))} outputs replaced\n")
    rounding.record()
