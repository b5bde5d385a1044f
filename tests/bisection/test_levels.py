"""Deciding a commit by its numbers."""

from __future__ import annotations

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
        (OLD, Level(0)),
        (NEW, Level(1)),
        (times(1.015), Level(0)),
        (times(0.985, NEW), Level(1)),
        (times(0.8), Level(None, new=True)),
        (times(1.05), Level(None, new=True)),
        (times(0.9, NEW), Level(None, new=True)),
    ],
)
def test_values_without_spread_decide(values: list[float], expected: Level) -> None:
    assert exact_state.level_of(values, [OLD, NEW], BAND) == expected


def test_seeds_that_disagree_decide_nothing_near_an_edge() -> None:
    found = exact_state.level_of([100.0, 110.0, 101.0], [OLD, NEW], BAND)
    assert (found.number, found.new) in ((0, False), (None, False))
    unsure = exact_state.level_of([80.0, 110.0, 70.0], [OLD, NEW], BAND)
    assert unsure.number is None and not unsure.new and "disagree" in unsure.why


def test_noise_beyond_the_band_is_still_told_from_a_large_effect() -> None:
    found = exact_state.level_of([104.0, 104.0, 108.5], [OLD, [20.0, 20.4, 20.8]], 0.001)
    assert found.number == 0 or found.new


def test_as_near_to_one_as_to_another_is_not_told() -> None:
    found = exact_state.level_of(times(1.015), [OLD, times(1.03)], BAND)
    assert found.number is None and "as near" in found.why


@pytest.mark.parametrize(
    ("values", "reference", "size"),
    [
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 0.0], [5.0, 5.0], math.inf),
        ([-1.0, -1.0], [1.0, 1.0], math.inf),
        ([math.e, math.e], [1.0, 1.0], 1.0),
    ],
)
def test_distances_with_zeros(values: list[float], reference: list[float], size: float) -> None:
    assert exact_state.distance(values, reference).size == pytest.approx(size)


def test_counters_from_zero_make_a_level() -> None:
    assert exact_state.level_of([0.0, 0.0], [[0.0, 0.0], [9.0, 9.0]], BAND) == Level(0)
    assert exact_state.level_of([4.0, 4.0], [[0.0, 0.0], [9.0, 9.0]], BAND) == Level(None, new=True)


def test_what_is_no_number_is_not_told() -> None:
    assert exact_state.level_of([math.nan, 1.0, 1.0], [OLD, NEW], BAND).why == "a value is not a number"


def test_values_and_reference_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="2 values against 3"):
        exact_state.distance([1.0, 2.0], OLD)
