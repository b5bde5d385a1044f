"""Plots: everything is drawn where it is, labelled with round values, and read by others as a document."""

import itertools
import re
import statistics
import xml.etree.ElementTree as ElementTree

import msgspec
import pytest

from lab.report import plots
from lab.report.plots import SIZE, Axis, Chart, Scale, Series, Tick
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


# ---- places and their labels


def test_a_scale_keeps_order_and_is_symmetric() -> None:
    scale = Scale.of([_ratio(0.2), _ratio(5.0)], 0.02)
    places = [scale.at(ratio) for ratio in (0.2, 0.5, 0.98, 1.0, 1.02, 2.0, 5.0)]
    assert places == sorted(places) and places[0] >= 0 and places[-1] <= SIZE
    assert scale.at(1.0) == SIZE / 2
    assert scale.at(2.0) + scale.at(0.5) == pytest.approx(SIZE, abs=0.3)
    ticks = scale.ticks()
    assert "0" in [tick.text for tick in ticks] and all(b.at - a.at >= 29 for a, b in itertools.pairwise(ticks))


def test_axes_have_round_numbers() -> None:
    for low, high, wanted in (
        (3254, 3350, "3,260 3,280 3,300 3,320 3,340"),
        (0.0012, 0.0031, "0.0015 0.0020 0.0025 0.0030"),
    ):
        assert " ".join(tick.text for tick in Axis(low=low, high=high).ticks()) == wanted
    assert [tick.text for tick in Axis(low=0, high=7.2e6).ticks()] == ["0", "2 M", "4 M", "6 M"]
    ticks = Axis(low=0.97, high=1.08).ticks(plots.in_percent)
    assert [tick.text for tick in ticks] == ["-2 %", "0 %", "+2 %", "+4 %", "+6 %", "+8 %"]
    assert [tick.at for tick in ticks] == sorted((tick.at for tick in ticks), reverse=True)


@pytest.mark.parametrize(("values", "middle"), [([], 0.0), ([5.0], 5.0), ([-1.0, 1.0], 0.0)])
def test_an_axis_is_never_of_no_length(values: list[float], middle: float) -> None:
    axis = Axis.of(values)
    assert axis.low < middle < axis.high and axis.at(middle) == SIZE / 2


def test_labels_that_come_first_keep_their_room() -> None:
    ticks = plots.spaced([(500, "first"), (450, "near"), (100, "left"), (600, "right")], 100)
    assert ticks == [Tick(10, "left"), Tick(50, "first"), Tick(60, "right")]


def test_many_labels_stand_upright_and_few_do_not() -> None:
    def upright(count: int, text: str) -> int:
        return Chart(plots.picture([]), along=[Tick(0, text)] * count).upright

    assert upright(10, "6.12.90-1~bpo12+1") == len("6.12.90-1~bpo12+1")
    assert upright(12, "12") == 0 and Chart(plots.picture([])).upright == 0


def test_a_document_is_described_and_has_no_markup_of_others() -> None:
    parts = [plots.text(1, 2, "<b>&"), plots.rect("more", 0, 1.234, 2, 3)]
    text = plots.document(10, 20, parts, title="<title>", description='"quoted"', style=plots.themes(".a{}", ".b{}"))
    root = ElementTree.fromstring(text)  # noqa: S314  (our own)
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title") == "<title>" and root.findtext(f"{space}desc") == '"quoted"'
    assert root.get("aria-labelledby") == "title description" and root.findtext(f"{space}text") == "<b>&"
    assert [rect.get("y") for rect in root.iter(f"{space}rect")] == ["0", "1.23"]
    assert "(prefers-color-scheme:dark){.b{}}" in text
