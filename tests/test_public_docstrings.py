"""Every public name has a docstring that explains its parameters, and a place in the reference of the site."""

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fewjoules as fj
from fewjoules.codec import compressors

API = Path(__file__).parents[1] / "docs" / "api"
COMPRESSORS = ("top_k", "none", "random_k", "ternary", "qsgd", "with_values")
BY_THEIR_HOMES = {"fewjoules.flower", "fewjoules.codec.compressors", "fewjoules.codec.select.top_k_with_feedback"}
MODULES = ("fewjoules", "fewjoules.codec", "fewjoules.loggers", "fewjoules.flower")


def public_names() -> dict[str, Any]:
    """Return every public function and class by its full name; modules stand for what they list."""
    found = {}
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            thing = getattr(module, name)
            if not isinstance(thing, ModuleType):
                found[f"{module.__name__}.{name}"] = thing
    found |= {f"fewjoules.codec.compressors.{name}": getattr(compressors, name) for name in COMPRESSORS}
    return found | {f"fewjoules.schemes.{name}": scheme for name, scheme in fj.schemes.SCHEMES.items()}


PUBLIC = public_names()


def parameters(thing: Any) -> set[str]:
    if inspect.isclass(thing) and (issubclass(thing, Exception | Warning) or getattr(thing, "_is_protocol", False)):
        return set()
    kinds = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    given = inspect.signature(thing).parameters.values()
    return {f"{kinds.get(one.kind, '')}{one.name}" for one in given}


def documented(docstring: str) -> set[str]:
    """Return the names that the section Args explains."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)+)", docstring + "\n", flags=re.MULTILINE)
    return set(re.findall(r"^    ([*\w]+): \S", section[1], flags=re.MULTILINE)) if section else set()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_of_a_public_name_is_explained_and_nothing_else(name):
    docstring = inspect.getdoc(PUBLIC[name]) or ""
    assert re.match(r"[A-Z].*[.:]\n", docstring.split("\n")[0] + "\n"), "the summary is one line, a sentence"
    assert documented(docstring) == parameters(PUBLIC[name])


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if inspect.isclass(thing)])
def test_every_public_method_has_a_docstring(name):
    members = vars(PUBLIC[name]).items()
    public = {key: one for key, one in members if not key.startswith("_") and inspect.isroutine(one)}
    assert {key for key, one in public.items() if not inspect.getdoc(one)} == set()


def test_the_reference_has_every_public_name_once():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in API.glob("*.md"))
    wanted = {f"fewjoules.{name}" for name in fj.__all__} - {"fewjoules.SparseUpdate"}  # shown in fewjoules.codec
    assert sorted(re.findall(r"^::: ([\w.]+)$", pages, flags=re.MULTILINE)) == sorted(wanted | BY_THEIR_HOMES)
