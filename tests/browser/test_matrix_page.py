"""A matrix's page in a real browser: every cell says what the JSON says."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lab.compare.matrix_results import MatrixResult
from lab.report import document as json_document
from lab.report import matrix_page

from ..fakes.answer import matrix, stored_matrix
from .compared import require_same_matrix
from .opened import Opened, require_fit_for_all

pytestmark = pytest.mark.browser


def _write(folder: Path, document: MatrixResult | None = None) -> tuple[Path, Any]:
    one = stored_matrix(folder / "m", document)
    path = folder / "page.html"
    path.write_text(matrix_page.matrix(one))
    return path, json.loads(json_document.as_printed(one))


@pytest.mark.smoke
def test_every_cell_of_map_and_table_is_that_of_the_json(browser: Any, tmp_path: Path) -> None:
    path, stored = _write(tmp_path)
    opened = Opened(browser, path)
    require_same_matrix(opened, stored)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_fit_for_all(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    made = matrix()
    cells = [cell for cell in made.cells if cell.arm.endswith("=always")]
    one_axis = replace(
        made, axes=[made.axes[0]], arms=[arm for arm in made.arms if arm.label.endswith("=always")], cells=cells
    )
    for folder, document in (("two", made), ("one", one_axis)):
        require_fit_for_all(browser, _write(tmp_path / folder, document)[0], scheme, width)
