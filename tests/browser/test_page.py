"""The page in a real browser: it says what the JSON says, and can be used by everybody."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.compare.explain import Explanation, FunctionRow, StoredExplanation, remember
from lab.compare.results import AbResult
from lab.core.text import visible
from lab.report import document, page
from lab.report.inputs import Comparisons

from ..fakes import result as fakeresult
from ..fakes.result import HOSTILE, SLOWER, hostile, live, result
from .compared import require_same_comparison
from .opened import Opened, require_fit_for_all

pytestmark = pytest.mark.browser


def _write(folder: Path, *documents: AbResult, mark: str = "") -> tuple[Path, Comparisons]:
    together = fakeresult.reports(folder, *documents, mark=mark)
    flame = StoredExplanation(
        workload="alloc-burst", case=SLOWER.case, machine="made-up-machine", model="full", cost="cycles",
        explanation=Explanation(
            base_operations=1, test_operations=1,
            rows=[FunctionRow(name=f"function_{i}", space="kernel", test_cycles=i * 9000) for i in range(1, 9)],
        ),
    )  # fmt: skip
    remember(together.items[0].folder, flame)
    path = folder / "page.html"
    path.write_text(page.comparison(together))
    return path, together


@pytest.mark.smoke
def test_values_on_the_page_are_those_of_the_json(browser: Any, tmp_path: Path) -> None:
    path, together = _write(tmp_path, result())
    stored = json.loads(document.comparison(together))
    opened = Opened(browser, path)
    require_same_comparison(opened, stored)
    seeds = opened.page.locator("#r1-case-1 details.raw tbody th").all_text_contents()
    assert [int(seed) for seed in seeds] == stored["seeds"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_fit_for_all(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    two = (result(), result(name="other", fingerprint="e" * 16))
    several, _ = _write(tmp_path / "several", *two, mark="ENVIRONMENTS DIFFER (qemu)")
    lively, _ = _write(tmp_path / "live", result(mode="live", live=live()))
    suite, _ = _write(tmp_path / "suite", result(suite="quick"))
    for path in (several, lively, suite):
        require_fit_for_all(browser, path, scheme, width)


def test_tables_are_sorted_and_filtered_by_keyboard(browser: Any, tmp_path: Path) -> None:
    path, _ = _write(tmp_path, result())
    opened = Opened(browser, path)
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


def test_a_link_unfolds_its_case(browser: Any, tmp_path: Path) -> None:
    path, _ = _write(tmp_path, result())
    opened = Opened(browser, path)
    assert opened.page.locator("#r1-case-1").get_attribute("open") is not None  # the headline
    assert opened.page.locator("#r1-case-3").get_attribute("open") is None
    opened.page.locator("#r1-table a").nth(2).click()
    opened.page.wait_for_function("document.getElementById('r1-case-3').open")


def test_hostile_words_do_nothing(browser: Any, tmp_path: Path) -> None:
    path, _ = _write(tmp_path, hostile())
    opened = Opened(browser, path)
    assert opened.said == []
    assert visible(HOSTILE) in opened.page.locator("#r1-table tbody th").first.inner_text()
    assert opened.page.locator("script").count() == 1


def test_paper_has_no_folds(browser: Any, tmp_path: Path) -> None:
    path, _ = _write(tmp_path, result())
    opened = Opened(browser, path)
    opened.page.emulate_media(media="print")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.page.locator("details:not([open], .raw, .all-counters)").count() == 0
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.page.locator("details.case:not([open])").count() > 0
