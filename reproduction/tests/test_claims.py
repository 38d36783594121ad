"""Each sentence is judged on made-up tables in which it holds, holds in part, or fails."""

import numpy as np
import pytest

from fewjoules_reproduction.claims import Claim, claims_markdown, verdict, write_claims
from fewjoules_reproduction.claims_choices import claims_by_radio_cost, claims_by_step_cost
from fewjoules_reproduction.claims_plans import claims_by_devices, claims_by_heterogeneity
from fewjoules_reproduction.readings import CHOOSERS
from fewjoules_reproduction.table import Table

DEVICES = np.arange(4, 61, 4)
LEVELS = np.arange(15)
COSTS = np.geomspace(1e-13, 1e-7, 13)
FALLING = 1.0 / DEVICES + 0.1
STEADY = np.ones(LEVELS.size)


def energy_table(x, values, energy, *, rounds=None, radio=None, variant="pareto"):
    return Table.from_rows(
        {
            x: int(value),
            "scheme": scheme,
            "variant": variant,
            "average_joules": float(curve[i]),
            "average_radio_joules": float((radio or energy)[scheme][i]),
            "rounds": float((rounds or energy)[scheme][i]),
            "local_steps": 1,
        }
        for i, value in enumerate(values)
        for scheme, curve in energy.items()
    )


def schemes(flexible, unified, greedy, synchronous):
    return {"flexible": flexible, "unified": unified, "greedy": greedy, "synchronous": synchronous}


def joined(*tables):
    return Table.from_rows(row for table in tables for row in table.rows())


def verdicts(claims, reading):
    return [claim.verdict for claim in claims if claim.reading == reading]


BY_DEVICES = {
    "reproduced": energy_table("devices", DEVICES, schemes(FALLING, 1.1 * FALLING, 1.2 * FALLING, 3.0 * FALLING)),
    "partly": energy_table(
        "devices",
        DEVICES,
        schemes(FALLING, 1.001 * FALLING, 0.1 * DEVICES, 2.0 * FALLING),
        radio=schemes(FALLING, FALLING, FALLING, 1.5 * FALLING),
    ),
    "not reproduced": energy_table("devices", DEVICES, schemes(DEVICES, 0.5 * DEVICES, 0.95 * DEVICES, 0.9 * DEVICES)),
}
BY_LEVEL = {
    "reproduced": energy_table(
        "level", LEVELS, schemes(1.0 + 0.01 * LEVELS, 1.0 + 0.02 * LEVELS, 1.0 + 0.03 * LEVELS, 5.0 + LEVELS)
    ),
    "partly": energy_table(
        "level", LEVELS, schemes(1.0 + 3e-4 * LEVELS, 1.0 + 4e-4 * LEVELS, 1.0 + 1e-4 * LEVELS, 1.5 * STEADY)
    ),
    "not reproduced": energy_table(
        "level", LEVELS, schemes(1.0 - 1e-3 * LEVELS, 1.0 - 2e-3 * LEVELS, 1.0 - 3e-3 * LEVELS, STEADY)
    ),
}


@pytest.mark.parametrize("expected", BY_DEVICES)
def test_sentences_about_devices_follow_the_table(expected):
    claims = claims_by_devices(BY_DEVICES[expected])
    assert verdicts(claims, "pareto") == [expected] * 7
    assert {claim.figure for claim in claims} == {"1(a)"}


@pytest.mark.parametrize("expected", BY_LEVEL)
def test_sentences_about_heterogeneity_follow_the_table(expected):
    assert verdicts(claims_by_heterogeneity(BY_LEVEL[expected]), "pareto") == [expected] * 3


def test_each_reading_is_judged_by_its_own_rows_and_by_pareto_s_where_it_has_none():
    second = energy_table("devices", DEVICES, {"synchronous": 0.5 * FALLING}, variant="second")
    claims = claims_by_devices(joined(BY_DEVICES["reproduced"], second))
    assert verdicts(claims, "pareto") == verdicts(claims, "benders") == ["reproduced"] * 7
    assert verdicts(claims, "second readings") == [
        "reproduced",
        "reproduced",
        "reproduced",
        "reproduced",
        "not reproduced",
        "not reproduced",
        "partly",
    ]


def test_the_numbers_are_those_of_the_table():
    claims = {claim.sentence: claim.number for claim in claims_by_devices(BY_DEVICES["reproduced"])}
    most = next(number for sentence, number in claims.items() if "consume the most" in sentence)
    assert (
        most
        == "energy divided by FlexibleSpar's at 12 devices: UnifiedSpar 1.1000, GreedySpar 1.2000, SynSgdSpar 3.0000"
    )


def choices(sparsity, steps, share, radio=(0.01, 0.9)):
    """A table in which group g has sparsity[g - 1], all shapes (points,); radio's share goes from end to end."""
    radio_share = np.linspace(*radio, COSTS.size)
    return Table.from_rows(
        {
            "joules_per_bit": float(cost),
            "joules_per_step": float(cost),
            "solver": solver,
            **{f"sparsity_{group}": float(curve[i]) for group, curve in enumerate(sparsity, start=1)},
            "local_steps": int(steps[i]),
            "second_term_share": float(share[i]),
            "average_joules": 2.0,
            "average_radio_joules": 2.0 * float(radio_share[i]),
        }
        for solver in CHOOSERS
        for i, cost in enumerate(COSTS)
    )


GROWING = np.geomspace(5.0, 500.0, COSTS.size)
FEWER = np.arange(COSTS.size, 0, -1)
SPREAD = np.array([1.3, 1.1, 0.9, 0.7])[:, None]
PAPER = choices(SPREAD * GROWING, FEWER, np.linspace(0.99, 0.5, COSTS.size))
CONTRARY = choices(SPREAD[::-1] * GROWING[::-1], FEWER[::-1], np.linspace(0.4, 0.95, COSTS.size), radio=(0.9, 0.4))


def test_every_sentence_about_the_radio_holds_in_the_table_that_the_paper_describes():
    assert verdicts(claims_by_radio_cost(PAPER), "pareto") == ["reproduced"] * 10


def test_no_sentence_about_the_radio_holds_in_its_contrary():
    assert verdicts(claims_by_radio_cost(CONTRARY), "benders") == ["not reproduced"] * 10


def test_sentences_about_the_radio_can_hold_in_part():
    zigzag = GROWING * np.where(np.arange(COSTS.size) % 2, 0.5, 1.0)
    sparsity = np.array([zigzag, np.full(COSTS.size, 5.0), zigzag, zigzag])
    steps = np.concatenate([[1], FEWER[1:]])  # less at last than in the middle, but not than at first
    found = verdicts(claims_by_radio_cost(choices(sparsity, steps, np.linspace(0.85, 0.8, COSTS.size))), "pareto")
    assert found == [
        "partly",  # group 2 only is lowest at first
        "reproduced",
        "not reproduced",
        "reproduced",
        "partly",  # up in the end, with falls
        "not reproduced",
        "reproduced",
        "partly",  # group 2 is never severe
        "partly",  # a fifth, but not ten times more than before
        "partly",
    ]


def test_a_group_that_is_sparsest_at_few_points_is_sparsest_in_part():
    sparsity = np.tile(GROWING, (4, 1))
    sparsity[0, :3] *= 1.1
    claim = claims_by_radio_cost(choices(sparsity, FEWER, np.linspace(0.99, 0.5, COSTS.size)))[5 * len(CHOOSERS)]
    assert "Group 1" in claim.sentence
    assert (claim.verdict, claim.number) == ("partly", "visibly sparser at 3 of 13 points, by up to 10 %")


def test_sentences_about_the_step_follow_the_table():
    mirror = choices(SPREAD * GROWING[::-1], FEWER[::-1], np.linspace(0.5, 0.99, COSTS.size))
    assert verdicts(claims_by_step_cost(mirror, PAPER, PAPER), "pareto") == ["reproduced"] * 5
    both = choices(SPREAD * GROWING, FEWER[::-1], np.ones(COSTS.size))  # H and sparsity grow together
    falls = choices(SPREAD * GROWING, FEWER, np.ones(COSTS.size))
    assert verdicts(claims_by_step_cost(falls, both, falls), "pareto") == [
        "partly",  # alike where the two H cross
        "not reproduced",
        "not reproduced",
        "partly",  # against each other in one sweep only
        "reproduced",
    ]


def test_a_sweep_in_which_nothing_is_alike_is_not_symmetrical():
    other = choices(1.02 * SPREAD * GROWING, FEWER, np.ones(COSTS.size))
    assert claims_by_step_cost(PAPER, PAPER, other)[0].verdict == "not reproduced"


def test_there_is_no_trade_off_where_the_local_steps_never_change():
    still = choices(SPREAD * GROWING, np.ones(COSTS.size), np.ones(COSTS.size))
    claim = claims_by_step_cost(still, still, still)[-1 - len(CHOOSERS)]
    assert "trade-off" in claim.sentence
    assert (claim.verdict, claim.number) == ("not reproduced", "H never changes")


def test_a_jump_is_not_smooth():
    steps = np.where(np.arange(COSTS.size) < 5, 1, 3)
    jumping = choices(SPREAD * GROWING, steps, np.ones(COSTS.size))
    claim = claims_by_step_cost(jumping, jumping, jumping)[-1]
    assert "smoothly" in claim.sentence
    assert claim.verdict == "partly"  # H jumps, sparsity does not
    assert claim.number == "from point to point H changes by a factor of up to 3, sparsity by up to 1.5"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [([True, True], "reproduced"), ([True, False], "partly"), ([False], "not reproduced"), ([], "not reproduced")],
)
def test_a_verdict_counts_the_parts_that_hold(parts, expected):
    assert verdict(parts) == expected


CLAIMS = [
    Claim(figure="1(a)", sentence="It falls.", verdict="partly", number="2 | 3 J", why="So.", reading="pareto"),
    Claim(figure="1(a)", sentence="It falls.", verdict="reproduced", number="4 J", why="So.", reading="benders"),
    Claim(figure="2(a)", sentence="It learns.", verdict="not reproduced", number="0 %", why="Thus."),
]


def test_a_sentence_stands_once_for_all_its_readings():
    assert claims_markdown(CLAIMS).splitlines()[2:] == [
        "| 1(a) | It falls. | pareto | partly | 2 \\| 3 J | So. |",
        "|  |  | benders | reproduced | 4 J |  |",
        "| 2(a) | It learns. |  | not reproduced | 0 % | Thus. |",
    ]


def test_claims_are_written_whole(tmp_path):
    write_claims(CLAIMS, tmp_path / "claims.csv")
    write_claims(CLAIMS, tmp_path / "claims.md")
    assert [Claim(**row) for row in Table.read_csv(tmp_path / "claims.csv").rows()] == CLAIMS
    assert (tmp_path / "claims.md").read_text() == claims_markdown(CLAIMS)
