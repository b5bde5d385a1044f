"""The growth of an atlas on file: its stale columns, and the newer atlas that takes its place.

OUTPUT/ARCHITECTURE.json is the last complete atlas. A newer atlas that lacks some of its numbers, as that of a new
model version does at first, grows beside it in OUTPUT/ARCHITECTURE.next.json.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from lab.atlas import data, takeover
from lab.atlas.columns import Place
from lab.atlas.data import Atlas, Cell, lasts
from lab.atlas.plan import PlannedColumn
from lab.atlas.takeover import Fingerprints
from lab.core import records
from lab.core.errors import UserError
from lab.core.text import plural

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
            and sheet.cells.keys() == set(takeover.cases_of(text))
            and all(
                len(cell.instructions or cell.nanoseconds) == self.place.plan.seeds
                for cell in sheet.cells.values()
                if isinstance(cell, Cell)
            )
        )

    def _measured(self, column: PlannedColumn, text: str) -> Iterator[tuple[int, str]]:
        """The versions and dates of all measurements of a selection in a column that are known here."""
        for version in range(1, self.place.version + 1):
            sheet = replace(self.place, version=version).load_sheet(column, text)
            if sheet is not None:
                yield version, sheet.measured
        for atlas in self.on_file.atlases:
            for index, one in enumerate(atlas.columns):
                cells = (atlas.cells[case.name][index] for case in atlas.cases if case.selection == text)
                if one.id == column.id and any(isinstance(cell, Cell) for cell in cells):
                    yield atlas.model_version, atlas.measured
