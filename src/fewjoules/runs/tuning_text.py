"""A finished tuning as a scenario with its recipe, and as a record of everything that led to it."""

from dataclasses import asdict
from typing import Any

from fewjoules import __version__
from fewjoules.convergence.intervals import within_range
from fewjoules.runs.sealed import finite_or_null
from fewjoules.runs.tuning import Tuning
from fewjoules.scenario import Scenario
from fewjoules.scenario.recipe_text import with_recipe, with_rounds

TUNING_VERSION = 1


def tuned_text(scenario: Scenario, tuning: Tuning, date: str) -> str:
    """Return the text of the scenario with the recipe, its law, sizes and limits, and what finding it took."""
    tuned = tuning.tuned
    found = f"found by fewjoules {__version__} tune on {date} with seed {tuning.seed}"
    return with_recipe(
        _with_plain_law(scenario, tuning),
        tuning.recipe,
        tuned.belief.law(),
        tuned.belief.intervals(),
        limits=_limits(scenario, tuning),
        downlink_weight=_downlink_weight(tuning),
        participation=_participation(scenario),
        message_size=asdict(tuning.message_size),
        downlink_message_size=_downlink_size(tuning),
        plain_learning_rate=tuned.plain_rate,
        pilots=len(tuned.pilots),
        pilot_client_steps=tuned.client_steps,
        pilot_joules=tuned.joules,
        comment=found if tuning.too_few_rounds is None else f"{found}; {tuning.too_few_rounds}",
    )


def _with_plain_law(scenario: Scenario, tuning: Tuning) -> str:
    """Return the text of the scenario with [rounds] of plain SGD if it has none, so that other schemes can be planned.

    Where [training] has no step size, they cannot be trained, and it stays as it is.
    """
    training = scenario.training
    if scenario.rounds is not None or tuning.plain_law is None or training is None or training.learning_rate is None:
        return scenario.text
    return with_rounds(
        scenario.text,
        tuning.plain_law,
        downlink_weight=_downlink_weight(tuning),
        participation=_participation(scenario),
        comment="plain SGD by its pace in the race of fewjoules tune, which is rough",
    )


def _participation(scenario: Scenario) -> float | None:
    """Return the fraction of the devices that took part in each round of the pilots; None if all did."""
    fraction = 1.0 if scenario.training is None else scenario.training.participation
    return None if fraction == 1.0 else fraction


def _limits(scenario: Scenario, tuning: Tuning) -> dict[str, Any] | None:
    """Return limits of the recipe where they differ from those of the file."""
    low, high = tuning.sparsity
    if not tuning.narrower_sparsity and not tuning.keeps_local_steps:
        return None
    steps = scenario.local_steps
    chosen: Any = {"min": min(steps), "max": max(steps)} if isinstance(steps, range) else list(steps)
    if tuning.keeps_local_steps:
        chosen = [tuning.tuned.plan.local_steps]
    limits: dict[str, Any] = {"sparsity": {"min": low, "max": high}, "local_steps": chosen}
    if scenario.round_seconds is not None:
        limits["round_seconds"] = scenario.round_seconds
    if tuning.server is not None:
        limits["downlink_sparsity"] = dict(zip(("min", "max"), tuning.server.sparsity, strict=True))
    return limits


def _downlink_size(tuning: Tuning) -> dict[str, float] | None:
    """Return the law of the server's messages; None where the downlink is not charged."""
    return None if tuning.server is None else asdict(tuning.server.message_size)


def _downlink_weight(tuning: Tuning) -> float | None:
    return None if tuning.server is None else tuning.server.weight


def tuning_record(scenario: Scenario, tuning: Tuning, date: str) -> dict[str, Any]:
    """Return everything about a tuning as values that JSON can hold; docs/tuning.md lists the keys."""
    tuned = tuning.tuned
    rounds, low, high = tuning.predicted_rounds()
    joules = tuned.plan.energy_joules / tuned.plan.rounds if tuned.plan.rounds else 0.0
    return {
        "version": TUNING_VERSION,
        "fewjoules_version": __version__,
        "date": date,
        "scenario": scenario.name,
        "seed": tuning.seed,
        "clients": tuning.clients,
        "target": {"metric": tuning.aim.metric, "value": tuning.aim.target},
        "recipe": tuning.recipe.to_dict() | {"words": tuning.recipe.describe()},
        "plan": tuning.recipe.plan.to_dict() if tuning.recipe.plan is not None else None,
        "predicted": {
            "rounds": rounds,
            "rounds_range": [low, high],
            "joules": rounds * joules,
            "joules_range": [low * joules, high * joules],
            "first_message_joules": tuning.first_message_joules,
        },
        "belief": _belief(tuning),
        "message_size": asdict(tuning.message_size),
        "downlink_message_size": _downlink_size(tuning),
        "downlink_weight": _downlink_weight(tuning),
        "contenders": [finite_or_null(asdict(one)) for one in tuned.contenders],
        "books": {
            "pilots": len(tuned.pilots),
            "client_steps": tuned.client_steps,
            "joules": tuned.joules,
            "untuned": tuning.untuned,
            "untuned_joules": tuning.untuned_joules,
            "saving_joules": tuning.saving_joules,
            "trainings_to_pay": tuning.trainings_to_pay,
            "expected_regret_joules": tuned.expected_regret_joules,
        },
        "notes": list(tuning.notes),
        "pilots": [pilot.to_dict() for pilot in tuned.pilots],
    }


def _belief(tuning: Tuning) -> dict[str, Any]:
    intervals = tuning.tuned.belief.intervals()
    return {
        "law": asdict(tuning.tuned.belief.law()),
        "intervals": {name: list(within_range(name, ends)) for name, ends in intervals.intervals.items()},
        "correlations": list(intervals.correlations or ()),
        "observations": [asdict(one) for one in tuning.tuned.belief.observations],
    }
