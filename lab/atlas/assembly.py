"""An atlas from what was measured: the stored columns of a plan, side by side, and the functions of its steps.

What an atlas on file has already is taken over, from whichever machine: the numbers that guests here would give again,
of packages, with the fingerprint that the same guests have here, of the same cases and seeds. An atlas has no profiles,
so a step of such a column that it did not have has no functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from lab.atlas import columns, data
from lab.atlas.columns import Place, Sheet
from lab.atlas.data import (
    NOT_MEASURED,
    Atlas,
    Bisected,
    CaseInfo,
    Cell,
    Column,
    Explained,
    FunctionCost,
    Hole,
)
from lab.atlas.judgement import Judgement
from lab.atlas.plan import PlannedColumn
from lab.compare import exact
from lab.core import records
from lab.core.errors import GuestFailure, UserError
from lab.core.executor import Work
from lab.core.text import plural
from lab.guests import exact as guest_exact
from lab.kernels import architecture, debs
from lab.kernels.architecture import MachineType
from lab.workloads import selection
from lab.workloads.spec import Case, Workload

MOST_FUNCTIONS = 10
"""Functions of a case's profile that an atlas keeps."""


_LASTING = {"no number", *(kind.value for kind in GuestFailure if kind.blames != "host")}
"""What holes begin with that are found again by every machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """The part of an atlas that is as good as measured here.

    sheets: by column and selection, without profiles. bisected: its commits, which need no equal guests. left: what is
    not taken over, and why; a line for each reason.
    """

    atlas: Atlas | None = None
    bisected: tuple[Bisected, ...] = ()
    sheets: Mapping[tuple[str, str], Sheet] = field(default_factory=dict)
    left: tuple[str, ...] = ()

    @property
    def columns(self) -> list[Column]:
        """The columns of which something is taken over, in the order of the atlas."""
        ids = {column for column, _ in self.sheets}
        return [column for column in self.atlas.columns if column.id in ids] if self.atlas else []

    def explained(self, case: str, base: str, test: str, text: str) -> Explained | None:
        """The functions of a step between two columns that are taken over."""
        if self.atlas is None or not {(base, text), (test, text)} <= self.sheets.keys():
            return None
        return self.atlas.by_functions.get((case, base, test))

    def profile(self, case: str) -> tuple[FunctionCost, ...]:
        """The functions of a case in the newest kernel of the atlas."""
        return next((one.profile for one in self.atlas.cases if one.name == case), ()) if self.atlas else ()


NOTHING = TakenOver()


class _Selected(NamedTuple):
    """A case of a plan."""

    text: str
    workload: Workload
    case: Case

    @property
    def name(self) -> str:
        return f"{self.workload.name}:{self.case.name}"


def assemble(place: Place, found: Sequence[PlannedColumn], taken: TakenOver = NOTHING) -> Atlas:
    """The atlas of the columns that were begun here, or are taken over. Commits of bisections that an atlas has are
    kept where their columns are."""
    begun = [
        column for column in _beside(taken, place, found) if _described(taken, column) or place.facts(column).is_file()
    ]
    if not begun:
        raise UserError(f"nothing of {place.plan.name} on {place.guests} was measured yet", hint="`lab atlas run` does")
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
        architecture=place.guests,
        measured=newest.measured if newest else records.now(),
        seeds=place.plan.seeds,
        threshold=place.plan.threshold,
        environment=newest.environment if newest else {},
        fingerprints={f"{workload} {machine}": digest for (workload, machine), digest in sorted(current.items())},
        columns=tuple(_column(place, column, sheets, taken) for column in begun),
        cases=tuple(_info(one, begun, sheets, taken) for one in chosen),
        cells=cells,
        known=tuple(place.plan.known),
        bisected=tuple(one for one in taken.bisected if {one.base, one.test} <= ids),
    )
    return replace(atlas, explained=_explained(atlas, {one.name: one.text for one in chosen}, sheets, taken))


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
    """The fingerprint of the guests of each workload on each kind of machine: of what was measured last."""
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
    one: _Selected, begun: Sequence[Column], sheets: Mapping[tuple[str, str], Sheet], taken: TakenOver
) -> CaseInfo:
    profiles = (
        sheet.profiles.get(one.name) or (taken.profile(one.name) if sheet is taken.sheets.get(key) else ())
        for column in reversed(begun)
        if (sheet := sheets.get(key := (column.id, one.text))) and isinstance(sheet.cells.get(one.name), Cell)
    )
    return CaseInfo(
        name=one.name,
        group=one.case.group or one.workload.name,
        selection=one.text,
        note=one.case.note or one.workload.story,
        control=one.case.control,
        code=code_of(one.workload, one.case.name),
        metrics=columns.metrics_of(one.workload),
        profile=tuple(next(filter(None, profiles), ())[:MOST_FUNCTIONS]),
    )


def _explained(
    atlas: Atlas, texts: Mapping[str, str], sheets: Mapping[tuple[str, str], Sheet], taken: TakenOver
) -> tuple[Explained, ...]:
    """The functions of each step and creep, whichever of the two costs shows it."""
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


# ---- what an atlas has already


def taken_from(path: Path, place: Place, found: Sequence[PlannedColumn], work: Work) -> TakenOver:
    """What can be taken over from the atlas of a file, if it is there."""
    if not path.exists():
        return NOTHING
    try:
        atlas = data.load(path)
    except UserError as error:
        return TakenOver(left=(f"nothing taken over: {error.message}",))
    return take_over(atlas, place, found, work)


def take_over(atlas: Atlas, place: Place, found: Sequence[PlannedColumn], work: Work) -> TakenOver:
    """What can be taken over from an atlas. found: the plan's columns."""
    if why := _another(atlas, place):
        return TakenOver(bisected=atlas.bisected, left=(f"nothing taken over: {why}",))
    sheets: dict[tuple[str, str], Sheet] = {}
    left: dict[str, set[str]] = {}
    for (column, text), sheet in _sheets_of(atlas, place, found, work):
        if isinstance(sheet, Sheet):
            sheets[column.id, text] = sheet
        elif not place.sheet(column, text).is_file():
            left.setdefault(sheet, set()).add(column.id)
    lines = tuple(f"{plural(len(ids), 'column')} not taken over: {why}" for why, ids in left.items())
    return TakenOver(atlas=atlas, bisected=atlas.bisected, sheets=sheets, left=lines)


def _another(atlas: Atlas, place: Place) -> str:
    """The reason why nothing of an atlas can stand in that of a plan; empty where there is none."""
    if atlas.synthetic:
        return "it is made up"
    if atlas.architecture != place.guests:
        return f"it is of {atlas.architecture}"
    if atlas.seeds != place.plan.seeds:
        return f"its cells have {plural(atlas.seeds, 'seed')}, the plan's {place.plan.seeds}"
    return ""


def _sheets_of(
    atlas: Atlas, place: Place, found: Sequence[PlannedColumn], work: Work
) -> Iterator[tuple[tuple[Column, str], Sheet | str]]:
    """The sheets of an atlas by column and selection, or the reason why one cannot be taken over."""
    planned = {column.id: _is_package(column) for column in found}
    series = {one.name for one in place.plan.series}
    here = _fingerprints(place, found, work)
    for text in place.selections:
        ((workload, cases),) = selection.select_all([text])
        names = [f"{workload.name}:{case.name}" for case in cases]
        theirs = [case.name for case in atlas.cases if case.selection == text]
        for number, column in enumerate(atlas.columns):
            key = column, text
            there = {name: atlas.cells[name][number] for name in theirs}
            if column.hole or not all(map(_lasts, there.values())):
                continue  # measured anew, as the next call does with such cells of its own
            fingerprint = atlas.fingerprints.get(f"{workload.name} {column.machine}", "")
            if not _is_package(column) or not planned.get(column.id, True):
                yield key, "only packages are the same kernel everywhere"
            elif column.id not in planned and column.series not in series:
                yield key, f"the plan has no series {column.series}"
            elif set(theirs) != set(names):
                yield key, f"{text} has other cases"
            elif (own := here(text, column.machine)) != fingerprint or not own:
                guests = f"guests of {workload.name} on {column.machine or 'no machine'}"
                yield key, f"{guests} have fingerprint {own or 'none'} here, {fingerprint or 'none'} there"
            else:
                yield key, Sheet(
                    key="", fingerprint=fingerprint, machine=column.machine, measured=atlas.measured, wall_s=0.0,
                    environment=atlas.environment, cells=there, profiles={},
                )  # fmt: skip


def _fingerprints(place: Place, found: Sequence[PlannedColumn], work: Work) -> Callable[[str, str], str]:
    """The fingerprint here of a selection's guests on a kind of machine, each made once."""

    @cache
    def fingerprint(text: str, machine: str) -> str:
        if machine not in set(MachineType) or architecture.of_machine(MachineType(machine)).name != place.guests:
            return ""
        ((workload, _),) = selection.select_all([text])
        qemu = guest_exact.find_qemu(place.plan.qemu, architecture.load(place.guests))
        comparison = place.plan.comparison(text, found[0].spec)
        return exact.fingerprint_of(workload, MachineType(machine), qemu, comparison, work.progress)

    return fingerprint


def _lasts(cell: Cell | Hole) -> bool:
    """False for a hole that another call, or another machine, may fill."""
    return isinstance(cell, Cell) or cell.partition(":")[0] in _LASTING


def _is_package(column: Column | PlannedColumn) -> bool:
    """True for a kernel that is a package of the archive, whose version names it; others are named by a spec."""
    return column.version != (column.spec if isinstance(column, Column) else column.spec.text)


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
        packages = {column.version: column for column in mine if _is_package(column)}
        ordered += [packages[version] for version in debs.in_order(packages)]
        ordered += [column for column in mine if not _is_package(column)]
    return ordered


def _stored(taken: TakenOver, place: Place, column: Column, text: str) -> Sheet | None:
    """The cells of a selection: of this machine where it has them, of what is taken over, of an older guest here."""
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
    """The operation of a case and what is prepared for it, as its source has them; empty where there is no table."""
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
