"""Write a recipe into the text of a scenario file; whatever else is in the file stays as it is."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from fewjoules.convergence.intervals import LawIntervals, within_range
from fewjoules.convergence.rounds import BoundRounds, PaperRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError, shown
from fewjoules.files import parse_toml
from fewjoules.planner.recipe import Recipe
from fewjoules.scenario.schema.base import Table
from fewjoules.scenario.schema.recipe import RecipeTable
from fewjoules.scenario.schema.sentences import validate
from fewjoules.scenario.schema.training import TrainingTable
from fewjoules.scenario.toml_text import key_lines

Law = PaperRounds | BoundRounds | PowerLawRounds
_KINDS = {PaperRounds: "paper", BoundRounds: "bound", PowerLawRounds: "power-law"}
_HEADER = re.compile(r"[ \t]*\[")
_RECIPE_HEADER = re.compile(r"""[ \t]*\[[ \t]*(recipe|"recipe"|'recipe')[ \t]*[].]""")


def with_recipe(
    text: str,
    recipe: Recipe,
    law: Law,
    intervals: LawIntervals | None = None,
    *,
    limits: Mapping[str, Any] | None = None,
    downlink_weight: float | None = None,
    participation: float | None = None,
    message_size: Mapping[str, float] | None = None,
    downlink_message_size: Mapping[str, float] | None = None,
    plain_learning_rate: float | None = None,
    pilots: int | None = None,
    pilot_client_steps: int | None = None,
    pilot_joules: float | None = None,
    comment: str = "",
) -> str:
    """Return the text of a scenario with these [recipe] tables in place of its own, or at its end if it has none.

    ``participation`` is that of the pilots, if not everyone took part. ``limits`` has the keys of [limits]; ``comment``
    becomes a line of its own below [recipe]. What the search for the recipe found and took is as in ``RecipeSearch``.
    Comments within the tables that are replaced go with them.
    """
    before = parse_toml(text)
    search = {
        "plain_learning_rate": plain_learning_rate,
        "pilots": pilots,
        "pilot_client_steps": pilot_client_steps,
        "pilot_joules": pilot_joules,
    }
    measured = {"downlink_weight": downlink_weight, "participation": participation}
    given = {"limits": limits, "message_size": message_size, "downlink_message_size": downlink_message_size}
    tables: dict[str, Any] = _plain(
        {"name": recipe.name, **_known(search), **_options(recipe)}
        | {"rounds": _law(law, intervals) | _known(measured), **_known(given)}
    )
    _require_readable(tables, recipe, before, comment)
    kept, place = _without_recipe(text)
    if "recipe" in parse_toml(kept):
        raise InvalidInputError("the recipe of a scenario file must be written as tables, [recipe], got another form")
    written = _spliced(kept, place, _section(tables, comment), "\r\n" if "\r\n" in text else "\n")
    assert parse_toml(written) == before | {"recipe": tables}
    return written


def with_rounds(
    text: str,
    law: Law,
    *,
    downlink_weight: float | None = None,
    participation: float | None = None,
    comment: str = "",
) -> str:
    """Return the text of a scenario that has no [rounds] with this law at its end."""
    before = parse_toml(text)
    if "rounds" in before:
        raise InvalidInputError("the scenario must have no [rounds] yet, got one")
    table = _plain(_law(law, None) | _known({"downlink_weight": downlink_weight, "participation": participation}))
    lines = ["[rounds]", *([f"# {comment}"] if comment else []), *key_lines(table)]
    written = _spliced(text, len(text), lines, "\r\n" if "\r\n" in text else "\n")
    assert parse_toml(written) == before | {"rounds": table}
    return written


def _known(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _options(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Return the options as a file has them: all samples are a word."""
    plain = recipe.to_dict()
    optimiser = plain["optimiser"]
    if "batch_size" in optimiser and optimiser["batch_size"] is None:
        optimiser["batch_size"] = "all"
    return {"optimiser": optimiser} | ({"message": plain["message"]} if plain["message"] else {})


def _law(law: Law, intervals: LawIntervals | None) -> dict[str, Any]:
    if type(law) not in _KINDS:
        raise InvalidInputError(f"the law of a recipe must be a rounds model of a file, got {type(law).__name__}")
    table: dict[str, Any] = {"kind": _KINDS[type(law)], **asdict(law)}
    if intervals is not None:
        table["intervals"] = {name: within_range(name, ends) for name, ends in intervals.intervals.items()}
        table |= {} if intervals.correlations is None else {"correlations": list(intervals.correlations)}
    return table


class _RecipeAlone(Table):
    """A file with nothing but a recipe, so that errors name its keys as in a scenario."""

    recipe: RecipeTable


def _require_readable(tables: dict[str, Any], recipe: Recipe, scenario: dict[str, Any], comment: str) -> None:
    """Refuse what could not be read back beside the rest of the scenario."""
    if not comment.isprintable():
        raise InvalidInputError(f"comment must be one line of printable characters, got {shown(comment)}")
    table = validate(_RecipeAlone, {"recipe": tables}).recipe
    training = validate(TrainingTable, scenario["training"]) if "training" in scenario else None
    table.scenario_fields()
    assert table.recipe(training) == recipe


def _without_recipe(text: str) -> tuple[str, int]:
    """Return the text without its [recipe] tables, and where the first of them stood, at the end if there was none.

    Comments and empty lines above the next other table, or at the end, stay: they do not belong to the recipe.
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    headers = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    kept: list[str] = []
    place, done = None, 0
    for number in headers:
        if number < done or not _RECIPE_HEADER.match(lines[number]) or not _is_header(lines, number):
            continue
        kept += lines[done:number]
        place = len("".join(kept)) if place is None else place
        done = _end_of_recipe(lines, [other for other in headers if other > number])
    left = "".join(kept + lines[done:])
    return left, len(left) if place is None else place


def _end_of_recipe(lines: list[str], headers: list[int]) -> int:
    """Return the line after the recipe's tables, of which one began above these lines that look like headers."""
    others = (number for number in headers if not _RECIPE_HEADER.match(lines[number]) and _is_header(lines, number))
    end = next(others, len(lines))
    while _says_nothing(lines[end - 1]):
        end -= 1
    return end


def _is_header(lines: list[str], number: int) -> bool:
    """Whether a line begins a table: within a list or a text of several lines, what stands above is no whole TOML."""
    try:
        parse_toml("".join(lines[:number]))
    except InvalidInputError:
        return False
    return True


def _says_nothing(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _spliced(text: str, place: int, section: list[str], newline: str) -> str:
    above, below = text[:place], text[place:]
    if above and not above.endswith("\n"):
        above += newline
    if above and place == len(text) and not above.endswith(2 * newline):
        above += newline
    gap = newline if below and not below.startswith(newline) else ""
    return above + "".join(line + newline for line in section) + gap + below


def _plain(value: Any) -> Any:
    """Return tables, lists and numbers as a TOML parser returns them."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def _section(tables: dict[str, Any], comment: str) -> list[str]:
    """Return the lines of [recipe] and of its tables."""
    own = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    lines = ["[recipe]", *([f"# {comment}"] if comment else []), *key_lines(own)]
    for name, table in tables.items():
        if isinstance(table, dict):
            lines += ["", f"[recipe.{name}]", *key_lines(table)]
    return lines
