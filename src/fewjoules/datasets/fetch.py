"""Find the files of a data set in a folder that the user names, or in a store that downloads fill."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fewjoules.datasets.download import download
from fewjoules.datasets.sources import SOURCES, RemoteFile
from fewjoules.errors import InvalidInputError

ENVIRONMENT = "FEWJOULES_DATA"

Progress = Callable[[int, int], None]  # bytes done, bytes in all


def store() -> Path:
    """Return the folder for downloads: $FEWJOULES_DATA, else ``fewjoules`` in the user's cache."""
    if named := os.environ.get(ENVIRONMENT):
        return Path(named).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path("~/.cache").expanduser()) / "fewjoules"


def locate(
    name: str,
    data_dir: str | Path | None = None,
    *,
    progress: Progress | None = None,
    sources: Mapping[str, Sequence[RemoteFile]] = SOURCES,
) -> dict[str, Path]:
    """Return the path of each file of a data set; the store downloads missing files, ``data_dir`` is only read."""
    if name not in sources:
        raise InvalidInputError(f"a data set with files must be one of {', '.join(sources)}, got {name!r}")
    root = store() if data_dir is None else Path(data_dir)
    files = sources[name]
    places = _places(root, name, files)
    others = [file for each in sources.values() for file in each if file not in files]
    found = {file.name: path for file in files if (path := _find(file, places, others)) is not None}
    missing = [file for file in files if file.name not in found]
    if missing and data_dir is not None:
        raise InvalidInputError(_missing(name, missing[0], places))
    total_bytes, earlier_bytes = sum(file.size_bytes for file in missing), 0
    for file in missing:
        report = _counted(progress, earlier_bytes, total_bytes)
        try:
            found[file.name] = download(file, root / file.folder, progress=report)
        except InvalidInputError as error:
            raise InvalidInputError(f"{_missing(name, file, places)}; {error}") from error
        earlier_bytes += file.size_bytes
    return found


def _places(root: Path, name: str, files: Sequence[RemoteFile]) -> list[Path]:
    """Return the folders to search: subfolders first, since MNIST and Fashion-MNIST share their file names."""
    return [*(root / folder for folder in dict.fromkeys([name, *(file.folder for file in files)])), root]


def _find(file: RemoteFile, places: Sequence[Path], others: Sequence[RemoteFile]) -> Path | None:
    for place in places:
        for name in (*file.unpacked, file.name):
            path = place / name
            if path.is_file() and not any(_is(path, other) for other in others):
                return path
    return None


def _is(path: Path, file: RemoteFile) -> bool:
    return path.name == file.name and path.stat().st_size == file.size_bytes


def _missing(name: str, file: RemoteFile, places: Sequence[Path]) -> str:
    unread = [place / other for place in places for other in file.unreadable if (place / other).exists()]
    if unread:
        return f"{unread[0]} is pickled and is not read; {name} needs the binary version, {file.name}"
    return (
        f"{file.name} of {name} is missing: looked in {', '.join(map(str, places))} "
        f"(--data-dir or {ENVIRONMENT} may point to its folder)"
    )


def _counted(progress: Progress | None, earlier_bytes: int, total_bytes: int) -> Callable[[int], None]:
    def report(done_bytes: int) -> None:
        if progress is not None:
            progress(earlier_bytes + done_bytes, total_bytes)

    return report
