"""Measuring cells of an atlas again, on this machine: every number has to be the same, to the digit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lab.atlas import columns
from lab.atlas.data import Atlas, CaseInfo, Cell, Column, Hole
from lab.atlas.plan import AtlasPlan, PlannedColumn
from lab.core import process
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.records import Record
from lab.core.text import plural, visible
from lab.guests import model_version
from lab.guests.run import Arm
from lab.kernels.kernel import resolve
from lab.workloads import selection


class Wanted(NamedTuple):
    """A cell of an atlas."""

    case: CaseInfo
    column: Column


class Checked(Record, frozen=True, kw_only=True):
    """A cell as it is stored, and as it was measured again. fingerprint: why numbers may differ, if it does."""

    case: str
    kernel: str
    stored: Cell | Hole
    again: Cell | Hole
    fingerprint: str = ""

    @property
    def is_equal(self) -> bool:
        """True if all numbers are the same to the last digit."""
        return self.stored == self.again


def named(atlas: Atlas, text: str) -> Wanted:
    """The cell of `CASE@KERNEL`."""
    name, at, kernel = text.rpartition("@")
    if not at:
        raise UserError(f"{text!r} is no cell", hint="write e.g. fork-exit@6.12.117-1")
    return Wanted(atlas.case(name), atlas.find(kernel))


def draw(atlas: Atlas, count: int, seed: int) -> list[Wanted]:
    """Some cells that have numbers, drawn at random."""
    there = [
        Wanted(case, column)
        for case in atlas.cases
        for column, cell in zip(atlas.columns, atlas.cells[case.name], strict=True)
        if isinstance(cell, Cell)
    ]
    return random.Random(seed).sample(there, min(count, len(there)))  # noqa: S311


def check(atlas: Atlas, plan: AtlasPlan, wanted: Sequence[Wanted], work: Work) -> list[Checked]:
    """Measure cells again, with all that share their guests, and use nothing stored.

    `UserError` for an atlas of another model version: its numbers differ for a reason that is known.
    """
    here = model_version.current(case.selection for case in atlas.cases)
    if atlas.model_version != here:
        raise UserError(
            f"the atlas is of model version {atlas.model_version}, guests here are of {here}: nothing to compare",
            hint="--data names another atlas, such as the newer ARCHITECTURE.next.json beside it",
        )
    found = []
    done: dict[tuple[str, str], dict[str, Cell | Hole]] = {}
    prints: dict[tuple[str, str], str] = {}
    for case, column in wanted:
        key = column.id, case.selection
        if key not in done:
            with process.scratch("lab-atlas-") as folder:
                done[key], prints[key] = _measure(atlas, plan, case, column, folder, work)
        stored = atlas.cells[case.name][atlas.at(column.id)]
        known = atlas.fingerprints.get(f"{case.name.partition(':')[0]} {column.machine}", "")
        differs = "" if known == prints[key] else f"{prints[key][:12]} in place of {known[:12]}"
        found.append(
            Checked(case=case.name, kernel=column.id, stored=stored, again=done[key][case.name], fingerprint=differs)
        )
    return found


def _measure(
    atlas: Atlas, plan: AtlasPlan, case: CaseInfo, column: Column, folder: Path, work: Work
) -> tuple[dict[str, Cell | Hole], str]:
    """The cells of all cases that share a case's guests, and the guests' fingerprint."""
    spec = resolve(column.spec, plan.tree, progress=work.progress)
    kernel = spec.obtain(work, cc=plan.cc, needs=selection.needs_of(plan.selections(atlas.architecture)))
    arm = Arm(name="kernel", kernel=kernel, settings=dict(spec.settings))
    planned = PlannedColumn(column.series, column.version, spec)
    guests = columns.prepare(plan, planned, case.selection, arm, folder, work)
    work.progress.log(f"{case.selection} on {column.version}, {plural(atlas.seeds, 'seed')}")
    columns.run([guests], arm, atlas.seeds, work)
    series = guests.series
    name = series.bench.workload.name
    cells = {f"{name}:{one.name}": columns.cell_of(series, arm, one) for one in series.cases}
    return cells, series.bench.fingerprint


def lines(found: Sequence[Checked]) -> Iterator[str]:
    """A line for each cell, and how many are equal."""
    for one in found:
        word = "equal" if one.is_equal else "DIFFERS"
        yield visible(f"{one.case}@{one.kernel}: {word}, {_shown(one.again)}")
        if not one.is_equal:
            yield visible(f"  stored: {_shown(one.stored)}")
            if one.fingerprint:
                yield f"  another guest: fingerprint {one.fingerprint}"
    yield f"{sum(one.is_equal for one in found)} of {plural(len(found), 'cell')} equal to the last digit"


def _shown(cell: Cell | Hole) -> str:
    if isinstance(cell, str):
        return cell
    both = [" ".join(map(str, values)) for values in (cell.cycles, cell.instructions, cell.nanoseconds) if values]
    return "; ".join(both)
