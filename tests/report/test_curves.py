"""Curves over time: drawn where they belong, said in words, and only where both arms have them."""

from pathlib import Path

import pytest

from lab.compare import counters
from lab.compare.counters import Timeline
from lab.compare.runs import Run
from lab.core import records
from lab.report import page
from lab.report.curves import TimelineView
from lab.report.inputs import StoredComparison

from ..fakes import result as fakeresult
from ..fakes.result import SLOWER, reports, result


def _with_curves(folder: Path, *, arms: tuple[str, ...] = ("base", "test")) -> StoredComparison:
    """A result whose case grew to 256 MiB: the base in 1 s and the test in 2 s, each seed a little later."""
    (one,) = reports(folder, result(SLOWER)).items
    for path in sorted((one.folder / "runs").glob("*.json")):
        run = records.load(path, Run)
        end = (1e9 if run.arm == "base" else 2e9) * (1 + run.seed / 100)
        outcome = run.report.case(SLOWER.case)
        if outcome and run.arm in arms:
            outcome.series = {"rss": [[end * i / 64, 4096.0 * i] for i in range(65)]}
        records.save(path, run)
    return StoredComparison(raw=one.raw, folder=one.folder)


def test_when_it_had_grown_how_far_is_a_median_over_the_seeds(tmp_path: Path) -> None:
    one = _with_curves(tmp_path)
    (series,) = map(TimelineView, counters.timelines(SLOWER, one.runs))
    assert series.rows[0] == ("64 MiB", "259 ms", "518 ms")
    assert series.rows[-1] == ("256 MiB", "1.03 s", "2.07 s")
    assert "256 MiB after 1.03 s in base, 2.07 s in test" in series.description
    assert [tick.text for tick in series.chart.up] == ["0 KiB", "64 MiB", "128 MiB", "192 MiB", "256 MiB"]
    assert [tick.text for tick in series.chart.along] == ["0 ns", "500 ms", "1 s", "1.5 s", "2 s"]


def test_long_curves_are_thinned_to_their_ends(tmp_path: Path) -> None:
    many = [[float(i), float(i)] for i in range(100_001)]
    series = TimelineView(Timeline(name="own", curves={"base": {1: many}, "test": {1: many}}))
    assert len(series.chart.picture) < 20_000 and "L1000 " in series.chart.picture
    assert series.meaning.title == "own, as the program reported it"


@pytest.mark.parametrize("arms", [("base",), ()])
def test_a_curve_of_one_arm_alone_is_not_compared(tmp_path: Path, arms: tuple[str, ...]) -> None:
    assert counters.timelines(SLOWER, _with_curves(tmp_path, arms=arms).runs) == []


def test_the_page_shows_it_with_its_table(tmp_path: Path) -> None:
    one = _with_curves(tmp_path)
    text = page.comparison(fakeresult.Comparisons(items=[one]))
    assert 'data-series="rss"' in text and "Resident size (RES) over guest time" in text
    assert '<th scope="row">256 MiB</th><td class="n">1.03 s</td><td class="n">2.07 s</td>' in text
