"""Check what is in the wheels and source distributions of a folder: everything that is needed, nothing that is not.

python packaging/check_dist.py dist
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {"fewjoules": ROOT / "src", "fewjoules_reproduction": ROOT / "reproduction" / "src"}
OF_TESTS = ("tests/conftest.py", "examples/paper-four-groups.toml", "docs/scenario.md", "pyproject.toml", "Makefile")
MOST_BYTES = {"wheel": 5_000_000, "source distribution": 5_000_000}


def main() -> None:
    folder = Path(sys.argv[1])
    for package, source in PACKAGES.items():
        wheel = only(folder, f"{package}-*.whl")
        check_wheel(package, source, wheel)
        archive = only(folder, f"{package}-*.tar.gz")
        check_archive(package, archive)
        for kind, file in (("wheel", wheel), ("source distribution", archive)):
            require(file.stat().st_size <= MOST_BYTES[kind], f"{file.name} has {file.stat().st_size:,} bytes")
            print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB, as it should be")


def check_wheel(package: str, source: Path, wheel: Path) -> None:
    """Every file of the package that git knows is in the wheel, beside its metadata, and nothing else."""
    names = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.run(["git", "ls-files", package], cwd=source, check=True, capture_output=True, text=True)
    known = set(listed.stdout.split())
    require(f"{package}/py.typed" in known, f"{package} has no py.typed")
    own = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    require(own == known, f"{wheel.name} and git differ in {sorted(own ^ known)[:5]}")
    for wanted in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        require(any(name.endswith(f".dist-info/{wanted}") for name in names), f"{wheel.name} has no {wanted}")


def check_archive(package: str, archive: Path) -> None:
    """Sources and, in the main one, all that the tests need are there; recorded results are not."""
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    require(any(name.endswith(f"src/{package}/__init__.py") for name in names), f"{archive.name} has no sources")
    require(not any(name.startswith("results/") for name in names), f"{archive.name} has recorded results")
    for wanted in OF_TESTS if package == "fewjoules" else ():
        require(wanted in names, f"{archive.name} has no {wanted}")


def only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    require(len(found) == 1, f"{folder} must hold one {pattern}, got {[file.name for file in found]}")
    return found[0]


def require(good: bool, sentence: str) -> None:
    if not good:
        raise SystemExit(f"error: {sentence}")


if __name__ == "__main__":
    main()
