"""An atlas from its measurements: the stored columns of a plan, side by side, and the functions of its steps.

All of it has the model version of its place. Cells of atlases on file join it (see `lab.atlas.takeover`). An atlas has
no profiles, so a step of such a column has functions only if that atlas had them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from lab.atlas import columns, data
from lab.atlas.columns import Place, Sheet
from lab.atlas.data import NOT_MEASURED, Atlas, CaseInfo, Cell, Column, Explained, Hole
from lab.atlas.judgement import Judgement
from lab.atlas.plan import PlannedColumn
from lab.atlas.takeover import NOTHING, TakenOver
from lab.core import records
from lab.core.text import plural
from lab.workloads import selection
from lab.workloads.spec import Case, Workload

MOST_FUNCTIONS = 10
"""Functions of a case's profile that an atlas keeps."""


class _Selected(NamedTuple):
    """A case of a plan."""

    text: str
    workload: Workload
    case: Case

    @property
    def name(self) -> str:
        return f"{self.workload.name}:{self.case.name}"


def assemble(place: Place, found: Sequence[PlannedColumn], taken: TakenOver = NOTHING) -> Atlas | None:
    """The atlas of the columns that were measured here in the place's version, or are taken over; None before any is.

    Commits that bisections named stay in an atlas that has their columns.
    """
    begun = [column for column in _beside(taken, place, found) if _is_begun(place, column, taken)]
    if not begun:
        return None
    sheets = {
        (column.id, text): sheet
        for column in begun
        for text in place.selections
        if (sheet := _stored(taken, place, column, text)) is not None
    }
    current = {**_current(list(sheets.values())), **_current(list(taken.sheets.values()))}
    chosen = _cases(place)
    cells: dict[str, tuple[Cell | Hole, ...]] = {
        one.name: tuple(_cell(place, column, sheets.get((column.id, one.text)), one, current) for column in begun)
        for one in chosen
    }
    ids = {column.id for column in begun}
    newest = max(sheets.values(), key=lambda sheet: sheet.measured, default=None)
    atlas = Atlas(
        name=place.plan.name,
        model_version=place.version,
        architecture=place.guests,
        measured=newest.measured if newest else records.now(),
        seeds=place.plan.seeds,
        threshold=place.plan.threshold,
        environment=newest.environment if newest else {},
        fingerprints={f"{workload} {machine}": digest for (workload, machine), digest in sorted(current.items())},
        columns=tuple(_column(place, column, sheets, taken) for column in begun),
        cases=tuple(_info(place, one, begun, sheets, taken) for one in chosen),
        cells=cells,
        known=tuple(place.plan.known),
        bisected=tuple(one for one in taken.bisected if {one.base, one.test} <= ids),
    )
    return replace(atlas, explained=_explained(atlas, {one.name: one.text for one in chosen}, sheets, taken))


def _is_begun(place: Place, column: Column, taken: TakenOver) -> bool:
    """True for a column with numbers, or with the reason why its kernel cannot be had."""
    if _described(taken, column) or any(place.sheet(column, text).is_file() for text in place.selections):
        return True
    facts = place.load_facts(column)
    return facts is not None and facts.hole is not None


def _cases(place: Place) -> list[_Selected]:
    """The cases of a plan, each once."""
    found: dict[str, _Selected] = {}
    for text in place.selections:
        for workload, cases in selection.select_all([text]):
            for case in cases:
                one = _Selected(text, workload, case)
                found.setdefault(one.name, one)
    return list(found.values())


def _current(sheets: Sequence[Sheet]) -> dict[tuple[str, str], str]:
    """The fingerprint of the guests of each workload on each kind of machine, by the last measurement."""
    found: dict[tuple[str, str], str] = {}
    for sheet in sorted(sheets, key=lambda sheet: sheet.measured):
        for workload in {name.partition(":")[0] for name in sheet.cells}:
            if sheet.fingerprint:
                found[workload, sheet.machine] = sheet.fingerprint
    return found


def _cell(
    place: Place, column: Column, sheet: Sheet | None, one: _Selected, current: Mapping[tuple[str, str], str]
) -> Cell | Hole:
    if sheet is None:
        facts = place.load_facts(column)
        return (facts.hole if facts else None) or NOT_MEASURED
    if sheet.fingerprint and sheet.fingerprint != current[one.workload.name, sheet.machine]:
        return f"measured with an older guest, of fingerprint {sheet.fingerprint[:12]}"
    return sheet.cells.get(one.name, NOT_MEASURED)


def _column(place: Place, column: Column, sheets: Mapping[tuple[str, str], Sheet], taken: TakenOver) -> Column:
    facts = place.load_facts(column)
    if (of_atlas := _described(taken, column)) and (facts is None or facts.hole):
        return of_atlas
    facts = facts or columns.KernelFacts()
    machines = [sheet.machine for (name, _), sheet in sheets.items() if name == column.id and sheet.machine]
    return replace(
        column,
        release=facts.release,
        builder=facts.builder,
        date=facts.date,
        machine=machines[0] if machines else "",
        hole=facts.hole,
    )


def _info(
    place: Place, one: _Selected, begun: Sequence[Column], sheets: Mapping[tuple[str, str], Sheet], taken: TakenOver
) -> CaseInfo:
    profiles = (
        sheet.profiles.get(one.name) or (taken.profile(one.name) if sheet is taken.sheets.get(key) else ())
        for column in reversed(begun)
        if (sheet := sheets.get(key := (column.id, one.text))) and isinstance(sheet.cells.get(one.name), Cell)
    )
    return CaseInfo(
        name=one.name,
        group=_group(one),
        selection=one.text,
        note=one.case.note or one.workload.story,
        control=one.case.control,
        code=code_of(one.workload, one.case.name),
        metrics=columns.metrics_of(one.workload, modelled=one.workload.model_for(place.plan.model) != "none"),
        profile=tuple(next(filter(None, profiles), ())[:MOST_FUNCTIONS]),
    )


def _group(one: _Selected) -> str:
    group = one.case.group or one.workload.name
    return f"{group}, {plural(one.workload.vcpus, 'vCPU')}" if one.workload.contends else group


def _explained(
    atlas: Atlas, texts: Mapping[str, str], sheets: Mapping[tuple[str, str], Sheet], taken: TakenOver
) -> tuple[Explained, ...]:
    """The functions of each step and creep that either cost shows."""
    found: dict[tuple[str, str, str], Explained] = {}
    for changes in Judgement(atlas).changes.values():
        for change in changes:
            key = name, base, test = change.case.name, change.base.id, change.test.id
            old, new = (sheets[column, texts[name]].profiles.get(name, []) for column in (base, test))
            if key not in found and old and new:
                found[key] = data.explained(name, base, test, old, new)
            elif known := taken.explained(*key, texts[name]):
                found.setdefault(key, known)
    return tuple(found[key] for key in sorted(found))


def _beside(taken: TakenOver, place: Place, found: Sequence[PlannedColumn]) -> list[Column]:
    """The plan's columns, and in their places those taken over that no archive has any more."""
    known = {column.id for column in found}
    gone = [column for column in taken.columns if column.id not in known]
    every = [
        Column(id=column.id, series=column.series, version=column.version, spec=column.spec.text) for column in found
    ]
    ordered = []
    for series in place.plan.series:
        mine = [column for column in (*every, *gone) if column.series == series.name]
        packages = {column.version: column for column in mine if column.is_package}
        ordered += [packages[version] for version in series.source.in_order(packages)]
        ordered += [column for column in mine if not column.is_package]
    return ordered


def _stored(taken: TakenOver, place: Place, column: Column, text: str) -> Sheet | None:
    """The cells of a selection: this machine's if it has them, else those taken over, else an older guest's here."""
    own, other = place.load_sheet(column, text), taken.sheets.get((column.id, text))
    is_good = own is not None and (other is None or (own.settled and own.fingerprint == other.fingerprint))
    return own if is_good else other


def _described(taken: TakenOver, column: Column) -> Column | None:
    """A column with the facts that the atlas has about its kernel."""
    of_atlas = next((one for one in taken.columns if one.id == column.id), None)
    return replace(of_atlas, series=column.series, spec=column.spec) if of_atlas else None


# ---- the C code of an operation, found by the table of operations that a workload's sources end with

_ROW = re.compile(r'^\t\t?\{ "(?P<name>[\w-]+)", (?P<words>[^{}]*) \},?$', re.MULTILINE)
_SIZED = re.compile(r"\.run = (\w+)")


class _Row(NamedTuple):
    """A line of a table: the functions of a case, its preparation last, and the line itself."""

    functions: list[str]
    line: str


@cache
def _files(folder: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(folder.glob("*.c"))}


def code_of(workload: Workload, case: str) -> str:
    """The operation of a case and its preparation, from its source; empty if there is no table."""
    for text in _files(workload.folder).values():
        row = _row(text, case)
        if row is not None:
            bodies = [body for name in row.functions if (body := _function(text, name))]
            return "\n\n".join([*bodies, row.line])
    return ""


def _row(text: str, case: str) -> _Row | None:
    """The line of a case; a case of any size has that of its prefix, whose operation all of them share."""
    for match in _ROW.finditer(text):
        name, words = match["name"], [word.strip() for word in match["words"].split(",")]
        if name == case:
            run, prepare = (*words, "NULL")[:2]
            return _Row([run, prepare], match[0].strip())
        if name.endswith("-") and case.startswith(name) and (sized := _SIZED.search(text)):
            return _Row([sized[1], words[0]], f"{match[0].strip()} /* {case.removeprefix(name)} */")
    return None


def _function(text: str, name: str) -> str:
    """The definition of an operation or a preparation."""
    match = re.search(rf"^(?:OPERATION|PREPARE)\({re.escape(name)}\)\n\{{\n.*?^\}}", text, re.MULTILINE | re.DOTALL)
    return match[0] if match else ""
