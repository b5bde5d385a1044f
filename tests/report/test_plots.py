"""Plots: everything is drawn where it is."""

import re
import statistics

import msgspec
import pytest

from lab.report import plots
from lab.report.plots import SIZE, Scale, Series
from lab.stats.verdict import Comparison

from ..fakes.result import SLOWER, large


def _ratio(ratio: float, interval: tuple[float, float] | None = None) -> Comparison:
    return msgspec.structs.replace(SLOWER.metrics[0], ratio=ratio, interval=interval)


def _path(svg: str, kind: str) -> str:
    found = re.search(rf'class="{kind}" d="([^"]*)"', svg)
    assert found is not None
    return found[1]


def test_an_interval_is_drawn_where_it_is() -> None:
    scale = Scale.of([_ratio(0.5), _ratio(2.0)], 0.02)
    svg = plots.interval(_ratio(1.5, (1.2, 2.0)), scale) or ""
    assert _path(svg, "whisker") == f"M{scale.at(1.2)} 500H{scale.at(2.0)}"
    assert _path(svg, "middle") == f"M{scale.at(1.5)} 500h0.1"


def test_every_sample_is_a_dot_at_its_height() -> None:
    base, test = [10.0, 20.0, 30.0], [40.0, None, 60.0]
    svg, up, _ = plots.strip(base, test, 'a "label"')
    axis = plots.axis_of(base, test)
    dots = re.findall(r"M(\d+) (\d+)h0", _path(svg, "dots base"))
    assert [int(y) for _, y in dots] == [axis.at(value) for value in base]
    assert up == axis.ticks()
    assert _path(svg, "dots test").count("h0") == 2
    assert 'role="img" aria-label="a &#34;label&#34;"' in svg


def test_a_distribution_counts_every_sample() -> None:
    document = large(500).cases[0].metrics[0]
    svg = plots.distribution(document.base, document.test).picture
    bars = [int(width) for width in re.findall(r"h-(\d+)v", _path(svg, "bars base"))]
    assert max(bars) <= 480 and len(bars) > 3
    assert statistics.mean(bars) > 0


def _points(svg: str, kind: str) -> list[tuple[float, int]]:
    return [(float(x), int(y)) for x, y in re.findall(r"M([\d.]+) (\d+)h0", _path(svg, kind))]


def test_a_series_has_its_steps_its_outliers_and_its_band_where_they_are() -> None:
    one = Series([100.0, 104.0, None, 200.0, 202.0], list("abcde"), (98.0, 102.0), steps=[3], outliers=[1])
    svg, up, along = plots.series(one, "words")
    points = _points(svg, "points")
    assert len(points) == 4 and [x for x, _ in points] == [20.0, 260.0, 740.0, 980.0]
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert _points(svg, "steps") == [points[2]] and _points(svg, "outliers") == [points[1]]
    assert _path(svg, "step") == f"M620.0 0V{SIZE}" and 'class="zero"' not in svg
    assert [(tick.at, tick.text) for tick in along] == [(2, "a"), (26, "b"), (50, "c"), (74, "d"), (98, "e")]
    assert [tick.text for tick in up] == ["100", "120", "140", "160", "180", "200"]


def test_a_series_is_not_joined_over_a_cut() -> None:
    svg = plots.series(Series([1.0, 2.0, 3.0, 4.0], list("abcd"), (1.0, 1.0), cuts=[2]), "").picture
    assert [line.count("L") for line in re.findall(r'class="level" d="([^"]*)"', svg)] == [1, 1]
    assert _path(svg, "zero") == f"M500.0 0V{SIZE}"


def test_of_many_values_the_steps_are_labelled_first() -> None:
    names = [f"6.12.{i}-1" for i in range(90)]
    chart = plots.series(Series([1.0] * 90, names, (0.9, 1.1), steps=[45, 46]), "")
    labels = [tick.text for tick in chart.along]
    assert names[45] in labels and names[0] in labels and names[89] in labels and len(labels) <= 24
    assert chart.upright == len("6.12.45-1")


@pytest.mark.parametrize("values", [[], [None, None]])
def test_a_series_without_values_is_an_empty_picture(values: list[float | None]) -> None:
    svg = plots.series(Series(values, ["a"] * len(values), (0.0, 0.0)), "").picture
    assert 'class="points"' not in svg and 'class="level"' not in svg
