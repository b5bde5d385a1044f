"""Taking over cells of atlases on file, from any machine: the numbers that guests here would give again.

These are numbers of the same model version, cases and seeds, from guests with the same fingerprint as here. A package
is the same kernel everywhere. Another spec can name another kernel here: its numbers stay as the file has them, until
this machine has measured its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from lab.atlas.columns import KernelFacts, Place, Sheet
from lab.atlas.data import Atlas, Bisected, Column, Explained, FunctionCost, lasts
from lab.atlas.plan import PlannedColumn
from lab.compare import measurement
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

    sheets: by column and selection, without profiles. unsure: the columns whose kernels may be others here. bisected:
    its commits, which need no equal guests. left: a line for each reason why columns are not taken over.
    """

    atlas: Atlas | None = None
    bisected: tuple[Bisected, ...] = ()
    sheets: Mapping[tuple[str, str], Sheet] = field(default_factory=dict)
    unsure: frozenset[tuple[str, str]] = frozenset()
    left: tuple[str, ...] = ()

    @property
    def sure(self) -> frozenset[tuple[str, str]]:
        """The sheets that need not be measured here."""
        return frozenset(self.sheets.keys() - self.unsure)

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
    unsure: set[tuple[str, str]] = set()
    left: dict[str, set[str]] = {}
    for (column, text), sheet in _sheets_of(atlas, place, found, here):
        if isinstance(sheet, Sheet):
            sheets[column.id, text] = sheet
            if not column.is_package:
                unsure.add((column.id, text))
        elif not place.sheet(column, text).is_file():
            left.setdefault(sheet, set()).add(column.id)
    lines = tuple(f"{plural(len(ids), 'column')} not taken over: {why}" for why, ids in left.items())
    return TakenOver(atlas=atlas, sheets=sheets, unsure=frozenset(unsure), left=lines)


def _another(atlas: Atlas, place: Place) -> str:
    """The reason why nothing of an atlas can stand in that of a plan; empty if there is none."""
    if atlas.model_version != place.version:
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
