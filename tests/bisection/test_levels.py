"""Deciding a commit by its numbers."""

import math

import pytest

from lab.bisection import exact_state
from lab.bisection.exact_state import Level

OLD, NEW = [100.0, 102.0, 104.0], [60.0, 61.2, 62.4]
BAND = math.log1p(0.02)


def times(factor: float, values: list[float] = OLD) -> list[float]:
    return [value * factor for value in values]


def test_the_band_is_the_threshold_but_never_more_than_a_third_of_the_effect() -> None:
    assert exact_state.band(OLD, NEW, 0.02) == pytest.approx(BAND)
    assert exact_state.band(OLD, times(1.03), 0.02) == pytest.approx(math.log(1.03) / 3)
    assert exact_state.band(OLD, OLD, 0.02) == exact_state.band(OLD, times(1.01), 0.02) == pytest.approx(BAND)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (OLD, Level(0)), (NEW, Level(1)), (times(1.015), Level(0)), (times(0.985, NEW), Level(1)),
        *((far, Level(None, new=True)) for far in (times(0.8), times(1.05), times(0.9, NEW))),
    ],
)  # fmt: skip
def test_values_without_spread_decide(values: list[float], expected: Level) -> None:
    assert exact_state.level_of(values, [OLD, NEW], BAND) == expected


def test_seeds_that_disagree_decide_nothing_near_an_edge() -> None:
    found = exact_state.level_of([100.0, 110.0, 101.0], [OLD, NEW], BAND)
    assert (found.number, found.new) in ((0, False), (None, False))
    unsure = exact_state.level_of([80.0, 110.0, 70.0], [OLD, NEW], BAND)
    assert unsure.number is None and not unsure.new and "disagree" in unsure.why


@pytest.mark.parametrize(("values", "reference", "size"), [
    ([0.0, 0.0], [0.0, 0.0], 0.0),
    ([0.0, 0.0], [5.0, 5.0], math.inf),
    ([-1.0, -1.0], [1.0, 1.0], math.inf),
    ([math.e, math.e], [1.0, 1.0], 1.0),
])  # fmt: skip
def test_distances_with_zeros(values: list[float], reference: list[float], size: float) -> None:
    assert exact_state.distance(values, reference).size == pytest.approx(size)


def test_counters_from_zero_make_a_level() -> None:
    assert exact_state.level_of([0.0, 0.0], [[0.0, 0.0], [9.0, 9.0]], BAND) == Level(0)
    assert exact_state.level_of([4.0, 4.0], [[0.0, 0.0], [9.0, 9.0]], BAND) == Level(None, new=True)
