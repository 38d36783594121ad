"""Let pyright judge the types of the public API: ``make verify-types``. Exits with 1 if a promised name lacks a type.

python packaging/verify_types.py BASEDPYRIGHT PYTHON

basedpyright is pyright with a Node of its own, so that nothing is downloaded when it runs. Promised are the names
of ``fewjoules``, ``fewjoules.flower`` and ``fewjoules.loggers`` with their methods and attributes. For pyright every
module is public; the last line counts all of them.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fewjoules"
SHOWN = 60
PROMISED = """
import importlib, types
for module in map(importlib.import_module, ("fewjoules", "fewjoules.flower", "fewjoules.loggers")):
    for name in module.__all__:
        found = getattr(module, name)
        if isinstance(found, types.ModuleType):
            own = getattr(found, "__all__", [])
            print(*(f"{found.__name__}.{one}" for one in own), sep="\\n")
        elif hasattr(found, "__qualname__"):
            print(f"{found.__module__}.{found.__qualname__}")
"""


def main() -> int:
    pyright, python = sys.argv[1:3]
    promised = subprocess.run([python, "-c", PROMISED], check=True, capture_output=True, text=True).stdout.split()
    report = judged(pyright, python)["typeCompleteness"]
    exported = [symbol for symbol in report["symbols"] if symbol["isExported"]]
    own = [symbol for symbol in exported if is_of(symbol["name"], promised)]
    if not own:
        raise SystemExit("error: pyright found no promised name")
    lacking = [symbol for symbol in own if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]]
    for symbol in lacking[:SHOWN]:
        messages = (diagnostic["message"].splitlines()[0] for diagnostic in symbol["diagnostics"])
        print(f"{symbol['name']}: {'; '.join(dict.fromkeys(messages))}")
    known = len(own) - len(lacking)
    print(f"promised names: {known} of {len(own)} types known, {100 * known / len(own):.1f} %")
    counts = report["exportedSymbolCounts"]
    print(f"all modules: {counts['withKnownType']} of {sum(counts.values())} types known")
    return bool(lacking)


def is_of(symbol: str, promised: list[str]) -> bool:
    """Tell whether the symbol is a promised name or a part of one; names with an underscore are private."""
    private = any(part.startswith("_") and not part.startswith("__") for part in symbol.split("."))
    return not private and any(symbol == name or symbol.startswith(f"{name}.") for name in promised)


def judged(pyright: str, python: str) -> dict:
    """Return what pyright says of the package as it would be installed: it does not look into editable installs."""
    find = "import numpy, pathlib; print(pathlib.Path(numpy.__path__[0]).parent)"
    libraries = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "environment")
        subprocess.run([python, "-m", "venv", "--without-pip", str(environment)], check=True)
        site = next(environment.glob("lib/python*/site-packages"))
        site.joinpath("libraries.pth").write_text(libraries)
        shutil.copytree(SOURCE, site / "fewjoules", ignore=shutil.ignore_patterns("__pycache__"))
        words = [str(Path(pyright).absolute()), "--verifytypes", "fewjoules", "--ignoreexternal", "--outputjson"]
        path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
        seen = os.environ | {"PATH": path, "VIRTUAL_ENV": str(environment)}
        done = subprocess.run(words, cwd=folder, env=seen, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
