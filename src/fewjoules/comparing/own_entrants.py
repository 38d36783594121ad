"""The entrants of ``fewjoules.compare``: schemes and presets by name, plans, recipes, or options of one's own."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fewjoules.engine.algorithm.options import MAX_ROUNDS
from fewjoules.engine.algorithm.presets import PRESETS, preset_options
from fewjoules.errors import FewJoulesWarning, InfeasiblePlanError, InvalidInputError, shown
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.recipe import Recipe
from fewjoules.planner.schemes import SCHEMES
from fewjoules.runs.entry import METHOD_OPTIONS
from fewjoules.runs.task import SPARE_ROUNDS

NAMES = tuple(dict.fromkeys((*SCHEMES, *PRESETS)))
Scheme = str | Plan | Recipe | Mapping[str, Any]
_PLANNED = ("local_steps", "sparsity", "rounds")
_SAME_FOR_ALL = ("clients", "data", "test", "fleet", "target", "seed", "name", "out")


@dataclass(frozen=True, kw_only=True)
class OwnEntrant:
    """A name, and the arguments of ``fewjoules.train`` that are the entrant's own."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def steps(self) -> int:
        """Local steps that it may take; 0 if it does not say."""
        plan, rounds = self.arguments.get("plan"), self.arguments.get("rounds")
        return 0 if plan is None or rounds is None else plan.local_steps * rounds


def own_entrants(
    schemes: Sequence[Scheme] | Mapping[str, Scheme],
    shared: Mapping[str, Any],
    problem: ControlProblem | None,
    rates: Mapping[str, float],
) -> list[OwnEntrant]:
    """Return the entrants in their order; ``shared`` options are those of all, where an entrant has none of its own.

    Schemes that have no feasible plan are left out and told.
    """
    if not isinstance(problem, ControlProblem | None):
        raise InvalidInputError(f"problem must be a fewjoules.ControlProblem, got {type(problem).__name__}")
    if not isinstance(rates, Mapping):
        raise InvalidInputError(f"rates must be a mapping of names of schemes to step sizes, got {shown(rates)}")
    if problem is not None and problem.cohort is not None:
        shared = {"participation": problem.cohort / problem.devices, **shared}
    named = list(_named(schemes))
    _require_names([name for name, _ in named], rates)
    found = []
    for name, scheme in named:
        try:
            entrant = OwnEntrant(name=name, arguments=_arguments(name, scheme, shared, problem))
        except InfeasiblePlanError as error:
            if len(named) == 1:
                raise
            warnings.warn(f"scheme {name} is left out: {error}", FewJoulesWarning, stacklevel=3)
            continue
        own = {"learning_rate": rates[name]} if name in rates else {}
        found.append(replace(entrant, arguments={**entrant.arguments, **own}))
    longest = max((entrant.steps for entrant in found), default=0)
    return [_with_rounds(entrant, longest) for entrant in found]


def _named(schemes: Any) -> Iterable[tuple[str, Scheme]]:
    """Yield each scheme with its name: its own, or that of the mapping."""
    if isinstance(schemes, Mapping):
        yield from schemes.items()
        return
    if isinstance(schemes, str) or not isinstance(schemes, Sequence):
        raise InvalidInputError(f"schemes must be a list or a mapping by name, got {shown(schemes)}")
    for scheme in schemes:
        if isinstance(scheme, Plan):
            yield scheme.scheme, scheme
        elif isinstance(scheme, Recipe):
            yield scheme.name, scheme
        elif isinstance(scheme, str):
            yield scheme, scheme
        else:
            raise InvalidInputError(
                f"schemes must be names, plans or recipes, or a mapping of names to options, got {shown(scheme)}"
            )


def _require_names(names: Sequence[str], rates: Mapping[str, float]) -> None:
    """Refuse names that are no names of folders or not different, and step sizes of others."""
    if not names:
        raise InvalidInputError("schemes must have at least one entry")
    for name in names:
        if not isinstance(name, str) or not name.strip(". ") or any(sign in name for sign in "/\\\0"):
            raise InvalidInputError(f"the name of a scheme must be one of a folder, got {shown(name)}")
        if names.count(name) > 1:
            raise InvalidInputError(f"the names of schemes must differ; give a mapping by name, got {name!r} twice")
    for name in rates:
        if name not in names:
            raise InvalidInputError(f"rates must name schemes out of {', '.join(names)}, got {shown(name)}")


def _arguments(name: str, scheme: Scheme, shared: Mapping[str, Any], problem: ControlProblem | None) -> dict[str, Any]:
    if isinstance(scheme, str) and scheme in SCHEMES:
        if problem is None:
            raise InvalidInputError(f"scheme {scheme} is planned, which needs a problem, a fewjoules.ControlProblem")
        scheme = SCHEMES[scheme](problem)
    if isinstance(scheme, Plan):
        stated = {} if scheme.recipe is None else scheme.recipe.options()
        return _without(shared, (*_PLANNED, *stated)) | {"plan": scheme, "rounds": _rounds(shared, scheme)}
    if isinstance(scheme, Recipe):
        planned = _PLANNED if scheme.plan is not None else ()
        own = {} if scheme.plan is None else {"rounds": _rounds(shared, scheme.plan)}
        return _without(shared, (*planned, *scheme.options())) | {"recipe": scheme, **own}
    if isinstance(scheme, str):
        if scheme not in PRESETS:
            raise InvalidInputError(f"schemes must be names out of {', '.join(NAMES)}, got {shown(scheme)}")
        usual = {"local_steps": 1, "sparsity": 1.0} | preset_options(scheme)
        method = {key: usual[key] for key in ("local_steps", "sparsity")}
        return _without(shared, METHOD_OPTIONS) | method | {"preset": scheme}
    if isinstance(scheme, Mapping):
        unfair = [key for key in scheme if key in _SAME_FOR_ALL]
        if unfair:
            raise InvalidInputError(f"{unfair[0]} must be the same for all schemes, got one of scheme {name}")
        return {**shared, **scheme}
    raise InvalidInputError(f"scheme {name} must be a name, a plan, a recipe or options, got {shown(scheme)}")


def _rounds(shared: Mapping[str, Any], plan: Plan) -> int:
    given = shared.get("rounds")
    return plan.rounds_to_train(SPARE_ROUNDS) if given is None else int(given)


def _with_rounds(entrant: OwnEntrant, longest: int) -> OwnEntrant:
    """Return the entrant with as many local steps as the longest plan, if its rounds are not given."""
    given = entrant.arguments
    if given.get("rounds") is not None or "local_steps" not in given or not longest:
        return entrant
    rounds = min(MAX_ROUNDS, math.ceil(longest / int(given["local_steps"])))
    return replace(entrant, arguments={**given, "rounds": rounds})


def _without(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    left = set(names)
    return {name: value for name, value in options.items() if name not in left}
