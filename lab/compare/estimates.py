"""Estimates of the time that guests take, which commands announce.

`workloads/seconds.toml` has the processor time of the lab's own workloads, measured on one machine. Every guest that
runs here corrects it: a memo keeps, by workload, how many times as long guests take on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import median

from lab.compare.plan import ComparisonPlan
from lab.core import paths, records, toml
from lab.core.errors import LabError
from lab.core.executor import Work
from lab.core.records import Record
from lab.core.text import plural
from lab.kernels.kernel import KernelSpec
from lab.workloads import selection
from lab.workloads.spec import Case, Workload

_REMEMBERED = 8
"""Guests whose mean a memo follows: a machine that becomes slower shows after a few."""


_CROWDED = 1.2
"""Other work from here on is worth a word."""


class _Table(Record, frozen=True, kw_only=True):
    """`workloads/seconds.toml`.

    built, package: a guest that does nothing, by its kernel. restored: a guest that continues from a kept state.
    case: of a user's workload. model: the cost of each, as a factor. vcpu: the boot with each further vCPU that
    contends; their cases grow with the vCPUs to the power of `contention`.
    workload: the guest of each case with a built kernel; if cases share one, `guest` and `each` of them.
    """

    schema: int
    built: float
    package: float
    restored: float
    case: float
    vcpu: float
    contention: float
    model: dict[str, float]
    workload: dict[str, dict[str, float]]


class Timing(Record, frozen=True, kw_only=True):
    """A memo: guests of a workload took `factor` times as long as a table says. table: its digest."""

    table: str
    guests: int
    factor: float


@cache
def _table() -> _Table:
    return toml.load(paths.data_folder("workloads") / "seconds.toml", _Table)


@cache
def _table_digest() -> str:
    return records.digest(_table())[:16]


def guest_seconds(
    workload: Workload, cases: Sequence[Case], count: int = 1, *, built: bool, model: str, boots_once: bool = False
) -> float:
    """The seconds that guests of a kernel take on an idle core.

    built: their kernel is the lab's own, which boots sooner. boots_once: all but the first continue from its state.
    """
    first, other = (
        _by_table(workload, cases, built=built, model=model, booted=booted) for booted in (True, not boots_once)
    )
    return (first + (count - 1) * other if count else 0.0) * _factor(workload)


def planned_seconds(
    plan: ComparisonPlan, workload: Workload, cases: Sequence[Case], spec: KernelSpec, count: int
) -> float:
    """The seconds that so many guests of a kernel take under a plan."""
    model = workload.model_for(plan.model)
    # Roughly the conditions of `GuestRun.snapshot`.
    in_turns = workload.vcpus == 1 or workload.contends
    boots_once = plan.snapshots and model != "none" and in_turns and workload.name != "boot"
    return guest_seconds(workload, cases, count, built=spec.tree_source is not None, model=model, boots_once=boots_once)


def crowding(work: Work) -> float:
    """The factor by which guests take longer beside the machine's present load; 1 if other machines run them."""
    if work.executor is not None:
        return 1.0
    return max(1.0, (os.getloadavg()[0] + work.jobs) / (os.cpu_count() or 1))


def announced(guests: int, there: int, likely_s: float, more_s: float, work: Work) -> str:
    """Guests, and the time that they take. more_s: processor seconds of further guests, for cases that stay undecided.

    there: the guests that an earlier command ran.
    """
    crowded = crowding(work)
    beside = " beside other work" if crowded > _CROWDED else ""
    kept = f" ({there} of {guests + there} are there)" if there else ""
    likely, most = (_rounded(seconds * crowded / work.jobs) for seconds in (likely_s, likely_s + more_s))
    longest = f", {most} s if nothing is decided sooner" if most != likely else ""
    return f"{plural(guests, 'guest')}{kept}, {work.jobs} at a time: about {likely} s{beside}{longest}"


def learn(
    workload: Workload, cases: Sequence[Case], seconds: float, *, built: bool, model: str, booted: bool = True
) -> None:
    """Remember the processor time of a guest that ran, under a model that comparisons use."""
    if model not in _table().model:
        return
    factor = seconds / _by_table(workload, cases, built=built, model=model, booted=booted)
    before = _memo(workload.name)
    if before is not None:
        weight = 1 / min(before.guests + 1, _REMEMBERED)
        factor = before.factor * (1 - weight) + factor * weight
    timing = Timing(table=_table_digest(), guests=before.guests + 1 if before else 1, factor=factor)
    with suppress(LabError):  # later writes find a full disk; another user's store can be read only
        records.save(_memo_path(workload.name), timing)


def _by_table(workload: Workload, cases: Sequence[Case], *, built: bool, model: str, booted: bool) -> float:
    table = _table()
    known = table.workload.get(workload.name.partition("@")[0], {}) if selection.is_shipped(workload) else {}
    boot, own = table.built, table.model[workload.model] if known else 1.0
    if "each" in known or not known:
        boot = known.get("guest", boot)
        work = len(cases) * known.get("each", table.case)
    else:
        other = median(known.values())
        work = max(0.0, sum(known.get(case.name, other) - boot for case in cases))
    work *= table.model.get(model, own) / own
    if workload.contends:
        work *= workload.vcpus**table.contention
    if not booted:
        return max(0.0, boot - table.built) + table.restored + work
    more = table.vcpu * (workload.vcpus - 1) if workload.contends else 0.0
    return boot + more + work + (0.0 if built else table.package - table.built)


def _factor(workload: Workload) -> float:
    """The factor of this machine's memo of the workload, else of the lab's own workloads, else of the table."""
    if (memo := _memo(workload.name)) is not None:
        return memo.factor
    memos = filter(None, map(_memo, _table().workload))
    return median(factors) if (factors := [memo.factor for memo in memos]) else 1.0


def _memo_path(workload: str) -> Path:
    return paths.cache_dir("timings") / f"{workload}.json"


def _memo(workload: str) -> Timing | None:
    """A memo that can be read, and is of this table."""
    found = records.find(_memo_path(workload), Timing)
    return found if found and found.table == _table_digest() else None


def _rounded(seconds: float) -> str:
    """Two digits: more of them would promise too much."""
    return f"{float(f'{max(seconds, 1):.2g}'):.0f}"
