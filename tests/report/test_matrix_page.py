"""A matrix as page, Markdown and CSV: every cell's number and verdict, reasons, and words that attack the reader."""

import csv
import io
from pathlib import Path

import pytest
from msgspec.structs import replace

from lab import report
from lab.compare import result_folders
from lab.report import csv_rows, markdown, matrix_page, matrix_text

from ..fakes import answer as fakeanswer
from ..fakes.answer import stored_matrix
from ..fakes.command import Lab
from ..fakes.result import HOSTILE


def test_two_axes_are_a_grid_for_each_case() -> None:
    made = fakeanswer.matrix()
    first, second = matrix_text.grids(made)
    assert [first.title, second.title] == ["alloc-burst:large", "alloc-burst:small"]
    assert first.rows == ["old", "new"] and first.columns == ["always", "never"]
    assert {cell.case for row in second.cells for cell in row} == {"small"}


def test_csv_has_every_value_and_every_reason(tmp_path: Path) -> None:
    made = fakeanswer.matrix()
    rows = list(csv.DictReader(io.StringIO(csv_rows.matrix(stored_matrix(tmp_path / "m")))))
    assert len(rows) == sum(len(cell.values) or 1 for cell in made.cells)
    for cell in made.cells:
        mine = [row for row in rows if (row["arm"], row["case"]) == (cell.arm, cell.case)]
        assert [float(row["value"]) for row in mine if row["value"]] == cell.values
        assert {row["state"] for row in mine} == {made.state(cell)}
        assert {row["at_thp"] for row in mine} == {cell.arm.rpartition("=")[2]}
    (lost,) = [row for row in rows if row["state"] == "failed"]
    assert "Oh dear" in lost["failed"] and not lost["value"]


def test_markdown_has_a_table_for_each_grid_and_every_reason(tmp_path: Path) -> None:
    text = markdown.matrix(stored_matrix(tmp_path / "m"))
    assert text.count("| --- | ---: | ---: |") == 2
    assert "**163 +" in text.replace("162.5", "163") and "failed: the guest panicked: Oh dear" in text


def test_two_thousand_cells_are_less_than_a_megabyte(tmp_path: Path) -> None:
    made = fakeanswer.matrix()
    cells = [replace(cell, case=f"case-{i}-4632k") for i in range(500) for cell in made.cells[:4]]
    text = matrix_page.matrix(stored_matrix(tmp_path / "m", replace(made, cells=cells)))
    assert len(text.encode()) < 1_000_000
    assert text.count("data-mean=") == 2000 and "The first 600 of 2000 cells" in text


@pytest.mark.parametrize("form", ["text", "md", "html", "csv"])
def test_hostile_words_are_shown_and_not_obeyed(tmp_path: Path, form: str) -> None:
    one = stored_matrix(tmp_path / "m", fakeanswer.matrix(HOSTILE))
    text = report.render(form, one)
    assert not [mark for mark in ("\x1b", "\u202e", "\u2066", "\x00", "\ufeff") if mark in text]
    assert "\\x1b" in text and "\\u202e" in text
    if form == "html":
        assert text.count("<script") == 1


def test_the_command_writes_each_format(own_home: None, tmp_path: Path, lab: Lab) -> None:
    made = fakeanswer.matrix()
    stored_matrix(result_folders.results_dir() / made.result, made)
    for form in ("text", "md", "html", "csv", "json"):
        lab("report", made.result, "-f", form, "-o", str(tmp_path / form))
        assert "162.5" in (tmp_path / form).read_text(), form
    assert "a matrix has no format 'mail'" in lab("report", made.result, "-f", "mail", status=2).err
