"""Curves over time and over a size: drawn where they belong, said in words, and only if both arms have them."""

from pathlib import Path

import msgspec
import pytest

from lab import report
from lab.compare import counters
from lab.compare.counters import Timeline
from lab.compare.results import CaseResult, SweepPoint
from lab.compare.runs import Run
from lab.core import records
from lab.report.curves import TimelineView, shown_size, sweeps_of, sweeps_of_vcpus
from lab.report.inputs import Comparisons, StoredComparison
from lab.workloads import selection

from ..fakes.result import SLOWER, case, reports, result


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


def test_when_it_had_grown_how_far_is_a_median_over_the_seeds_which_the_page_shows(tmp_path: Path) -> None:
    one = _with_curves(tmp_path)
    (series,) = map(TimelineView, counters.timelines(SLOWER, one.runs))
    assert series.rows[0] == ("64 MiB", "259 ms", "518 ms")
    assert series.rows[-1] == ("256 MiB", "1.03 s", "2.07 s")
    assert "256 MiB after 1.03 s in base, 2.07 s in test" in series.description
    assert [tick.text for tick in series.chart.up] == ["0 KiB", "64 MiB", "128 MiB", "192 MiB", "256 MiB"]
    assert [tick.text for tick in series.chart.along] == ["0 ns", "500 ms", "1 s", "1.5 s", "2 s"]
    text = report.render("html", Comparisons(items=[one]))
    assert 'data-series="rss"' in text and "Resident size (RES) over guest time" in text
    assert '<th scope="row">256 MiB</th><td class="n">1.03 s</td><td class="n">2.07 s</td>' in text


def test_long_curves_are_thinned_to_their_ends(tmp_path: Path) -> None:
    many = [[float(i), float(i)] for i in range(100_001)]
    series = TimelineView(Timeline(name="own", curves={"base": {1: many}, "test": {1: many}}))
    assert len(series.chart.picture) < 20_000 and "L1000 " in series.chart.picture
    assert series.meaning.title == "own, as the program reported it"


@pytest.mark.parametrize("arms", [("base",), ()])
def test_a_curve_of_one_arm_alone_is_not_compared(tmp_path: Path, arms: tuple[str, ...]) -> None:
    assert counters.timelines(SLOWER, _with_curves(tmp_path, arms=arms).runs) == []


# ---- over a size


def point(size: int, factor: float) -> CaseResult:
    base = [100.0 + i for i in range(6)]
    one = case(f"map-{size}", base, [factor * value for value in base], holm=True if factor != 1 else None)
    return msgspec.structs.replace(one, sweep=SweepPoint(name="map", size=size))


@pytest.mark.parametrize(("factors", "words"), [
    ((1, 1, 1, 1), "the arms differ at no size"),
    ((1, 1, 1.3, 2), "regression from 1 MiB on"),
    ((1.3, 1.2, 1.3, 2), "regression from 4 KiB on"),
    ((0.5, 1, 1, 0.5), "improvement from 4 MiB on"),
    ((0.5, 1.3, 1.3, 1.3), "regression from 64 KiB on"),
    ((1.3, 1, 1, 1), "the arms do not differ at the largest size"),
])  # fmt: skip
def test_the_size_from_which_the_arms_differ(factors: tuple[float, ...], words: str) -> None:
    sizes = (4 << 10, 64 << 10, 1 << 20, 4 << 20)
    cases = [point(size, factor) for size, factor in zip(sizes, factors, strict=True)]
    (sweep,) = sweeps_of(result(*reversed(cases)))
    assert [one.sweep.size for one in sweep.cases if one.sweep] == list(sizes)
    assert sweep.verdict == words
    assert sweep.line.startswith("map: ") and sweep.line.endswith(f" at 4 MiB: {words}")


def test_numbers_of_vcpus_are_a_curve_of_a_case_that_changed(tmp_path: Path) -> None:
    def on(vcpus: int, name: str, factor: float) -> CaseResult:
        return msgspec.structs.replace(point(1, factor), workload=f"contention@{vcpus}", case=name, sweep=None)

    changed = [on(vcpus, "fstat", factor) for vcpus, factor in ((8, 2.0), (1, 1.0), (4, 1.5))]
    document = result(*changed, *(on(vcpus, "pipe", 1.0) for vcpus in (1, 4, 8)))
    (sweep,) = sweeps_of_vcpus(document)
    assert sweep.line == (
        "contention:fstat: 0.0 % at 1 vCPU, +50.0 % at 4 vCPUs, +100.0 % at 8 vCPUs: regression from 4 vCPUs on"
    )
    assert "Change over the number of vCPUs" in report.render("html", reports(tmp_path, document))


def test_two_sizes_are_no_curve() -> None:
    assert sweeps_of(result(point(4096, 1), point(8192, 2))) == []


def test_every_format_for_people_shows_the_curve(tmp_path: Path) -> None:
    stored = reports(tmp_path, result(*(point(4096 << step, 1 + step) for step in range(3))))
    line = "map: 0.0 % at 4 KiB, +100.0 % at 8 KiB, +200.0 % at 16 KiB: regression from 8 KiB on"
    for form, words in (("text", line), ("md", line), ("html", f'aria-label="{line}"'), ("html", "16 KiB</span>")):
        assert words in report.render(form, stored), form


def test_the_groups_of_a_pattern_name_sweep_and_size() -> None:
    loaded, (one, other) = selection.select("syscalls:mprotect-shared-64k,getppid")
    assert loaded.sweep_of(one) == ("mprotect-shared", 64 << 10)
    assert loaded.sweep_of(other) is None
    assert loaded.sweep_of(loaded.case("mprotect-private-4000k")) == ("mprotect-private", 4000 << 10)


@pytest.mark.parametrize(
    ("size", "shown"), [(4096, "4 KiB"), (4000 << 10, "4000 KiB"), (1 << 30, "1 GiB"), (16, "16"), (1025, "1025")]
)
def test_a_size_is_shown_in_whole_units(size: int, shown: str) -> None:
    assert shown_size(size) == shown
