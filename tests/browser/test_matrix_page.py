"""A matrix's page in a real browser: every cell says what the JSON says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab import matrix
from lab.matrixresults import MatrixResult
from lab.reporting import matrices, matrix_page
from lab.visible import visible

from ..unit import fakeanswer
from ..unit.fakeanswer import stored_matrix
from ..unit.fakeresult import HOSTILE
from .opened import Opened, require_nothing_serious, require_quiet_and_narrow

pytestmark = pytest.mark.browser


def _write(folder: Path, document: MatrixResult | None = None) -> tuple[Path, Any]:
    one = stored_matrix(folder / "m", document)
    path = folder / "page.html"
    path.write_text(matrix_page.render(one))
    return path, json.loads(matrices.json(one))


def test_every_cell_of_map_and_table_is_that_of_the_json(browser: Any, tmp_path: Path) -> None:
    path, stored = _write(tmp_path)
    opened = Opened(browser, path)
    made = fakeanswer.matrix()
    for cell, row, document in zip(
        stored["cells"], opened.page.locator("#cells tbody tr").all(), made.cells, strict=True
    ):
        state = matrix.state(document, made.baseline)
        ratio = cell["comparison"]["ratio"] if cell["comparison"] else None
        drawn = opened.page.locator(f'table.heat td[data-case="{cell["case"]}"][data-arm="{cell["arm"]}"]')
        assert drawn.get_attribute("data-state") == row.get_attribute("data-verdict") == state
        mean, change, seeds = (one.get_attribute("data-value") for one in row.locator("td[data-value]").all())
        assert mean == drawn.get_attribute("data-mean") and change == drawn.get_attribute("data-ratio")
        assert (float(mean) if mean else None) == cell["mean"] and (float(change) if change else None) == ratio
        assert int(seeds) == len(cell["seeds"])
        if cell["failed"]:
            assert cell["failed"] in row.inner_text() and "failed" in drawn.inner_text()
    assert stored["summary"] in opened.page.locator("p.sentence").inner_text()


def test_worse_and_better_have_colours_and_signs_of_their_own(browser: Any, tmp_path: Path) -> None:
    path, _ = _write(tmp_path)
    opened = Opened(browser, path)
    seen = {
        state: opened.page.locator(f'table.heat td[data-state="{state}"]').first.evaluate(
            "cell => [getComputedStyle(cell).backgroundColor, cell.innerText]"
        )
        for state in ("regression", "improvement", "baseline", "failed")
    }
    assert len({colour for colour, _ in seen.values()}) == 4
    assert "▼" in seen["regression"][1] and "▲" in seen["improvement"][1]


def test_rows_are_headed_so_that_a_screen_reader_can_name_every_cell(browser: Any, tmp_path: Path) -> None:
    path, _ = _write(tmp_path)
    opened = Opened(browser, path)
    for table in opened.page.locator("table.heat").all():
        assert [one.inner_text() for one in table.locator("th[scope=col]").all()] == ["always", "never"]
        assert [one.inner_text() for one in table.locator("th[scope=row]").all()] == ["old", "new"]


def test_cells_are_filtered_by_state(browser: Any, tmp_path: Path) -> None:
    path, _ = _write(tmp_path)
    opened = Opened(browser, path)
    opened.page.locator("select[name=verdict]").select_option("failed")
    assert opened.texts("form.filters output") == ["1 of 8 cells"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_nothing_is_said_asked_or_wider_than_the_screen(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    require_quiet_and_narrow(browser, _write(tmp_path)[0], scheme, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, tmp_path: Path, scheme: str) -> None:
    require_nothing_serious(browser, _write(tmp_path)[0], scheme)


def test_hostile_words_do_nothing(browser: Any, tmp_path: Path) -> None:
    path, _ = _write(tmp_path, fakeanswer.matrix(HOSTILE))
    opened = Opened(browser, path)
    assert opened.said == []
    assert visible(HOSTILE) in opened.page.locator("#map-1").inner_text()
    assert opened.page.locator("script").count() == 1
