"""An atlas from what was measured: the stored columns of a plan, side by side, and the functions of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from lab.atlas import columns, data, source
from lab.atlas.columns import Place, Sheet
from lab.atlas.data import NOT_MEASURED, Atlas, Bisected, CaseInfo, Cell, Column, Explained, Hole
from lab.atlas.judgement import Judgement
from lab.atlas.plan import PlannedColumn
from lab.core import records
from lab.core.errors import UserError
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


def assemble(place: Place, found: Sequence[PlannedColumn], bisected: Sequence[Bisected] = ()) -> Atlas:
    """The atlas of the columns that were begun. bisected: what is known already; kept where its columns are."""
    begun = [column for column in found if place.facts(column).is_file()]
    if not begun:
        raise UserError(f"nothing of {place.plan.name} on {place.guests} was measured yet", hint="`lab atlas run` does")
    sheets = {
        (column.id, text): sheet
        for column in begun
        for text in place.selections
        if (sheet := place.load_sheet(column, text)) is not None
    }
    current = _current(list(sheets.values()), place)
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
        columns=tuple(_column(place, column, sheets) for column in begun),
        cases=tuple(_info(one, begun, sheets) for one in chosen),
        cells=cells,
        known=tuple(place.plan.known),
        bisected=tuple(one for one in bisected if {one.base, one.test} <= ids),
    )
    return replace(atlas, explained=_explained(atlas, {one.name: one.text for one in chosen}, sheets))


def _cases(place: Place) -> list[_Selected]:
    """The cases of a plan, each once."""
    found: dict[str, _Selected] = {}
    for text in place.selections:
        for workload, cases in selection.select_all([text]):
            for case in cases:
                one = _Selected(text, workload, case)
                found.setdefault(one.name, one)
    return list(found.values())


def _current(sheets: Sequence[Sheet], place: Place) -> dict[tuple[str, str], str]:
    """The fingerprint of the guests of each workload on each kind of machine: of what was measured last."""
    found: dict[tuple[str, str], str] = {}
    for sheet in sorted(sheets, key=lambda sheet: sheet.measured):
        for workload in {name.partition(":")[0] for name in sheet.cells}:
            if sheet.fingerprint:
                found[workload, sheet.machine] = sheet.fingerprint
    return found


def _cell(
    place: Place, column: PlannedColumn, sheet: Sheet | None, one: _Selected, current: Mapping[tuple[str, str], str]
) -> Cell | Hole:
    if sheet is None:
        facts = place.load_facts(column)
        return (facts.hole if facts else None) or NOT_MEASURED
    if sheet.fingerprint and sheet.fingerprint != current[one.workload.name, sheet.machine]:
        return f"measured with an older guest, of fingerprint {sheet.fingerprint[:12]}"
    return sheet.cells.get(one.name, NOT_MEASURED)


def _column(place: Place, column: PlannedColumn, sheets: Mapping[tuple[str, str], Sheet]) -> Column:
    facts = place.load_facts(column) or columns.KernelFacts()
    machines = [sheet.machine for (name, _), sheet in sheets.items() if name == column.id and sheet.machine]
    return Column(
        id=column.id,
        series=column.series,
        version=column.version,
        spec=column.spec.text,
        release=facts.release,
        builder=facts.builder,
        date=facts.date,
        machine=machines[0] if machines else "",
        hole=facts.hole,
    )


def _info(one: _Selected, begun: Sequence[PlannedColumn], sheets: Mapping[tuple[str, str], Sheet]) -> CaseInfo:
    profiles = [
        profile
        for column in begun
        if (sheet := sheets.get((column.id, one.text))) and (profile := sheet.profiles.get(one.name))
    ]
    return CaseInfo(
        name=one.name,
        group=one.case.group or one.workload.name,
        selection=one.text,
        note=one.case.note or one.workload.story,
        control=one.case.control,
        code=source.of_case(one.workload, one.case.name),
        metrics=columns.metrics_of(one.workload),
        profile=tuple(profiles[-1][:MOST_FUNCTIONS]) if profiles else (),
    )


def _explained(
    atlas: Atlas, texts: Mapping[str, str], sheets: Mapping[tuple[str, str], Sheet]
) -> tuple[Explained, ...]:
    """The functions of each step and creep, whichever of the two costs shows it."""
    found: dict[tuple[str, str, str], Explained] = {}
    for changes in Judgement(atlas).changes.values():
        for change in changes:
            key = name, base, test = change.case.name, change.base.id, change.test.id
            old, new = (sheets[column, texts[name]].profiles.get(name, []) for column in (base, test))
            if key not in found and old and new:
                found[key] = data.explained(name, base, test, old, new)
    return tuple(found[key] for key in sorted(found))
