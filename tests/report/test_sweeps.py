"""Sweeps: cases that differ in a size alone, as a line of text and a curve on the page."""

from pathlib import Path

import msgspec
import pytest

from lab import report
from lab.compare.results import CaseResult, SweepPoint
from lab.report.curves import shown_size, sweeps_of, sweeps_of_vcpus
from lab.workloads import selection

from ..fakes.result import case, reports, result


def point(size: int, factor: float, *, sweep: str = "map") -> CaseResult:
    base = [100.0 + i for i in range(6)]
    one = case(f"{sweep}-{size}", base, [factor * value for value in base], holm=True if factor != 1 else None)
    return msgspec.structs.replace(one, sweep=SweepPoint(name=sweep, size=size))


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((1, 1, 1, 1), "the arms differ at no size"),
        ((1, 1, 1.3, 2), "regression from 1 MiB on"),
        ((1.3, 1.2, 1.3, 2), "regression from 4 KiB on"),
        ((0.5, 1, 1, 0.5), "improvement from 4 MiB on"),
        ((0.5, 1.3, 1.3, 1.3), "regression from 64 KiB on"),
        ((1.3, 1, 1, 1), "the arms do not differ at the largest size"),
    ],
)
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
    document = result(*(point(4096 << step, 1 + step) for step in range(3)))
    stored = reports(tmp_path, document)
    line = "map: 0.0 % at 4 KiB, +100.0 % at 8 KiB, +200.0 % at 16 KiB: regression from 8 KiB on"
    assert line in report.render("text", stored)
    assert line in report.render("md", stored)
    page = report.render("html", stored)
    assert '<figure data-sweep="map">' in page
    assert f'aria-label="{line}"' in page
    assert "16 KiB</span>" in page


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
