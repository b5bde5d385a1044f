"""Atlases on file, from any machine: cells that are taken over, stale columns, and the newer atlas in its place.

Guests here would give the numbers of a cell that is taken over again: its workload has the same model version, it is of
the same cases and seeds, from guests with the same fingerprint as here. A package is the same kernel everywhere.
Another spec can name another kernel here: its numbers stay as the file has them, until this machine has measured its
own.

OUTPUT/ARCHITECTURE.json is the last complete atlas. A newer atlas that lacks some of its numbers, as that of a new
model version does at first, grows beside it in OUTPUT/ARCHITECTURE.next.json.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lab.atlas import data
from lab.atlas.columns import KernelFacts, Place, Sheet
from lab.atlas.data import Atlas, Bisected, Cell, Column, Explained, FunctionCost, lasts
from lab.atlas.plan import PlannedColumn
from lab.compare import measurement
from lab.core import records
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.text import plural
from lab.guests import exact
from lab.kernels import architecture
from lab.kernels.architecture import MachineType
from lab.workloads import selection

Fingerprints = Callable[[str, str], str]
"""The fingerprint here of the guests of a selection on a kind of machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """The part of an atlas that is as good as measured here.

    sheets: by column and selection, without profiles. sure: those that need not be measured here, because their kernels
    cannot be others here. bisected: its commits, which need no equal guests. left: a line for each reason why columns
    are not taken over.
    """

    atlas: Atlas | None = None
    bisected: tuple[Bisected, ...] = ()
    sheets: Mapping[tuple[str, str], Sheet] = field(default_factory=dict)
    sure: frozenset[tuple[str, str]] = frozenset()
    left: tuple[str, ...] = ()

    @property
    def columns(self) -> list[Column]:
        """The columns from which the atlas takes cells, in its order."""
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


def take_over(atlases: Sequence[Atlas], place: Place, found: Sequence[PlannedColumn], here: Fingerprints) -> TakenOver:
    """The cells of the atlas that has most to take over, and the commits of all. found: the plan's columns."""
    each = [_taken(atlas, place, found, here) for atlas in atlases]
    best = max(each, key=lambda one: len(one.sheets), default=NOTHING)
    bisected = {(one.case, one.base, one.test): one for atlas in reversed(atlases) for one in atlas.bisected}
    return replace(best, bisected=tuple(bisected.values()))


def _taken(atlas: Atlas, place: Place, found: Sequence[PlannedColumn], here: Fingerprints) -> TakenOver:
    if why := _another(atlas, place):
        return TakenOver(left=(f"nothing taken over: {why}",))
    sheets: dict[tuple[str, str], Sheet] = {}
    left: dict[str, set[str]] = {}
    for (column, text), sheet in _sheets_of(atlas, place, found, here):
        if isinstance(sheet, Sheet):
            sheets[column.id, text] = sheet
        elif not place.sheet(column, text).is_file():
            left.setdefault(sheet, set()).add(column.id)
    lines = tuple(f"{plural(len(ids), 'column')} not taken over: {why}" for why, ids in left.items())
    packages = {column.id for column in atlas.columns if column.is_package}
    sure = frozenset(key for key in sheets if key[0] in packages)
    return TakenOver(atlas=atlas, sheets=sheets, sure=sure, left=lines)


def _another(atlas: Atlas, place: Place) -> str:
    """The reason why nothing of an atlas can stand in that of a plan; empty if there is none."""
    oldest = min(map(place.version_of, place.selections))
    if not oldest <= atlas.model_version <= place.version:
        return f"it is of model version {atlas.model_version}, guests here of {place.version}"
    if atlas.seeds != place.plan.seeds:
        return f"its cells have {plural(atlas.seeds, 'seed')}, the plan's {place.plan.seeds}"
    return ""


def _sheets_of(
    atlas: Atlas, place: Place, found: Sequence[PlannedColumn], here: Fingerprints
) -> Iterator[tuple[tuple[Column, str], Sheet | str]]:
    """The sheets of an atlas by column and selection, or the reason why one cannot be taken over."""
    planned = {column.id: column for column in found}
    series = {one.name for one in place.plan.series}
    for text in place.selections:
        names = cases_of(text)
        workload = names[0].partition(":")[0]
        theirs = [case.name for case in atlas.cases if case.selection == text]
        for number, column in enumerate(atlas.columns):
            key = column, text
            there = {name: atlas.cells[name][number] for name in theirs}
            if column.hole or not all(map(lasts, there.values())):
                continue  # measured anew, as the next call does with such cells of its own
            fingerprint = atlas.fingerprints.get(f"{workload} {column.machine}", "")
            if not _is_same_kernel(column, planned.get(column.id), place):
                yield key, "only packages are the same kernel everywhere"
            elif column.id not in planned and column.series not in series:
                yield key, f"the plan has no series {column.series}"
            elif atlas.model_version < (version := place.version_of(text)):
                yield key, f"it is of model version {atlas.model_version}, guests of {workload} here of {version}"
            elif set(theirs) != set(names):
                yield key, f"{text} has other cases"
            elif (own := here(text, column.machine)) != fingerprint or not own:
                guests = f"guests of {workload} on {column.machine or 'no machine'}"
                yield key, f"{guests} have fingerprint {own or 'none'} here, {fingerprint or 'none'} there"
            else:
                yield key, Sheet(
                    key="", fingerprint=fingerprint, machine=column.machine, measured=atlas.measured, wall_s=0.0,
                    environment=atlas.environment, cells=there, profiles={},
                )  # fmt: skip


def _is_same_kernel(column: Column, planned: PlannedColumn | None, place: Place) -> bool:
    """True for a column of the plan's kernel: any package, or another spec's only known kernel."""
    if column.is_package:
        return planned is None or planned.is_package
    if planned is None or planned.is_package:
        return False
    facts = place.load_facts(column)
    there = KernelFacts(release=column.release, builder=column.builder, date=column.date)
    return facts is None or facts.hole is not None or facts == there


def cases_of(text: str) -> list[str]:
    """The full names of a selection's cases."""
    ((workload, cases),) = selection.select_all([text])
    return [f"{workload.name}:{case.name}" for case in cases]


def fingerprints(place: Place, found: Sequence[PlannedColumn], work: Work) -> Fingerprints:
    """The fingerprint here of a selection's guests on a kind of machine, each made once; empty on one of others."""

    @cache
    def fingerprint(text: str, machine: str) -> str:
        if machine not in set(MachineType) or architecture.of_machine(MachineType(machine)).name != place.guests:
            return ""
        ((workload, _),) = selection.select_all([text])
        qemu = exact.find_qemu(place.plan.qemu, architecture.load(place.guests), contends=workload.contends)
        comparison = place.plan.comparison(text, found[0].spec)
        return measurement.fingerprint_of(workload, MachineType(machine), qemu, comparison, work.progress)

    return fingerprint


# ---- the two files


@dataclass(frozen=True, slots=True, kw_only=True)
class OnFile:
    """The last complete atlas, and the newer one that grows beside it.

    unfit: a line for each file that can be neither, with the reason.
    """

    path: Path
    complete: Atlas | None = None
    growing: Atlas | None = None
    unfit: tuple[str, ...] = ()

    @property
    def atlases(self) -> list[Atlas]:
        """The atlases that are there."""
        return [atlas for atlas in (self.complete, self.growing) if atlas is not None]


def read(path: Path, place: Place) -> OnFile:
    """The atlas of a file, and the one beside it. `UserError` if either is newer than this lab's numbers."""
    complete, growing = (_read(one, place) for one in (path, data.growing(path)))
    return OnFile(
        path=path,
        complete=complete if isinstance(complete, Atlas) else None,
        growing=growing if isinstance(growing, Atlas) else None,
        unfit=tuple(one for one in (complete, growing) if isinstance(one, str)),
    )


def _read(path: Path, place: Place) -> Atlas | str | None:
    """An atlas, or the reason why a file is none of the place's."""
    if not path.exists():
        return None
    try:
        atlas = data.load(path)
    except UserError as error:
        return f"nothing taken over: {error.message}"
    if atlas.synthetic:
        return f"nothing taken over: {path} is made up"
    if atlas.architecture != place.guests:
        return f"nothing taken over: {path} is of {atlas.architecture}"
    if atlas.model_version > place.version:
        raise UserError(
            f"{path} is of model version {atlas.model_version}, this lab's guests of {place.version}",
            hint="measure with a lab of that version, or into another --output",
        )
    return atlas


def store(on_file: OnFile, made: Atlas, found: Sequence[PlannedColumn]) -> tuple[Path, list[str]]:
    """Write an atlas in the place of the complete one, or beside it while it lacks a column. found: the plan's columns.

    Returns the file, and lines about the other one. A package that has left the archive does not hold up a version: it
    is left out. A file that had more than the new one has is kept as `.old`.
    """
    path, older = on_file.path, on_file.complete
    content = records.sealed(data.encode(made))
    if older is not None and (missing := lacking(older, made, found)):
        beside = data.growing(path)
        records.write_atomic(beside, content)
        return beside, [
            f"{path}: model version {older.model_version}, stays until {plural(len(missing), 'column')} more "
            f"{'is' if len(missing) == 1 else 'are'} in {beside.name}"
        ]
    lines = []
    gone = left_out(older, made) if older else ["what it had"] if path.exists() else []
    if gone:
        kept = path.with_name(f"{path.name}.old")
        path.replace(kept)
        lines.append(f"{kept}: kept, because {path.name} is now without {', '.join(gone)}")
    records.write_atomic(path, content)
    data.growing(path).unlink(missing_ok=True)
    if older is not None and older.model_version != made.model_version:
        lines.append(f"{path}: model version {made.model_version} takes the place of {older.model_version}")
    return path, lines


def lacking(older: Atlas, made: Atlas, found: Sequence[PlannedColumn]) -> list[str]:
    """The columns of an atlas that the plan still has, and for which another atlas lacks numbers."""
    planned = {column.id for column in found}
    places = {column.id: index for index, column in enumerate(made.columns)}
    cases = [case.name for case in made.cases if case.name in older.cells]
    missing = []
    for index, column in enumerate(older.columns):
        measured = [name for name in cases if isinstance(older.cells[name][index], Cell)]
        at = places.get(column.id)
        is_there = at is not None and all(lasts(made.cells[name][at]) for name in measured)
        if column.id in planned and measured and not is_there:
            missing.append(column.id)
    return missing


def left_out(older: Atlas, made: Atlas) -> list[str]:
    """The columns with numbers, and the cases, that an atlas has and another one lacks."""
    ids = {column.id for column in made.columns}
    columns = [column.id for column in older.columns if not column.hole and column.id not in ids]
    return [*columns, *(case.name for case in older.cases if case.name not in made.cells)]


# ---- stale columns


class Age(NamedTuple):
    """The last measurement of a column that lacks something; version 0 if there is none. The smallest comes first.

    out_of_reach: its kernel was not available; it comes last, because each try may cost a build.
    """

    out_of_reach: bool
    version: int
    measured: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The columns that a call is to measure, the stalest first.

    wanted: by interest. there: the sheets that are taken over. here: the fingerprints of guests here.
    """

    place: Place
    wanted: Sequence[PlannedColumn]
    there: Container[tuple[str, str]]
    on_file: OnFile
    here: Fingerprints

    @property
    def stale(self) -> dict[str, Age]:
        """The columns that lack something, as far as the lab can tell without their kernels."""
        found = {}
        for column in self.wanted:
            if lacks := [text for text in self.place.selections if not self._is_fresh(column, text)]:
                facts = self.place.load_facts(column)
                last = min(max(self._measured(column, text), default=(0, "")) for text in lacks)
                found[column.id] = Age(facts is not None and facts.hole is not None, *last)
        return dict(sorted(found.items(), key=lambda one: one[1]))

    @property
    def columns(self) -> list[PlannedColumn]:
        """The stale columns in their order, and behind them the others, whose kernels may have changed."""
        return self._in_turn(self.stale)

    def _in_turn(self, ages: Mapping[str, Age]) -> list[PlannedColumn]:
        places = {name: place for place, name in enumerate(ages)}
        return sorted(self.wanted, key=lambda column: places.get(column.id, len(places)))

    def summary(self, begun: Mapping[str, bool]) -> str:
        """A line with the numbers of whole and stale columns, and the next one. begun: the columns, True if whole."""
        ages = {name: age for name, age in self.stale.items() if not begun.get(name)}
        ages |= {name: Age(False, self.place.version, "") for name in begun if not begun[name] and name not in ages}
        never = sum(not age.version for age in ages.values())
        words = [f"{len(self.wanted) - len(ages)} of {plural(len(self.wanted), 'column')} whole"]
        words += [f"{len(ages) - never} stale"] if len(ages) > never else []
        words += [f"{never} never measured"] if never else []
        words += [f"next: {self._in_turn(ages)[0].version}"] if ages else []
        return ", ".join(words)

    def _is_fresh(self, column: PlannedColumn, text: str) -> bool:
        """True for numbers that guests here would give again."""
        if (column.id, text) in self.there:
            return True
        sheet = self.place.load_sheet(column, text)
        return (
            sheet is not None
            and sheet.settled
            and sheet.fingerprint == self.here(text, sheet.machine)
            and sheet.cells.keys() == set(cases_of(text))
            and all(
                len(cell.instructions or cell.nanoseconds) == self.place.plan.seeds
                for cell in sheet.cells.values()
                if isinstance(cell, Cell)
            )
        )

    def _measured(self, column: PlannedColumn, text: str) -> Iterator[tuple[int, str]]:
        """The versions and dates of all measurements of a selection in a column that are known here."""
        for version in range(1, self.place.version_of(text) + 1):
            sheet = replace(self.place, version=version).load_sheet(column, text)
            if sheet is not None:
                yield version, sheet.measured
        for atlas in self.on_file.atlases:
            for index, one in enumerate(atlas.columns):
                cells = (atlas.cells[case.name][index] for case in atlas.cases if case.selection == text)
                if one.id == column.id and any(isinstance(cell, Cell) for cell in cells):
                    yield atlas.model_version, atlas.measured
