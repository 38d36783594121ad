"""What ``pip install fewjoules`` leaves out: which extra brings it, and the sentence where it is missing."""

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec

from fewjoules.errors import MissingLibraryError

# libraries of each extra, the one that is named first when several are missing in front
EXTRAS = {
    "train": ("torch", "safetensors", "pyarrow", "plotly"),
    "flower": ("flwr", "torch", "safetensors", "pyarrow", "plotly"),
    "dataframes": ("pandas", "polars", "pyarrow"),
    "studio": ("aiohttp", "plotly", "pyarrow"),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
}
_NAMES = {"torch": "PyTorch", "pyarrow": "PyArrow", "plotly": "Plotly", "flwr": "Flower", "tensorboard": "TensorBoard"}


def require_extra(extra: str, what: str, *libraries: str) -> None:
    """Refuse to begin ``what`` without the libraries of an extra, or without those named; nothing is imported."""
    for library in libraries or EXTRAS[extra]:
        if find_spec(library) is None:
            raise _missing(extra, library, what)


@contextlib.contextmanager
def extras_explained(what: str) -> Iterator[None]:
    """Turn the failed import of a library that an extra brings into the sentence that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        extra = next((name for name, libraries in EXTRAS.items() if library in libraries), None)
        if extra is None:
            raise
        raise _missing(extra, library, what) from error


def _missing(extra: str, library: str, what: str) -> MissingLibraryError:
    return MissingLibraryError(f"{what} needs {_NAMES.get(library, library)}: pip install 'fewjoules[{extra}]'")
