"""The bound of a planned number of blocks against scipy, against numbers worked out by hand, and against nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from lab.stats import evidence

ALPHA = 0.01


@pytest.mark.parametrize("freedom", [4, 5, 9, 19, 39, 200])
@pytest.mark.parametrize("tail", [0.2, 0.025, 0.005, 1e-3, 1e-5, 1e-12])
def test_the_last_look_has_four_times_the_tail_of_t(freedom: int, tail: float) -> None:
    t, n = float(stats.t.isf(tail, freedom)), freedom + 1
    assert evidence.bound_p_value(n, t, n) == pytest.approx(min(1.0, 4 * tail), rel=1e-9)
    assert evidence.bound_p_value(n, -t, n) == evidence.bound_p_value(n, t, n)


def test_p_value_of_nothing_and_of_everything() -> None:
    assert evidence.bound_p_value(6, 0.0, 6) == 1.0
    assert evidence.bound_p_value(6, math.inf, 6) == 0.0
    falling = [evidence.bound_p_value(4, 10.0**k, 8) for k in range(9)]
    assert falling == sorted(falling, reverse=True)


def test_p_value_by_hand() -> None:
    """At the end 4 (1 - Phi(z)): for z = 3 it is 4 x .00135 = .0054. After a quarter of the blocks z counts half."""
    at_the_end = float(stats.t.isf(stats.norm.sf(3.0), 19))
    assert evidence.bound_p_value(20, at_the_end, 20) == pytest.approx(4 * 0.001349898, rel=1e-6)
    at_a_quarter = float(stats.t.isf(stats.norm.sf(4.0), 9))
    assert evidence.bound_p_value(10, at_a_quarter, 40) == pytest.approx(4 * stats.norm.sf(2.0), rel=1e-9)
    assert evidence.bound_p_value(10, -at_a_quarter, 40) == evidence.bound_p_value(10, at_a_quarter, 40)
    assert evidence.bound_p_value(20, 0.5, 20) == 1.0


def test_critical_t_round_trip() -> None:
    for n in (4, 6, 12, 24):
        t = evidence.bound_t(n, 24, ALPHA)
        assert evidence.bound_p_value(n, t, 24) == pytest.approx(ALPHA, rel=1e-9)
        assert evidence.bound_p_value(n, 0.999 * t, 24) > ALPHA
    # 4 (1 - Phi(c)) = .01 is 1 - Phi(c) = .0025: at the end the critical t is the one with that tail.
    assert evidence.bound_t(24, 24, ALPHA) == pytest.approx(stats.t.isf(0.0025, 23), rel=1e-9)


@pytest.mark.parametrize("n", [1, 3, 25, 100])
def test_it_says_nothing_before_four_blocks_and_beyond_the_plan(n: int) -> None:
    assert evidence.bound_p_value(n, 1e6, 24) == 1.0
    assert evidence.bound_t(n, 24, ALPHA) == math.inf


def t_statistics(runs: int, blocks: int) -> np.ndarray:
    """Of every first k blocks of nothing; columns from k = 1, where there is none."""
    x = np.random.default_rng(20261122).standard_normal((runs, blocks))
    k = np.arange(1, blocks + 1)
    mean = np.cumsum(x, 1) / k
    variance = (np.cumsum(x**2, 1) - k * mean**2) / np.maximum(k - 1, 1)
    return np.asarray(mean * np.sqrt(k) / np.sqrt(np.maximum(variance, 1e-300)))


@pytest.mark.parametrize("blocks", [6, 12, 30, 100])
def test_looking_after_every_block_keeps_the_false_alarms_below_alpha(blocks: int) -> None:
    """And the same looks at the boundary of the last one alone do not."""
    t = np.abs(t_statistics(20_000, blocks))
    critical = np.array([evidence.bound_t(k, blocks, ALPHA) for k in range(1, blocks + 1)])
    alarms = (t > critical).any(1).mean()
    assert 0.3 * ALPHA < alarms < 1.15 * ALPHA, "at most alpha, but for three standard errors of the simulation"
    if blocks > 6:
        naive = np.array([stats.t.isf(ALPHA / 2, max(k - 1, 1)) for k in range(1, blocks + 1)])
        assert (t > naive)[:, evidence.FIRST_LOOK_ROUNDS - 1 :].any(1).mean() > 2 * ALPHA
