"""The places of values, their labels, and documents that are read by others."""

import itertools
import xml.etree.ElementTree as ElementTree

import msgspec
import pytest

from lab.report import plots
from lab.report.plots import Axis, Chart, Scale, Tick
from lab.stats.verdict import Comparison

from ..fakes.result import SLOWER


def _ratio(ratio: float) -> Comparison:
    return msgspec.structs.replace(SLOWER.metrics[0], ratio=ratio, interval=None)


def test_a_scale_keeps_order_and_is_symmetric() -> None:
    scale = Scale.of([_ratio(0.2), _ratio(5.0)], 0.02)
    places = [scale.at(ratio) for ratio in (0.2, 0.5, 0.98, 1.0, 1.02, 2.0, 5.0)]
    assert places == sorted(places) and places[0] >= 0 and places[-1] <= plots.SIZE
    assert scale.at(1.0) == plots.SIZE / 2
    assert scale.at(2.0) + scale.at(0.5) == pytest.approx(plots.SIZE, abs=0.3)
    ticks = scale.ticks()
    assert "0" in [tick.text for tick in ticks] and all(b.at - a.at >= 18 for a, b in itertools.pairwise(ticks))


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
    assert axis.low < middle < axis.high and axis.at(middle) == plots.SIZE / 2


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
