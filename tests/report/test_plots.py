"""Plots: everything is drawn where it is."""

from __future__ import annotations

import itertools
import re
import statistics

import msgspec
import pytest

from lab.report import plots
from lab.report.plots import Axis, Scale
from lab.stats.verdict import Comparison

from ..fakes.result import SLOWER, large


def _ratio(ratio: float, interval: tuple[float, float] | None = None) -> Comparison:
    return msgspec.structs.replace(SLOWER.metrics[0], ratio=ratio, interval=interval)


def _path(svg: str, kind: str) -> str:
    found = re.search(rf'class="{kind}" d="([^"]*)"', svg)
    assert found is not None
    return found[1]


def test_a_scale_keeps_order_and_is_symmetric() -> None:
    scale = Scale.of([_ratio(0.2), _ratio(5.0)], 0.02)
    places = [scale.at(ratio) for ratio in (0.2, 0.5, 0.98, 1.0, 1.02, 2.0, 5.0)]
    assert places == sorted(places) and places[0] >= 0 and places[-1] <= plots.SIZE
    assert scale.at(1.0) == plots.SIZE / 2
    assert scale.at(2.0) + scale.at(0.5) == pytest.approx(plots.SIZE, abs=0.3)
    ticks = scale.ticks()
    assert "0" in [tick.text for tick in ticks] and all(b.at - a.at >= 9 for a, b in itertools.pairwise(ticks))


def test_an_interval_is_drawn_where_it_is() -> None:
    scale = Scale.of([_ratio(0.5), _ratio(2.0)], 0.02)
    svg = scale.interval(_ratio(1.5, (1.2, 2.0))) or ""
    assert _path(svg, "whisker") == f"M{scale.at(1.2)} 500H{scale.at(2.0)}"
    assert _path(svg, "middle") == f"M{scale.at(1.5)} 500h0"


def test_every_sample_is_a_dot_at_its_height() -> None:
    base, test = [10.0, 20.0, 30.0], [40.0, None, 60.0]
    svg = plots.strip(base, test, 'a "label"')
    axis = plots.axis_of(base, test)
    dots = re.findall(r"M(\d+) (\d+)h0", _path(svg, "dots base"))
    assert [int(y) for _, y in dots] == [axis.at(value) for value in base]
    assert _path(svg, "dots test").count("h0") == 2
    assert 'role="img" aria-label="a &#34;label&#34;"' in svg


def test_a_distribution_counts_every_sample() -> None:
    document = large(500).cases[0].metrics[0]
    svg = plots.distribution(document.base, document.test)
    bars = [int(width) for width in re.findall(r"h-(\d+)v", _path(svg, "bars base"))]
    assert max(bars) <= 480 and len(bars) > 3
    assert statistics.mean(bars) > 0


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
