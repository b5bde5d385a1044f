"""How often the verdict of live mode is wrong, and what it finds, through the code that decides (`Rounds`).

`make bench-verdict` prints the full tables; these are fewer and shorter comparisons with bounds that would not hold
if boots were not what is sampled.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from ..scenarios.simulation.comparisons import Design, Noise, best_possible, figures, many

NOISE = Noise()


def test_kernels_that_are_alike_are_hardly_ever_called_different_and_pooling_fails_this() -> None:
    """200 comparisons of 4 metrics, looked at after every block; at most 1 % of them may be wrong in any metric."""
    found = figures(many(NOISE, Design(metrics=4, max_blocks=10, fixed_iterations=5), 200, seed=11))
    assert found.wrong <= 1.0
    assert found.ever <= 2.0
    # The reason for all this: the test that everybody does, at the same 1 % for each metric, over the same numbers.
    assert found.naive_1 > 10.0
    assert found.naive_5 > 30.0


def test_a_change_as_large_as_the_noise_is_found_with_boots_enough() -> None:
    """Bounds three standard errors below what `make bench-verdict` prints, at 1 % and at 5 %."""
    design = Design(max_blocks=200, budget_s=600.0)
    large = figures(many(Noise(effect=2.0), design, 60, seed=12))
    assert large.found >= 95.0
    assert large.seconds < 400.0
    assert figures(many(Noise(effect=1.0), design, 60, seed=13)).found >= 48.0
    assert figures(many(Noise(effect=1.0), replace(design, alpha=0.05), 60, seed=13)).found >= 74.0


def test_a_plan_finds_nearly_as_much_as_one_look_at_its_end() -> None:
    """The same rounds, 30 planned: a t-test at 1 % that may be done once, and the lab, which looks all the time."""
    design = Design(max_blocks=30, fixed_iterations=1, to_the_end=True)
    found = figures(many(Noise(effect=1.0), design, 100, seed=15))
    assert found.planned_1 - 12.0 <= found.found <= found.planned_1 + 5.0


def test_the_bound_of_any_test_is_that_of_a_test_that_knows_the_noise() -> None:
    """30 blocks of one iteration, told its noise, no drift, no outliers: a z-test, simulated."""
    noise = Noise(effect=0.5, sample_sd=0.6)
    random = np.random.default_rng(16)
    blocks = noise.effect + math.hypot(0.6, 0.6) * (random.standard_normal((4000, 30, 2)) @ [1, -1])
    z = blocks.mean(axis=1) / (math.hypot(0.6, 0.6) * math.sqrt(2 / 30))
    for alpha in (0.01, 0.05):
        found = 100 * np.mean(np.abs(z) > stats.norm.isf(alpha / 2))
        assert best_possible(noise, 600.0, alpha) == pytest.approx(found, abs=2.5)
    assert best_possible(Noise(), 600.0, 0.01) == pytest.approx(1.0)


def test_duets_find_more_in_the_same_time() -> None:
    """Both arms at the same instant: the host's drift is in neither, and a block takes half the time."""
    design = Design(max_blocks=200, budget_s=400.0, alpha=0.05)
    alone, together = (figures(many(Noise(effect=1.0, duet=duet), design, 60, seed=14)).found for duet in (False, True))
    assert together > alone + 15.0
