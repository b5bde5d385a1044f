"""Change points: those that Apache Otava finds, lasting steps alone, dated, and few false ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from lab.stats.changepoints import change_points, outlying, steps

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "otava-0.8.0.json").read_text())


@pytest.mark.parametrize("series", REFERENCE["series"], ids=lambda one: one["name"])
@pytest.mark.parametrize("max_p", ["0.001", "0.0001"])
def test_the_changes_are_those_that_otava_itself_found(series: dict[str, object], max_p: str) -> None:
    found = change_points(np.array(series["values"]), max_p=float(max_p))
    assert [one.index for one in found] == series["found"][max_p]  # type: ignore[index]


def _noise(seed: int, count: int, level: float = 100.0, sd: float = 1.0) -> list[float]:
    return [float(value) for value in np.random.default_rng(seed).normal(level, sd, count)]


def test_a_step_is_found_where_it_is_and_dated_to_a_range() -> None:
    inside = 0
    for seed in range(100):
        (step,) = steps([*_noise(seed, 40), *_noise(100 + seed, 30, 103.0)])
        inside += step.earliest <= 40 <= step.latest
        assert step.latest - step.earliest <= 6 and step.ratio == pytest.approx(1.03, abs=0.01)
    assert inside >= 97


def test_a_step_of_numbers_without_noise_is_dated_to_the_point() -> None:
    (step,) = steps([50.0] * 10 + [60.0] * 4)
    assert (step.index, step.earliest, step.latest, step.ratio) == (10, 10, 10, pytest.approx(1.2))


@pytest.mark.parametrize("place", [0, 1, 20, 38, 39])
def test_an_outlier_is_no_step(place: int) -> None:
    values = _noise(3, 40)
    values[place] = 150.0
    assert steps(values) == []
    assert place in outlying(values)


def test_two_bad_nights_are_no_step_and_three_are() -> None:
    assert steps([*_noise(4, 30), *_noise(5, 2, 120.0), *_noise(6, 30)]) == []
    assert steps([*_noise(4, 30), *_noise(5, 2, 120.0)]) == []
    (step,) = steps([*_noise(4, 30), *_noise(5, 3, 120.0)])
    assert step.index == 30


def test_there_and_back_are_two_steps() -> None:
    first, second = steps([*_noise(4, 30), *_noise(5, 12, 110.0), *_noise(6, 30)])
    assert (first.index, second.index) == (30, 42)
    assert first.ratio * second.ratio == pytest.approx(1.0, abs=0.01)


def test_steps_that_are_too_small_do_not_count() -> None:
    values = [*_noise(1, 40, sd=0.1), *_noise(2, 40, 100.8, sd=0.1)]
    assert len(steps(values)) == 1 and steps(values, least=0.01) == []


def test_a_slope_is_no_flight_of_stairs() -> None:
    for seed in range(20):
        slope = [value * (1 + 0.001 * place) for place, value in enumerate(_noise(seed, 60, sd=0.3))]
        assert len(steps(slope, least=0.01)) <= 1


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [0.0] * 20, [-1.0] * 20, [5.0] * 20])
def test_what_has_no_steps(values: list[float]) -> None:
    assert steps(values) == []


def test_quiet_series_have_no_steps_but_for_a_few() -> None:
    false = sum(bool(steps(_noise(seed, 100))) for seed in range(100))
    assert false <= 5
