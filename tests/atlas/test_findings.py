"""The changes that the documentation tells of, compared with the atlas that comes with the lab."""

import re
from pathlib import Path

import pytest

from lab.atlas import data
from lab.atlas.data import Cell
from lab.atlas.judgement import Change, Judgement
from lab.stats.verdict import percent

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "findings.md").read_text()
ROW = re.compile(r"^\| (\d+) \| `([\w-]+)` \| (\S+) \| (\S+) \| (\S+ %) \| (\S+ %) \|$", re.MULTILINE)
ARM64 = re.compile(r"^\| (\d+) \| `([\w-]+)` \| (\S+) \| (\S+) \| (\S+ %) \|$", re.MULTILINE)
BUILT = re.compile(r"^\| (\d+) \| `([\w-]+)` \| (\S+) to (\S+) \| (\S+ %) \| (\S+ %) \|$", re.MULTILINE)
FUNCTION = re.compile(r"`(\w+)` ([+-]\d+(?:,\d{3})*)")
ROWS = [match.groups() for match in ROW.finditer(PAGE)]
SECTIONS = dict(re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def judged() -> Judgement:
    return Judgement(data.load())


def _change(judged: Judgement, row: tuple[str, ...]) -> Change:
    _, case, base, test, *_ = row
    found = [
        change
        for change in judged.changes[judged.atlas.bases[0]]
        if (change.case.short, change.base.id, change.test.id) == (case, base, test)
    ]
    assert len(found) == 1, f"{case} has no step from {base} to {test}"
    return found[0]


def test_there_are_ten() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 11)] == list(SECTIONS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_a_change_is_a_step_of_that_size(row: tuple[str, ...], judged: Judgement) -> None:
    change = _change(judged, row)
    count = judged.compare(change.case, change.base, change.test, "instructions")
    assert count is not None and count.is_change
    assert (percent(change.ratio), percent(count.ratio)) == (row[4], row[5])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_its_functions_moved_so_far(row: tuple[str, ...], judged: Judgement) -> None:
    explained = judged.explained(_change(judged, row))
    assert explained is not None
    moved = {one.name: f"{one.delta('cycles'):+,.0f}" for one in explained.functions}
    told = FUNCTION.findall(SECTIONS[row[0]])
    assert len(told) >= 3 and {name: moved.get(name) for name, _ in told} == dict(told)


def test_eight_are_steps_on_arm64_of_that_size() -> None:
    judged = Judgement(data.load(guests="arm64"))
    rows = [match.groups() for match in ARM64.finditer(PAGE)]
    assert len(rows) == 8
    cases = {row[0]: row[1] for row in ROWS}
    for row in rows:
        change = _change(judged, row)
        assert (percent(change.ratio), change.case.short) == (row[4], cases[row[0]])
        assert judged.explained(change)
    others = {(change.case.short, change.test.id) for change in judged.changes["instructions"]}
    assert ("mremap-grow", "7.1.3-1~bpo13+1") not in others
    assert ("madvise-hugepage", "6.16.3-1~bpo13+1") in others


def test_cycles_on_arm64_changed_by_that() -> None:
    judged = Judgement(data.load(guests="arm64", table="neoverse"))
    told = {row[0]: row[1:4] for row in ROWS}
    found = re.findall(r"(\S+ %)\s\((\d+)\)", PAGE[PAGE.index("## On arm64") :])
    assert len(found) == 6
    for size, number in found:
        case, *ends = told[number]
        arms = judged.atlas.pair(*(end[: end.index(".", 2)] for end in ends))
        compared = judged.compare(judged.atlas.case(case), *arms, "cycles")
        assert compared is not None and compared.is_change and percent(compared.ratio) == size


def test_the_same_sources_built_by_one_compiler_differ_by_that(judged: Judgement) -> None:
    atlas = judged.atlas
    sources = {column.spec.rpartition("/")[2]: column for column in atlas.columns if column.spec.startswith("src:")}
    rows = [match.groups() for match in BUILT.finditer(PAGE)]
    assert len(rows) == 9
    cases = {row[0]: row[1] for row in ROWS}
    for number, case, base, test, packaged, built in rows:
        assert cases[number] == case
        info = atlas.case(case)
        for arms, told in ((atlas.pair(base, test), packaged), ((sources[base], sources[test]), built)):
            costs = [judged.cell(info, column) for column in arms]
            old, new = (cell.mean("cycles") for cell in costs if isinstance(cell, Cell))
            assert old and new and percent(new / old) == told
