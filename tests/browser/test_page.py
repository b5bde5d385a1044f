"""The page of each kind of result in a real browser: it says what the JSON says, and can be used by everybody."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lab import report
from lab.compare.explain import Explanation, FunctionRow, StoredExplanation, remember
from lab.compare.results import AbResult
from lab.core.text import visible
from lab.report.inputs import Comparisons, Stored, StoredMatrix

from ..fakes.answer import CULPRIT, bisection, matrix, name_of, stored_matrix
from ..fakes.result import HOSTILE, SLOWER, hostile, live, reports, result
from .compared import require_same_bisection, require_same_comparison, require_same_matrix
from .opened import Opened, require_fit_for_all

pytestmark = pytest.mark.browser


def _explained(folder: Path, *documents: AbResult, mark: str = "") -> Comparisons:
    """Comparisons, the first of them with an explanation."""
    together = reports(folder, *documents, mark=mark)
    flame = StoredExplanation(
        workload="alloc-burst", case=SLOWER.case, machine="made-up-machine", model="full", cost="cycles",
        explanation=Explanation(
            base_operations=1, test_operations=1,
            rows=[FunctionRow(name=f"function_{i}", space="kernel", test_cycles=i * 9000) for i in range(1, 9)],
        ),
    )  # fmt: skip
    remember(together.items[0].folder, flame)
    return together


def _one_axis(folder: Path) -> StoredMatrix:
    made = matrix()
    cells = [cell for cell in made.cells if cell.arm.endswith("=always")]
    arms = [arm for arm in made.arms if arm.label.endswith("=always")]
    return stored_matrix(folder, replace(made, axes=[made.axes[0]], arms=arms, cells=cells))


KINDS: dict[str, Callable[[Path], Stored]] = {
    "comparison": lambda folder: _explained(folder, result()),
    "several": lambda folder: _explained(
        folder, result(), result(name="other", fingerprint="e" * 16), mark="ENVIRONMENTS DIFFER (qemu)"
    ),
    "live": lambda folder: _explained(folder, result(mode="live", live=live())),
    "suite": lambda folder: _explained(folder, result(suite="quick")),
    "bisection": bisection,
    "matrix": stored_matrix,
    "one axis": _one_axis,
}


def _write(folder: Path, stored: Stored) -> Path:
    path = folder / "page.html"
    path.write_text(report.render("html", stored))
    return path


def _open(browser: Any, folder: Path, kind: str) -> tuple[Opened, Any]:
    """A page, and the JSON of the same result."""
    stored = KINDS[kind](folder / "stored")
    return Opened(browser, _write(folder, stored)), json.loads(report.render("json", stored))


@pytest.mark.smoke
def test_values_on_the_page_are_those_of_the_json(browser: Any, tmp_path: Path) -> None:
    opened, stored = _open(browser, tmp_path, "comparison")
    require_same_comparison(opened, stored)
    seeds = opened.page.locator("#r1-case-1 details.raw tbody th").all_text_contents()
    assert [int(seed) for seed in seeds] == stored["seeds"]


@pytest.mark.smoke
def test_a_bisections_values_are_those_of_the_json(browser: Any, tmp_path: Path) -> None:
    opened, stored = _open(browser, tmp_path, "bisection")
    require_same_bisection(opened, stored)
    assert opened.page.locator("#commits tr.culprit").get_attribute("data-commit") == name_of(CULPRIT)[:12]


@pytest.mark.smoke
def test_every_cell_of_map_and_table_is_that_of_the_json(browser: Any, tmp_path: Path) -> None:
    require_same_matrix(*_open(browser, tmp_path, "matrix"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "comparison"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_fit_for_all(browser: Any, tmp_path: Path, kind: str, scheme: str, width: int) -> None:
    require_fit_for_all(browser, _write(tmp_path, KINDS[kind](tmp_path / "stored")), scheme, width)


@pytest.mark.parametrize(("make", "places"), [
    (lambda folder: _explained(folder, hostile()), ["#r1-table tbody th"]),
    (lambda folder: bisection(folder, title=HOSTILE), ["p.sentence", "#commits tr.culprit"]),
])  # fmt: skip
def test_hostile_words_do_nothing(
    browser: Any, tmp_path: Path, make: Callable[[Path], Stored], places: list[str]
) -> None:
    opened = Opened(browser, _write(tmp_path, make(tmp_path / "stored")))
    assert opened.said == []
    for place in places:
        assert visible(HOSTILE) in opened.page.locator(place).first.inner_text()
    assert opened.page.locator("script").count() == 1


def test_steps_and_chances_stand_at_their_commits(browser: Any, tmp_path: Path) -> None:
    opened, stored = _open(browser, tmp_path, "bisection")
    lane = opened.page.locator(".chart.path .box").bounding_box()
    count = stored["candidates"] + 1
    for mark, step in zip(opened.page.locator(".mark-step").all(), stored["path"], strict=True):
        box = mark.bounding_box()
        number = int(step["commit"][:12], 16)
        assert box["x"] + box["width"] / 2 == pytest.approx(lane["x"] + lane["width"] * (number + 0.5) / count, abs=3)
    bars = [bar.bounding_box() for bar in opened.page.locator("svg .chance").all()]
    middle = bars[0]["x"] + bars[0]["width"] / 2
    assert middle == pytest.approx(lane["x"] + lane["width"] * (CULPRIT + 0.5) / count, abs=3)
    assert bars[1]["height"] < bars[0]["height"] / 3 and bars[1]["width"] > 4 * bars[0]["width"]


def test_tables_are_sorted_and_filtered_by_keyboard(browser: Any, tmp_path: Path) -> None:
    opened, _ = _open(browser, tmp_path, "comparison")
    changes = [one.primary.ratio for one in result().cases]
    heading = opened.page.locator("#r1-table th[data-kind=number]").first
    heading.locator("button").focus()
    opened.page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    values = [cell.get_attribute("data-value") for cell in opened.page.locator("#r1-table tbody td.moved").all()]
    numbers = [float(value) for value in values if value]
    assert numbers == sorted(ratio for ratio in changes if ratio is not None) and values[-1] == ""
    opened.page.keyboard.press("Space")
    assert heading.get_attribute("aria-sort") == "descending"
    values = [cell.get_attribute("data-value") for cell in opened.page.locator("#r1-table tbody td.moved").all()]
    assert [float(value) for value in values if value] == numbers[::-1] and values[-1] == ""

    opened.page.locator("input[name=text]").first.focus()
    opened.page.keyboard.type("LAYOUT")
    assert opened.page.locator("#r1-table tbody tr:visible").count() == 3
    assert opened.texts("form.filters output") == ["3 of 5 cases"]
    opened.page.locator("select[name=verdict]").first.select_option("regression")
    assert opened.page.locator("#r1-table tbody tr:visible").count() == 1


def test_a_link_unfolds_its_case_and_paper_has_no_folds(browser: Any, tmp_path: Path) -> None:
    opened, _ = _open(browser, tmp_path, "comparison")
    assert opened.page.locator("#r1-case-1").get_attribute("open") is not None  # the headline
    assert opened.page.locator("#r1-case-3").get_attribute("open") is None
    opened.page.locator("#r1-table a").nth(2).click()
    opened.page.wait_for_function("document.getElementById('r1-case-3').open")
    opened.page.emulate_media(media="print")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.page.locator("details:not([open], .raw, .all-counters)").count() == 0
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.page.locator("details.case:not([open])").count() > 0
