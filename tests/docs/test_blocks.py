"""How the documentation's commands are found in its pages, and how outputs are compared."""

import re
from pathlib import Path

import click
import pytest

from . import blocks, dryrun

TOP = Path(__file__).resolve().parents[2]
RUN = [TOP / "README.md", TOP / "docs" / "tutorial.md"]
# Without the reference that Sphinx makes.
PAGES = [TOP / "README.md", *sorted(path for path in (TOP / "docs").rglob("*.md") if path.parent.name != "commands")]


SHOWN = """\
base  f01e0786a46f Linux 6.12.117
...
layout-4632k  1,326,886 +5.9 %  [+5.6 %, +6.2 %]  regression ...
result ...   again
"""
REAL = """\
base f01e0786a46f  Linux 6.12.117

case
layout-4632k    1,326,886  +5.9 %  [+5.6 %, +6.2 %]  regression  vmas 1 -> 14
result /x/y   again
"""


def test_the_same_output_but_for_spaces_and_what_was_left_out() -> None:
    assert blocks.mismatch(SHOWN, REAL, exact=True) == ""
    assert blocks.mismatch("", "", exact=True) == ""


@pytest.mark.parametrize(("old", "new", "exact", "loose"), [
    ("1,326,886", "1,326,887", False, True),
    ("1,326,886", "926,887", False, False),
    ("+5.9 %", "-5.9 %", False, False),
    ("f01e0786a46f", "a01e0786a46f", False, True),
    ("6.12.117", "6.12.118", False, True),
    ("regression", "improvement", False, False),
    ("again\n", "again\nand more\n", False, False),
    ("result", "", False, False),
])  # fmt: skip
def test_another_output(old: str, new: str, exact: bool, loose: bool) -> None:
    real = REAL.replace(old, new)
    assert real != REAL
    assert (blocks.mismatch(SHOWN, real, exact=True) == "") is exact
    assert (blocks.mismatch(SHOWN, real, exact=False) == "") is loose


def _lab_lines(page: Path) -> list[str]:
    """Commands of the lab's that a page shows, in fences or indented, each in one line."""
    text = re.sub(r"\\\n\s*", "", page.read_text())
    return [found[2] for found in re.finditer(r"^( {4}|\$ )(?:\.venv/bin/)?lab (.*)$", text, re.MULTILINE)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(TOP)))
def test_every_command_line_is_one_that_the_lab_takes(page: Path) -> None:
    for line in _lab_lines(page):
        try:
            dryrun.parse(line)
        except click.exceptions.Exit:  # --help
            continue
        except click.ClickException as error:
            pytest.fail(f"lab {line}: {error.format_message()}")


def test_a_command_line_that_is_wrong_is_noticed() -> None:
    dryrun.parse("ab --base A --test B -w alloc-burst | tee log")
    for wrong in ("abb", "ab --bass A", "ab --threshold much", "bisect step --fix", "kernel gc --older-than 7"):
        with pytest.raises(click.ClickException):
            dryrun.parse(wrong)


def test_what_is_not_run_is_known_and_other_blocks_have_no_commands() -> None:
    found = [one for page in RUN for one in blocks.commands(page.read_text())]
    not_run = {one.text for one in found if one.not_run}
    assert not_run == {"sudo apt-get install --yes git make python3", "make setup"}
    assert len([one for one in found if not one.not_run]) >= 10
    for page in RUN:
        text = page.read_text()
        assert not re.search(r"^ {4}(lab|make|git|\$) ", text, re.MULTILINE), page
        assert not re.search(r"^```(sh|bash|shell)\b", text, re.MULTILINE), page


def test_targets_of_make_exist() -> None:
    makefile = (TOP / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"(?:^\$ |^ {4}|`)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), (page, target)
