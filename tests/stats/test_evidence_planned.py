"""The bound of a planned number of blocks against published constants, against scipy, and against nothing."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from lab.stats import evidence

ALPHA = 0.01


@pytest.mark.parametrize(
    ("alpha", "looks", "constant"),
    [
        (0.05, 1, 1.960), (0.05, 2, 1.977), (0.05, 5, 2.040), (0.05, 10, 2.087), (0.05, 20, 2.126),
        (0.01, 2, 2.580), (0.01, 5, 2.621), (0.01, 10, 2.660), (0.01, 20, 2.695),
    ],
)  # fmt: skip
def test_the_constants_are_those_of_the_tables(alpha: float, looks: int, constant: float) -> None:
    """Jennison and Turnbull, table 2.3, whose looks begin with the first block."""
    assert evidence.crossing_probability(constant, looks, first=1) == pytest.approx(alpha, rel=3e-3)


def test_two_looks_are_a_normal_law_in_the_plane() -> None:
    """The sums of 6 and of 7 blocks, both inside +-c sqrt(7)."""
    for c in (0.5, 1.5, 2.6, 4.0):
        edge = c * math.sqrt(7)
        law = stats.multivariate_normal(cov=[[6, 6], [6, 7]])
        inside = law.cdf([edge, edge], lower_limit=[-edge, -edge])
        assert evidence.crossing_probability(c, 7) == pytest.approx(1 - inside, abs=1e-6)


def test_the_bound_is_below_that_of_endless_looks_and_joins_it() -> None:
    for c in (2.0, 2.7, 4.0, 8.0):
        chances = [evidence.crossing_probability(c, n) for n in (6, 20, 60, 200, 201)]
        assert chances == sorted(chances)
        assert 2 * stats.norm.sf(c) == pytest.approx(chances[0], rel=1e-6)
        assert chances[-1] == pytest.approx(4 * stats.norm.sf(c))
    assert evidence.crossing_probability(2.7, 200) == pytest.approx(evidence.crossing_probability(2.7, 201), rel=0.15)
    assert evidence.crossing_probability(0.0, 20) == 1.0


@pytest.mark.parametrize("freedom", [5, 9, 19, 39, 199])
@pytest.mark.parametrize("tail", [0.2, 0.025, 0.005, 1e-3, 1e-5, 1e-12])
def test_the_last_look_has_two_to_four_times_the_tail_of_t(freedom: int, tail: float) -> None:
    t, n = float(stats.t.isf(tail, freedom)), freedom + 1
    found = evidence.bound_p_value(n, t, n)
    assert 2 * tail * (1 - 1e-6) <= found <= min(1.0, 4 * tail)
    assert evidence.bound_p_value(n, -t, n) == found


def test_p_value_of_nothing_and_of_everything() -> None:
    assert evidence.bound_p_value(6, 0.0, 6) == 1.0
    assert evidence.bound_p_value(6, math.inf, 6) == 0.0
    falling = [evidence.bound_p_value(6, 10.0**k, 8) for k in range(9)]
    assert falling == sorted(falling, reverse=True)


def test_p_value_by_hand() -> None:
    """Of one look 2 (1 - Phi(z)): for z = 3 it is .0027. After a quarter of the blocks z counts half."""
    alone = float(stats.t.isf(stats.norm.sf(3.0), 5))
    assert evidence.bound_p_value(6, alone, 6) == pytest.approx(2 * 0.001349898, rel=1e-6)
    at_a_quarter = float(stats.t.isf(stats.norm.sf(4.0), 9))
    at_the_end = float(stats.t.isf(stats.norm.sf(2.0), 39))
    assert evidence.bound_p_value(10, at_a_quarter, 40) == pytest.approx(evidence.bound_p_value(40, at_the_end, 40))
    assert evidence.bound_p_value(10, -at_a_quarter, 40) == evidence.bound_p_value(10, at_a_quarter, 40)


def test_critical_t_round_trip() -> None:
    for n in (6, 7, 12, 24):
        t = evidence.bound_t(n, 24, ALPHA)
        assert evidence.bound_p_value(n, t, 24) == pytest.approx(ALPHA, rel=1e-9)
        assert evidence.bound_p_value(n, 0.999 * t, 24) > ALPHA
    # 4 (1 - Phi(c)) = .01 is 1 - Phi(c) = .0025: at the end of a long plan the critical t is the one with that tail.
    assert evidence.bound_t(300, 300, ALPHA) == pytest.approx(stats.t.isf(0.0025, 299), rel=1e-9)


@pytest.mark.parametrize("n", [1, 3, 5, 25, 100])
def test_it_says_nothing_before_six_blocks_and_beyond_the_plan(n: int) -> None:
    assert evidence.bound_p_value(n, 1e6, 24) == 1.0
    assert evidence.bound_t(n, 24, ALPHA) == math.inf
