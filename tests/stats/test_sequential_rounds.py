"""How many rounds are planned, by hand."""

from __future__ import annotations

import pytest

from lab.stats.sequential import RoundPlan, plan_within, plan_without_budget


def planned(left_s: float, done: int, *, round_s: float = 30.0, most: int = 40, fewest: int = 6) -> RoundPlan | None:
    return plan_within(left_s, round_s=round_s, done=done, most=most, fewest=fewest, iterations=2)


@pytest.mark.parametrize(
    ("left_s", "done", "rounds"),
    [
        (600.0, 0, None),  # nothing is known
        (510.0, 3, None),  # 20 in all, of which fewer than a third are done
        (420.0, 6, None),
        (390.0, 7, 20),  # 7 and 13
        (419.0, 7, 20),  # half a round is none
        (60.0, 4, 6),
        (0.0, 4, 6),  # no verdict with fewer than six
        (-50.0, 9, 9),  # too late by one round
        (1e9, 13, None),  # 40 at most, and a third of them is 13.3
        (1e9, 14, 40),
    ],
)
def test_rounds_that_fit(left_s: float, done: int, rounds: int | None) -> None:
    found = planned(left_s, done)
    assert found == (rounds and RoundPlan(rounds=rounds, iterations=2))


def test_without_a_budget_it_is_what_was_asked_for() -> None:
    assert plan_without_budget(40, 6) == RoundPlan(rounds=40, iterations=None)
    assert plan_without_budget(3, 6) == RoundPlan(rounds=6, iterations=None)
