"""An atlas in a real browser: values, keyboard, permalinks, pairs; both themes, phones, paper."""

import random
from pathlib import Path
from typing import Any

import pytest

from lab.atlas import site
from lab.atlas.data import Atlas, Cell

from ..fakes import atlas as fake
from ..fakes.result import HOSTILE
from .opened import Opened, require_fit_for_all

pytestmark = pytest.mark.browser

STEPS = {(1, 4): 1.2, (4, 7): 0.6, (2, 5): 1.05}


@pytest.fixture(scope="module")
def atlas() -> Atlas:
    return fake.atlas(9, 12, steps=STEPS, holes={(3, 6): "panic: it did not boot"}, sd=0.001)


@pytest.fixture(scope="module")
def folder(atlas: Atlas, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    site.write([atlas], made, {0: fake.growing(atlas, 4)})
    return made


def shown(atlas: Atlas, case: int, column: int, reference: int, basis: Any) -> str:
    """What a cell of the matrix has to show."""
    cell, base = (atlas.cells[atlas.cases[case].name][at] for at in (column, reference))
    assert isinstance(base, Cell)
    if not isinstance(cell, Cell):
        return "·"
    change = round(100 * ((cell.mean(basis) or 0.0) / (base.mean(basis) or 1.0) - 1))
    return f"{'+' if change > 0 else '-'}{abs(change)}" if change else "0"


def cell_of(opened: Opened, case: int, column: int) -> Any:
    return opened.page.locator(f'#matrix tr[data-row="{case}"] td').nth(column)


@pytest.mark.parametrize("basis", ["cycles", "instructions"])
def test_twenty_cells_are_those_of_the_data(browser: Any, atlas: Atlas, folder: Path, basis: str) -> None:
    opened = Opened(browser, folder / "index.html")
    opened.page.locator("select[name=basis]").select_option(basis)
    opened.page.locator("select[name=reference]").select_option(atlas.columns[2].id)
    dice = random.Random(7)  # noqa: S311
    for _ in range(20):
        case, column = dice.randrange(9), dice.randrange(12)
        assert cell_of(opened, case, column).inner_text() == shown(atlas, case, column, 2, basis)
    assert cell_of(opened, 3, 6).inner_text() == "·"


def test_the_matrix_is_walked_by_keys_and_opens_the_case(browser: Any, atlas: Atlas, folder: Path) -> None:
    opened = Opened(browser, folder / "index.html")
    cell_of(opened, 0, 0).focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        opened.page.keyboard.press(key)
    name = "syscalls:case-3"  # the next of its group
    said = opened.page.locator("#chosen").inner_text()
    assert f"{name} in {atlas.columns[2].version}" in said and f"lab atlas check {name}@{atlas.columns[2].id}" in said
    opened.page.keyboard.press("End")
    assert atlas.columns[-1].version in opened.page.locator("#chosen").inner_text()
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_url("**/case/syscalls-case-3.html*")
    assert opened.page.locator("h1").inner_text() == name


def test_a_click_shows_the_curve_and_a_hole_its_reason(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder / "index.html")
    cell_of(opened, 1, 8).click()
    assert opened.page.locator("#chosen svg path.level").get_attribute("d").count("L") == 10
    cell_of(opened, 3, 6).click()
    assert "panic: it did not boot" in opened.page.locator("#chosen").inner_text()


def test_cases_are_found_and_the_link_keeps_the_choice(browser: Any, atlas: Atlas, folder: Path) -> None:
    opened = Opened(browser, folder / "index.html")
    opened.page.locator("#controls input[name=text]").fill("case-4")
    opened.page.locator("select[name=reference]").select_option(atlas.columns[6].id)
    assert opened.texts("#controls output") == ["1 of 9 cases"]
    cell_of(opened, 4, 8).click()
    kept = opened.page.url
    again = opened.page.context.new_page()
    again.goto(kept)
    assert again.locator("#controls output").inner_text() == "1 of 9 cases"
    assert again.locator("select[name=reference]").input_value() == atlas.columns[6].id
    assert "syscalls:case-4 in" in again.locator("#chosen").inner_text()


def test_two_kernels_of_choice_are_compared_with_their_steps(browser: Any, atlas: Atlas, folder: Path) -> None:
    opened = Opened(browser, folder / "pair.html")
    opened.page.locator("select[name=base]").select_option(atlas.columns[4].id)
    opened.page.locator("select[name=test]").select_option(atlas.columns[11].id)
    rows = [row.locator("th, td").all_inner_texts() for row in opened.page.locator("#changes tbody tr").all()]
    words = {row[1]: (row[5], row[6]) for row in rows}
    assert words["syscalls:case-4"] == ("better", atlas.columns[7].version)
    assert words["syscalls:case-2"] == ("worse", atlas.columns[5].version)
    assert words["syscalls:case-0"] == ("same", "")
    assert [row[1] for row in rows][:2] == ["syscalls:case-4", "syscalls:case-2"]
    again = opened.page.context.new_page()
    again.goto(opened.page.url)
    assert again.locator("select[name=test]").input_value() == atlas.columns[11].id
    opened.page.locator("select[name=word]").select_option("worse")
    assert opened.texts("#changes tbody th") == [case for case, (word, _) in words.items() if word == "worse"]
    opened.page.locator("select[name=base]").select_option(atlas.columns[0].id)
    assert "two compilers" in opened.page.locator("#remark").inner_text()


PAGES = ["index.html", "pair.html", "case/syscalls-case-1.html", "kernel/6.5.1-1.html", "next/index.html"]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
def test_it_is_fit_for_all(browser: Any, folder: Path, page: str, scheme: str, width: int) -> None:
    require_fit_for_all(browser, folder / page, scheme, width)


def test_paper_has_no_controls_and_every_column(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder / "index.html")
    opened.page.emulate_media(media="print")
    assert not opened.page.locator("#controls").is_visible()
    assert opened.page.locator("#matrix tbody td").first.is_visible()


def test_sixty_cases_by_sixty_kernels_load_in_a_second(browser: Any, tmp_path: Path) -> None:
    """The best of three: others may use the processor, too."""
    site.write([fake.atlas(60, 60)], tmp_path)
    script = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    assert min(Opened(browser, tmp_path / "index.html").page.evaluate(script) for _ in range(3)) < 1000


def test_hostile_words_do_nothing(browser: Any, tmp_path: Path) -> None:
    site.write([fake.atlas(3, 6, steps={(1, 4): 1.2}, holes={(0, 1): HOSTILE}, words=HOSTILE)], tmp_path)
    for page in ("index.html", "pair.html", "case/syscalls-case-1.html"):
        opened = Opened(browser, tmp_path / page)
        if page == "index.html":
            cell_of(opened, 0, 1).click()
        assert opened.said == []
