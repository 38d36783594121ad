"""Functions of the user's own, named in a scenario as "package.module:function"."""

import contextlib
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError


def is_own(name: str) -> bool:
    """Tell whether the name is that of a user's own function."""
    return ":" in name


def own_function(what: str, name: str, folder: Path | None) -> Callable[..., Any]:
    """Return the function; its module is looked up in ``folder`` first. ``what`` it is for begins the error."""
    module_name, _, function_name = name.partition(":")
    try:
        with _importable(folder):
            module = importlib.import_module(module_name)
    except Exception as error:
        raise InvalidInputError(
            f"{what} {name!r} must name a module that can be imported; importing {module_name!r} "
            f"failed: {first_line(error)}"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InvalidInputError(f"{what} {name!r} must name a function of {module_name}; {function_name!r} is not one")
    return function


def own_source_digest(what: str, name: str, folder: Path | None) -> str | None:
    """SHA-256 of the file that defines the function, so that a resumed run notices a change."""
    function = own_function(what, name, folder)
    defined = inspect.isroutine(function) or inspect.isclass(function)  # else an object that can be called
    file = inspect.getsourcefile(function if defined else sys.modules[name.partition(":")[0]])
    return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def first_line(error: BaseException) -> str:
    """Return kind and first line of an error, for a sentence that tells of it."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


@contextlib.contextmanager
def _importable(folder: Path | None) -> Iterator[None]:
    """Let modules in ``folder`` be imported while the body runs."""
    added = [] if folder is None else [str(folder.resolve())]
    sys.path[:0] = added
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for path in added:
            sys.path.remove(path)
