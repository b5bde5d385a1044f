"""Looks at blocks, with a plan and without: how often they are wrong, and what they ask for."""

import math

import numpy as np
import pytest
from scipy import stats

from lab.stats import evidence
from lab.stats.sequential import RoundPlan, SequentialTest, plan_within, plan_without_budget

ALPHA = 0.01
ALONE = SequentialTest(ALPHA)
PLANNED = SequentialTest(ALPHA, 20)
BAND = (math.log1p(-0.02), math.log1p(0.02))


def blocks(shift: float, n: int, seed: int = 1) -> list[float]:
    return [float(v) for v in np.random.default_rng(seed).normal(shift, 1, n)]


# ---- what is said


def test_without_a_plan_it_is_the_e_value_to_the_last_digit() -> None:
    x = blocks(0.7, 12)
    m = evidence.noisy_moments(x)
    assert ALONE.p_value(x) == evidence.p_value(evidence.log_evidence(m))
    assert ALONE.interval(x) == evidence.interval(m, ALPHA)
    assert ALONE.critical_t(12) == evidence.critical_t(12, ALPHA)
    assert SequentialTest(ALPHA, exact=True).interval(x) == evidence.interval(evidence.moments(x), ALPHA)


def test_a_plan_has_most_of_alpha_and_the_e_value_a_twentieth() -> None:
    x = blocks(0.4, 18)
    m = evidence.noisy_moments(x)
    by_plan = evidence.bound_p_value(18, evidence.t_statistic(m), 20) / 0.82
    by_evidence = 20 * evidence.p_value(evidence.log_evidence(m))
    assert by_plan < by_evidence
    assert PLANNED.p_value(x) == pytest.approx(by_plan)
    assert PLANNED.critical_t(18) == evidence.bound_t(18, 20, 0.82 * ALPHA)
    # At the end c = 2.759, the constant of 20 looks at .82 %; t of that tail with 19 degrees of freedom is 3.11.
    assert PLANNED.critical_t(20) == pytest.approx(stats.t.isf(stats.norm.sf(2.7587), 19), rel=1e-4)
    # Early on the e-value is nearer: E = 2,000 at the sixth block.
    assert PLANNED.critical_t(6) == evidence.critical_t(6, 0.05 * ALPHA) < evidence.bound_t(6, 20, 0.82 * ALPHA)
    # Before there is a plan its part is not spent.
    assert SequentialTest(ALPHA, 0).critical_t(20) == evidence.critical_t(20, 0.05 * ALPHA)
    assert SequentialTest(ALPHA, 0).p_value(x) == pytest.approx(min(1.0, by_evidence))


@pytest.mark.parametrize("shift", [0.0, 0.8, 1.5])
@pytest.mark.parametrize("n", [6, 12, 20, 30])
def test_interval_leaves_out_zero_exactly_when_p_is_below_alpha(shift: float, n: int) -> None:
    for seed in range(40):
        x = blocks(shift, n, seed)
        bounds = PLANNED.interval(x)
        assert bounds is not None and (bounds[0] > 0 or bounds[1] < 0) == (PLANNED.p_value(x) < ALPHA)


def test_beyond_the_plan_its_end_still_holds() -> None:
    x = blocks(1.0, 20, seed=4)
    end, bounds = PLANNED.p_value(x), PLANNED.interval(x)
    assert end < ALPHA and bounds is not None
    for more in (1, 5, 15):
        later = [*x, *blocks(0.0, more, seed=5)]
        assert PLANNED.p_value(later) <= end
        inside = PLANNED.interval(later)
        assert inside is not None and bounds[0] <= inside[0] < inside[1] <= bounds[1]


def test_what_contradicts_the_plans_end_is_taken_as_it_is_now() -> None:
    x = [*blocks(3.0, 20), *blocks(-3.0, 500)]
    bounds, now = PLANNED.interval(x), evidence.moments(evidence.clip(x))
    assert bounds is not None and bounds[0] < now.mean < bounds[1]


def test_numbers_without_spread() -> None:
    assert PLANNED.interval([0.1, 0.1]) is None
    assert PLANNED.interval([0.1] * 3) == pytest.approx((0.1, 0.1))
    assert PLANNED.p_value([0.1] * 3) < 1e-200 and PLANNED.p_value([0.0] * 20) == 1.0


# ---- how often it is wrong


@pytest.mark.long
def test_looking_at_all_blocks_and_going_on_beyond_the_plan_keeps_the_false_alarms_below_alpha() -> None:
    """2,000 comparisons of nothing, 12 blocks planned and 40 taken, looked at after each from the sixth on."""
    rows = np.random.default_rng(20261122).standard_normal((2000, 40)).tolist()
    test = SequentialTest(ALPHA, 12)
    alarms = sum(any(test.p_value(x[:n]) <= ALPHA for n in range(6, 41)) for x in rows)
    assert 0 < alarms <= ALPHA * len(rows)


# ---- planning


@pytest.mark.parametrize("n", [6, 7, 10, 40])
def test_detectable_effect_is_the_noncentral_t(n: int) -> None:
    for test in (ALONE, SequentialTest(ALPHA, n)):
        effect = test.detectable_effect(n, 2.0)
        assert effect is not None
        delta = effect / 2.0 * math.sqrt(n)
        assert stats.nct.sf(test.critical_t(n), n - 1, delta) == pytest.approx(0.8, abs=2e-3)


def half_width(test: SequentialTest, n: int, sd: float) -> float:
    return test.critical_t(n) * sd / math.sqrt(n)


@pytest.mark.parametrize("test", [ALONE, SequentialTest(ALPHA, 38)])
def test_blocks_to_settle_is_the_first_number_that_does(test: SequentialTest) -> None:
    m = evidence.Moments(8, 0.01, 0.012)
    more = test.blocks_to_settle(m, band=BAND, min_blocks=6)
    assert more is not None
    needed = math.log1p(0.02) - 0.01
    assert half_width(test, 8 + more, 0.012) < needed <= half_width(test, 7 + more, 0.012)


def test_a_change_that_is_certain_but_below_the_threshold_is_settled_by_being_the_same() -> None:
    """+1.7 % is beyond chance after a few blocks; after some hundreds more it is certainly below 2 %."""
    m, left = evidence.Moments(8, math.log1p(0.017), 0.012), math.log1p(0.02) - math.log1p(0.017)
    more = ALONE.blocks_to_settle(m, band=BAND, min_blocks=6)
    assert more is not None and half_width(ALONE, 8 + more, 0.012) < left
    beyond = ALONE.blocks_to_settle(evidence.Moments(8, math.log1p(0.021), 0.012), band=BAND, min_blocks=6)
    assert beyond is not None and beyond < more / 10
    few = evidence.Moments(4, 0.0, 0.0001)
    assert ALONE.blocks_to_settle(few, band=BAND, min_blocks=6, fewest=18) == 14


def test_the_end_of_a_plan_settles_what_the_block_after_it_would_not() -> None:
    """sd 1 and 50 planned: the end needs a mean above .46, the e-value alone .53 after 51 blocks."""
    test, m = SequentialTest(ALPHA, 50), evidence.Moments(10, 0.5, 1.0)
    assert half_width(test, 50, 1.0) < 0.5 < half_width(test, 51, 1.0)
    more = test.blocks_to_settle(m, min_blocks=6)
    assert more is not None and more <= 40
    assert half_width(test, 10 + more, 1.0) < 0.5


def test_blocks_to_settle_gives_up_rather_than_promise() -> None:
    m = evidence.Moments(8, 0.0, 5.0)
    assert ALONE.blocks_to_settle(m, band=BAND, min_blocks=6) is None
    flat = evidence.Moments(4, 0.5, 0.0)
    assert ALONE.blocks_to_settle(flat, band=BAND, min_blocks=6) == 2


# ---- rounds within a budget


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
