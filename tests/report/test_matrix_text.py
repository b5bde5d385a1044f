"""A matrix as text and as a heat map: what a reader must find in it, and read back from it."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lab.compare import matrix, result_folders
from lab.compare.matrix_results import Cell, MatrixResult
from lab.core.errors import GuestFailed, GuestFailure
from lab.report import heatmap, matrix_text
from lab.report.heatmap import COLOURS
from lab.stats import verdict
from lab.stats.verdict import Outcome

from ..compare.test_matrix import TWO_AXES, a_plan, by_setting
from ..fakes.guest import FakeGuests, Formula, pretend, write_workload
from ..fakes.result import printed
from ..fakes.work import quiet

THREE = ["before", "regressed", "fixed"]


def rates(arm: str, seed: int, case: str) -> float:
    """The figures of the 2013 report, as a formula: 1M direct reads are the large case."""
    before, regressed, fixed = (8384.0, 5629.0, 8371.0) if case == "large" else (7867.0, 4576.0, 7865.0)
    return {"before": before, "regressed": regressed * (1 + seed * 1e-4), "fixed": fixed}[arm]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: None) -> Any:
    """A function that measures a matrix with guests of a formula."""

    def measure(
        formula: Formula, files: list[str], settings: list[str], cases: str = "large", **changes: Any
    ) -> MatrixResult:
        pretend(monkeypatch, tmp_path, FakeGuests(formula))
        plan = a_plan(f"{write_workload(tmp_path / 'mine')}:{cases}", files, settings, **changes)
        folder = result_folders.new_folder(None)
        result_folders.store_plan(folder, plan)
        return matrix.measure(plan, folder, quiet())

    return measure


def text_of(result: MatrixResult, width: int | None = None) -> str:
    return printed(matrix_text.show, result, width)


def rows_of(text: str) -> list[list[str]]:
    """The grid's lines as words, several spaces apart."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if " \\ " in line)
    end = lines.index("", start)
    return [re.split(r" {3,}", line.strip()) for line in lines[start:end]]


def test_two_axes_and_one_case_are_rows_and_columns(measured: Any) -> None:
    text = text_of(measured(by_setting, ["k"], TWO_AXES))
    assert text.startswith("mine:large: throughput, op/s (higher is better)\n")
    (corner, *columns), first, second = rows_of(text)
    assert (corner, columns) == ("thp \\ thp.defrag", ["always", "never"])
    assert first[0] == "always" and first[1].split() == ["102", "baseline"] and first[2:] == ["102", "0.0 % ="]
    assert second[0] == "never" and second[1].endswith("-50.0 % ▼") and second[2].endswith("+100.1 % ▲")
    assert "against thp=always thp.defrag=always: 1 regression, 1 improvement, 1 same" in text


def test_cases_are_rows_and_arms_columns_as_in_a_report_of_2013_unless_only_the_other_way_fits(measured: Any) -> None:
    result = measured(rates, THREE, [], cases="large,small")
    head, large, small = rows_of(text_of(result))
    assert head == ["case \\ arm", *THREE]
    assert large[0] == "large" and small[0] == "small (control)"
    assert large[1].split() == ["8,384", "baseline"]
    assert large[2].split()[0] == "5,631" and "-32.8 % ▼" in large[2]
    assert large[3] == "8,371 -0.2 % ="
    assert small[2] == "4,578 -41.8 % ▼"
    narrow = rows_of(text_of(result, width=60))
    assert narrow[0] == ["arm \\ case", "large", "small (control)"]
    assert [row[0] for row in narrow[1:]] == THREE
    assert rows_of(text_of(result, width=30))[0][0] == "case \\ arm", "nothing fits: as it is"


def test_one_case_and_kernels_by_a_setting_are_a_grid_of_both(measured: Any) -> None:
    def formula(arm: str, seed: int, case: str) -> float:
        return 50.0 if arm.startswith("b") else 100.0

    result = measured(formula, ["a", "b"], ["thp=always,never"])
    shown = matrix_text.lay_out(result)
    assert (shown.corner, shown.rows, shown.columns) == ("kernel \\ thp", ["a", "b"], ["always", "never"])
    assert [[cell.mean for cell in row] for row in shown.cells] == [[100.0, 100.0], [50.0, 50.0]]


def test_failures_and_open_cells_say_why(measured: Any) -> None:
    def formula(arm: str, seed: int, case: str) -> float:
        if arm == "regressed":
            raise GuestFailed(GuestFailure.OOM, "regressed arm, seed 1: it ran out of memory")
        return 100.0 if arm == "before" else 100.0 + (-1) ** seed * (20 + seed)

    text = text_of(measured(formula, THREE, []))
    (row,) = rows_of(text)[1:]
    assert row[2].split() == ["failed", "✗"] and row[3].endswith("?")
    assert "  large regressed: failed: regressed arm, seed 1: it ran out of memory" in text
    assert re.search(r"  large fixed: unknown: .*, about \d+ more seeds would settle it", text)
    assert "1 unknown, 1 failed" in text


def test_how_it_was_counted_is_said_and_how_to_repeat_it(measured: Any) -> None:
    result = measured(rates, THREE, [])
    text = text_of(result)
    assert "guest clock (instructions)" in text and "QEMU 7.2.22" in text
    assert f"lab report {result.result}" in text and f"lab replay {result.result}" in text
    assert "before: file:/boot/before Linux 6.99\nregressed: file:/boot/regressed Linux 6.99\n" in text
    guests = {"mine": replace(result.environment.guests["mine"], model="tlb alderlake 1234")}
    result = replace(result, environment=replace(result.environment, guests=guests))
    assert matrix_text.clocks(result) == "guest clock (instructions)", "a model was run, but this is not its metric"
    cells = [replace(cell, metric="cycles_per_op") for cell in result.cells]
    modelled = replace(result, cells=cells)
    assert matrix_text.clocks(modelled) == "modelled cycles (tlb alderlake 1234)"
    assert "modelled cycles (tlb alderlake 1234)" in text_of(modelled)


# --- the heat map


def test_the_heat_map_says_all_in_words_too(measured: Any) -> None:
    def formula(arm: str, seed: int, case: str) -> float:
        if arm == "fixed":
            raise GuestFailed(GuestFailure.PANIC, "it died")
        return rates(arm, seed, case)

    result = measured(formula, THREE, [])
    assert [heatmap.described(cell, result.baseline) for cell in result.cells] == [
        "mine:large, before: 8,384 op/s, baseline",
        "mine:large, regressed: 5,631 op/s, -32.8 % against before: regression, beyond threshold",
        "mine:large, fixed: failed: it died",
    ]


def _cell(ratio: float | None, outcome: Outcome | None, **more: Any) -> Cell:
    comparison = verdict.compare_metric(
        verdict.Metric(name="m", unit="u", better="higher", primary=True), [1.0] * 3, [ratio or 1.0] * 3, exact=True
    )
    comparison = replace(comparison, ratio=ratio, verdict=outcome)
    values: dict[str, Any] = {
        "arm": "a", "workload": "w", "case": "c", "control": False, "metric": "m", "unit": "u", "better": "higher",
        "seeds": [1], "values": [1.0], "mean": 1.0, "comparison": comparison, "verdict": outcome, "means": {},
    }  # fmt: skip
    return Cell(**{**values, **more})


@pytest.mark.parametrize(("cell", "kind"), [
    (_cell(1.03, Outcome.IMPROVEMENT), "better-1"),
    (_cell(1.1, Outcome.IMPROVEMENT), "better-2"),
    (_cell(0.8, Outcome.REGRESSION), "worse-3"),
    (_cell(1.3, Outcome.REGRESSION), "worse-3"),
    (_cell(0.1, Outcome.REGRESSION), "worse-4"),
    (_cell(None, Outcome.REGRESSION), "worse-4"),
    (_cell(0.0, Outcome.IMPROVEMENT), "better-4"),
    (_cell(0.5, Outcome.UNKNOWN), "level"),
    (_cell(1.01, Outcome.SAME), "level"),
    (_cell(1.3, None, better="neither"), "worse-3"),
    (_cell(1.0, None, better="neither"), "level"),
    (_cell(1.0, None, failed="it died"), "failed"),
    (_cell(1.0, None, mean=None, seeds=[]), "level"),
])  # fmt: skip
def test_colours_follow_the_verdict_and_the_size_of_the_change(cell: Cell, kind: str) -> None:
    assert heatmap.colour_of(cell, "baseline") == kind


def _luminance(colour: str) -> float:
    """WCAG 2's relative luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", COLOURS)
def test_words_can_be_read_on_every_colour_light_and_dark(name: str) -> None:
    colour = COLOURS[name]
    assert _contrast(colour.light, colour.light_ink) >= 4.5
    assert _contrast(colour.dark, colour.dark_ink) >= 4.5
