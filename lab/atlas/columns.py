"""The measurement of an atlas: column by column, each cell once. A measured cell stays as long as nothing that it
depends on changes, so a new package costs one column.

<data>/atlas/<plan>/<architecture>/<column>/column.json       the kernel
<data>/atlas/<plan>/<architecture>/<column>/<guests>.json     the cells of the cases that share their guests
<data>/atlas/<plan>/<architecture>/<column>/<guests>.v2.json  the same by model version 2 of their workload
"""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import msgspec

from lab.atlas.data import Cell, Column, FunctionCost, Hole
from lab.atlas.plan import AtlasPlan, PlannedColumn
from lab.compare import explain, profiles, runs, sampling
from lab.compare.measurement import ExactGuests, Measurement, prepare_around, require_fixed_work
from lab.compare.sampling import Series
from lab.core import locks, paths, records
from lab.core.errors import DiskFull, GuestFailed, HostFailed, LabError
from lab.core.executor import Work
from lab.core.records import Record
from lab.guests import costs, model_version
from lab.guests import image as guest_image
from lab.guests.run import WRONG_FLAGS, Arm
from lab.kernels import files
from lab.kernels.kernel import Kernel
from lab.workloads import selection
from lab.workloads.spec import Case, Workload

DIGITS = 3
"""Behind the point, of all costs of an operation."""


class KernelFacts(Record, frozen=True, kw_only=True):
    """The facts in a kernel's own banner. hole: the reason why there is no kernel, until it is tried again."""

    schema: int = 1
    release: str = ""
    builder: str = ""
    date: str = ""
    hole: Hole | None = None


class Sheet(Record, frozen=True, kw_only=True):
    """The cells of one column that share their guests, stored in one piece.

    key: digest of all that the numbers follow from. settled: False if the host was to blame for a hole, so that the
    next run tries again. profiles: the functions of each case by the first seed. wall_s: time of all guests, one by
    one.
    """

    schema: int = 1
    key: str
    fingerprint: str
    machine: str
    measured: str
    wall_s: float
    settled: bool = True
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    cells: dict[str, Cell | Hole]
    profiles: dict[str, list[FunctionCost]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folder of an architecture's columns of a plan. version: the newest model version of its workloads."""

    plan: AtlasPlan
    guests: str
    version: int

    @property
    def folder(self) -> Path:
        """The folder of all columns."""
        return paths.data_dir("atlas", self.plan.name, self.guests)

    @property
    def selections(self) -> tuple[str, ...]:
        """The selections of cases that are measured in each column."""
        return self.plan.selections(self.guests)

    def facts(self, column: PlannedColumn | Column) -> Path:
        """The file about a column's kernel."""
        return self.folder / column.id / "column.json"

    def version_of(self, text: str) -> int:
        """The model version of a selection's cells: later ones are about other workloads."""
        return min(self.version, model_version.current([text]))

    def sheet(self, column: PlannedColumn | Column, text: str) -> Path:
        """The file of a selection's cells; cells of other versions keep their own."""
        version = self.version_of(text)
        return self.folder / column.id / f"{file_name(text)}{'' if version == 1 else f'.v{version}'}.json"

    def work(self, column: PlannedColumn | Column, text: str) -> Path:
        """The folder of guests that are under way."""
        return paths.cache_dir("atlas", self.plan.name, self.guests, column.id, file_name(text))

    def load_facts(self, column: PlannedColumn | Column) -> KernelFacts | None:
        """The stored facts about a column's kernel; None before it was there."""
        return records.find(self.facts(column), KernelFacts)

    def load_sheet(self, column: PlannedColumn | Column, text: str) -> Sheet | None:
        """The stored cells of a selection; None if there are none."""
        return records.find(self.sheet(column, text), Sheet)


def file_name(text: str) -> str:
    """A selection as the name of a file; long ones end in a digest."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name if len(name) <= 60 else f"{name[:50]}-{records.digest(text)[:8]}"


@dataclass(kw_only=True)
class _Guests:
    """The guests of one selection in a column, prepared. key: that of their `Sheet`."""

    text: str
    ready: ExactGuests
    key: str
    folder: Path

    @property
    def series(self) -> Series:
        (series,) = self.ready.series
        return series


def measure(
    place: Place, found: Sequence[PlannedColumn], work: Work, there: Container[tuple[str, str]] = ()
) -> dict[str, bool]:
    """Measure columns in their order unless they are there, until the budget is used up; returns, for each begun
    column, whether it is complete. there: the selections of columns that an atlas has already.
    """
    whole = {}
    busy = f"another lab atlas is at work on {place.plan.name} on {place.guests}"
    alone = locks.alone(place.folder / ".lock", busy, "it keeps what it measured")
    with alone, work.progress.task(f"columns of {place.guests}", len(found)) as task:
        for column in found:
            if work.out_of_time:
                break
            texts = [text for text in place.selections if (column.id, text) not in there]
            whole[column.id] = not texts or _column(place, column, texts, work)
            task.advance()
    return whole


def _column(place: Place, column: PlannedColumn, texts: Sequence[str], work: Work) -> bool:
    """Measure the missing cells of some selections in a column; True once it has them."""
    try:
        kernel = column.spec.obtain(work, cc=place.plan.cc, needs=selection.needs_of(place.selections))
    except DiskFull:
        raise
    except LabError as error:
        known = place.load_facts(column)
        if known is None or known.hole:  # cells that were measured while the archive had it stay
            _save(place.facts(column), KernelFacts(hole=_reason(error)))
        work.progress.log(f"{column.version}: no kernel: {error.message}")
        return False
    _save(place.facts(column), facts_of(kernel))
    arm = Arm(name="kernel", kernel=kernel, settings=dict(column.spec.settings))
    began = time.monotonic()
    prepared = [_prepare(place, column, text, arm, work) for text in texts]
    wanted = [guests for guests in prepared if guests is not None]
    if not wanted:
        return True
    work.progress.log(f"{column.version} ({column.series}): {', '.join(one.text for one in wanted)}")
    run(wanted, arm, place.plan.seeds, work)
    complete = True
    for one in wanted:
        sheet = _sheet(one, arm, place.plan.seeds, work)
        if sheet is None:
            complete = False
            continue
        _save(place.sheet(column, one.text), sheet)
        shutil.rmtree(one.folder, ignore_errors=True)
    work.progress.log(f"{column.version}: {time.monotonic() - began:.0f} s")
    return complete


def run(wanted: Sequence[_Guests], arm: Arm, seeds: int, work: Work) -> None:
    """Run the guests of several selections side by side. A guest that dies costs its arm the case it died in."""
    guests = [
        (one.series, one.series.guest(arm, seed, together))
        for seed in range(1, seeds + 1)
        for one in wanted
        for together in one.series.bench.workload.by_guest(one.series.cases)
    ]
    with work.progress.task("guests", None) as task:
        sampling.run_all(guests, work, task, loss="arm")


def facts_of(kernel: Kernel) -> KernelFacts:
    image = kernel.bzimage or kernel.vmlinux
    return KernelFacts(
        release=kernel.release,
        builder=kernel.compiler() or "",
        date=(files.built_on(image) or "") if image else "",
    )


def _prepare(place: Place, column: PlannedColumn, text: str, arm: Arm, work: Work) -> _Guests | None:
    """The guests of a selection; None if its cells are stored already, or the kernel lacks a need of all cases."""
    stored = place.load_sheet(column, text)
    try:
        ready = prepare(place.plan, column, text, arm, place.work(column, text), work)
    except HostFailed:
        raise
    except LabError as error:
        cells: dict[str, Cell | Hole] = {
            f"{workload.name}:{case.name}": _reason(error)
            for workload, cases in selection.select_all([text])
            for case in cases
        }
        sheet = Sheet(
            key="", fingerprint="", machine="", measured=_now(), wall_s=0.0, settled=False, cells=cells,
            profiles={},
        )  # fmt: skip
        _save(place.sheet(column, text), sheet)
        return None
    return None if stored and stored.settled and stored.key == ready.key else ready


def prepare(plan: AtlasPlan, column: PlannedColumn, text: str, arm: Arm, folder: Path, work: Work) -> _Guests:
    """Describe the guests of a selection around a kernel, in a folder for their runs."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    measurement = Measurement.of(plan.comparison(text, column.spec), folder, column.spec)
    ready = prepare_around(measurement, (arm,), work.progress)
    require_fixed_work(ready)
    (series,) = ready.series
    workload, cases = series.bench.workload, [case.name for case in series.cases]
    settings, fingerprint = list(column.spec.settings), series.bench.fingerprint
    key = records.digest([arm.kernel.key, settings, workload.name, cases, plan.seeds, fingerprint])
    return _Guests(text=text, ready=ready, key=key, folder=folder)


def _sheet(one: _Guests, arm: Arm, seeds: int, work: Work) -> Sheet | None:
    """The cells of guests that ran; None if the budget ended first."""
    series = one.series
    if any(len(series.runs_of(arm.name, case)) < seeds and not series.failure(arm.name, case) for case in series.cases):
        return None
    name = series.bench.workload.name
    failures = [failure for case in series.cases if (failure := series.failure(arm.name, case))]
    shape = one.ready.environment
    return Sheet(
        key=one.key,
        fingerprint=series.bench.fingerprint,
        machine=str(series.bench.machine),
        measured=_now(),
        wall_s=sum(run.wall_s for run in series.done.values()),
        settled=not any(failure.kind.blames == "host" for failure in failures),
        environment={"qemu": shape.qemu, "cpu": shape.cpu, "model": shape.model},
        cells={f"{name}:{case.name}": cell_of(series, arm, case) for case in series.cases},
        profiles=dict(_profiles(series, arm, work)),
    )


def cell_of(series: Series, arm: Arm, case: Case) -> Cell | Hole:
    """The numbers of a case, or the reason why it has none."""
    if (failure := series.failure(arm.name, case)) is not None:
        return _reason(failure)
    found = series.runs_of(arm.name, case)
    cycles, instructions = metrics_of(series.bench.workload, modelled=series.bench.modelled)
    if not series.bench.modelled:
        if series.bench.workload.primary.unit != "ns":
            return f"no number: {cycles} is no time in ns, and no cost model runs"
        times = tuple(round(run.metrics(case.name)[cycles], DIGITS) for run in found.values())
        return Cell((), (), nanoseconds=times)
    costs_of = [run.costs.get(case.name, {}) for run in found.values()]
    counted = tuple(round(values.get(instructions, math.nan), DIGITS) for values in costs_of)
    if not all(map(math.isfinite, counted)):
        return "no number: the cost model saw nothing of the case"
    modelled = tuple(round(values[cycles], DIGITS) for values in costs_of if cycles in values)
    strings = tuple(_string_starts(series, run.events.get(case.name)) for run in found.values())
    return Cell(modelled, counted, strings if any(strings) else ())


def metrics_of(workload: Workload, *, modelled: bool) -> tuple[str, str]:
    """The metrics that decide by cycles and by instructions; without a model, the workload's own, and none."""
    if not modelled:
        return workload.primary.name, ""
    cycles = costs.metrics_of(workload.measures, workload.center)[0].name
    return cycles, costs.metrics_of(workload.measures, workload.center, "instructions")[0].name


def _string_starts(series: Series, events: dict[str, float] | None) -> float:
    """The cycles of an operation that are the starts of string instructions (see `costs.without_string_starts`)."""
    instrument = series.bench.instrument
    if not events or instrument is None:
        return 0.0
    prices = costs.prices_of(instrument.machine)
    return round(costs.cycles(events, prices) - costs.cycles(events, costs.without_string_starts(prices)), DIGITS)


def _profiles(series: Series, arm: Arm, work: Work) -> Iterator[tuple[str, list[FunctionCost]]]:
    """The functions of each case by the first seed, up to the end of its guest."""
    workload = series.bench.workload
    if not series.bench.modelled:
        return
    root = guest_image.obtain(work.progress, packages=workload.packages, guests=arm.kernel.architecture)[1] / "root"
    alive = [case for case in series.cases if series.failure(arm.name, case) is None]
    for together in workload.by_guest(alive) if alive else ():
        guest = series.guest(arm, runs.PROFILED_SEED, together)
        try:
            found = profiles.of_guest(guest, root)
        except GuestFailed as error:
            work.progress.log(f"{workload.name}: no profile: {error.message}")
            continue
        for name, profile in found.items():
            yield f"{workload.name}:{name}", functions_of(profile)


def functions_of(profile: profiles.ArmProfile) -> list[FunctionCost]:
    """The functions of a profile by their cost of an operation, the most expensive first."""
    found = [
        FunctionCost(
            name,
            float(round(Fraction(cost.cycles, explain.MILLI * profile.operations), DIGITS)),
            float(round(Fraction(cost.instructions, profile.operations), DIGITS)),
            space == "user",
        )
        for (space, name), cost in explain.by_function(profile).items()
    ]
    return sorted(found, key=lambda one: (-one.cycles, -one.instructions, one.name))


def _reason(error: LabError) -> Hole:
    """The reason for a hole: the kind of a guest's failure and its message, and QEMU's part in it."""
    message = re.sub(r"^kernel arm( \([^)]*\))?, seed \d+: ", "", error.message)
    if not isinstance(error, GuestFailed):
        return message
    return f"{error.kind.value}: {message}" + (f"; {WRONG_FLAGS}" if error.wrong_flags else "")


def _now() -> str:
    """The time to the microsecond: of two sheets, one is newer."""
    return datetime.now(UTC).isoformat()


def _save(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    records.save(path, record)
