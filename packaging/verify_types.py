"""Let pyright judge the types of the public API: ``make verify-types``. Exits with 1 if a public name lacks a type.

python packaging/verify_types.py BASEDPYRIGHT PYTHON

basedpyright is pyright with its own Node, so that nothing is downloaded when it runs. It judges the package that PYTHON
imports, which must be installed as a user would have it: pyright does not look into editable installs.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHOWN = 40


def main() -> int:
    pyright, python = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "environment")
        subprocess.run([python, "-m", "venv", "--without-pip", str(environment)], check=True)
        site = next(environment.glob("lib/python*/site-packages"))
        # found as an installed package: its libraries by a path file, itself as a link
        found = subprocess.run([python, "-c", "import numpy; print(numpy.__path__[0])"], check=True, capture_output=True)
        site.joinpath("libraries.pth").write_text(f"{Path(found.stdout.decode().strip()).parent}\n")
        site.joinpath("fewjoules").symlink_to(ROOT / "src" / "fewjoules")
        words = [pyright, "--verifytypes", "fewjoules", "--ignoreexternal", "--outputjson"]
        interpreter = ["--pythonpath", str(environment / "bin" / "python")]
        done = subprocess.run([*words, *interpreter], cwd=folder, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)["typeCompleteness"]
    counts = report["exportedSymbolCounts"]
    missing = [symbol for symbol in report["symbols"] if symbol["isExported"] and not symbol["isTypeKnown"]]
    for symbol in missing[:SHOWN]:
        reasons = "; ".join(diagnostic["message"].splitlines()[0] for diagnostic in symbol["diagnostics"])
        print(f"{symbol['name']}: {reasons}")
    print(f"types known: {counts['withKnownType']}, ambiguous: {counts['withAmbiguousType']}, "
          f"unknown: {counts['withUnknownType']}; completeness {100 * report['completenessScore']:.2f} %")  # fmt: skip
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
