"""Building a tip, and comparing it: each comparison is a stored result like those of `lab ab`."""

from __future__ import annotations

from pathlib import Path

from lab.compare import exact as compare_exact
from lab.compare import live, live_guests, result_folders
from lab.compare.plan import ArmPlan, MeasureOptions, Plan
from lab.compare.results import AbResult
from lab.core import records
from lab.core.errors import BuildFailed
from lab.core.executor import Work
from lab.guests import perf_stat
from lab.guests.live_machine import Accelerator
from lab.history import remember
from lab.history.index import LABEL, Label
from lab.kernels import architecture
from lab.nightly.plan import BranchPlan, NightlyPlan
from lab.nightly.tips import Tips
from lab.workloads import selection


class BrokenTip(Exception):
    """The tip does not build, or its guests fail: a finding, not an error of the night."""


def build(plan: NightlyPlan, branch: BranchPlan, tips: Tips, tip: str, work: Work) -> None:
    """Build a tip before anything is compared with it. Raises `BrokenTip` if it does not build."""
    try:
        needs = selection.needs_of(plan.workloads_of(branch))
        tips.arm(tip, plan.cc, work.progress).spec.obtain(work, cc=plan.cc, needs=needs)
    except BuildFailed as error:
        log = f" (log: {error.log})" if error.log else ""
        raise BrokenTip(f"it does not build: {error.message}{log}") from error


def comparison_plan(
    plan: NightlyPlan, branch: BranchPlan, base: ArmPlan, test: ArmPlan, accelerator: Accelerator | None
) -> Plan:
    """The plan of a comparison; with an accelerator, of live mode."""
    options = MeasureOptions(
        workload=plan.workloads_of(branch),
        suite=plan.suite_of(branch),
        model=plan.model,
        metric=plan.metric if accelerator is None else None,
        machine=plan.machine,
        threshold=plan.threshold,
        first_seeds=plan.seeds,
        max_seeds=plan.max_seeds,
        cc=plan.cc,
        qemu=plan.qemu,
        guest_timeout=plan.guest_timeout_s,
    )
    options.require()
    if accelerator is None:
        return Plan.of(options.for_kernels((base.spec, test.spec)), base=base, test=test)
    architecture.require_default("live mode", [base.spec.architecture, test.spec.architecture])
    live = live_guests.plan(
        selection.select_all(options.workload), accelerator, plan.live.cpus, max_rounds=plan.live.rounds,
        iterations=plan.live.iterations, perf=perf_stat.by_default(accelerator),
    )  # fmt: skip
    return Plan.of(options, live=live, base=base, test=test)


def begin(plan: Plan, label: Label | None = None) -> Path:
    """Create the folder of a comparison."""
    folder = result_folders.new_folder(None)
    with result_folders.claimed(folder):
        if label is not None:
            records.save(folder / LABEL, label)
        result_folders.store_plan(folder, plan)
    return folder


def finish(folder: Path, work: Work, *, database: str | None) -> AbResult:
    """Measure the rest of a comparison; returns its result."""
    if result_folders.is_finished(folder):
        return result_folders.load_result(folder)
    with result_folders.claimed(folder):
        plan = result_folders.load_plan(folder)
        measure = compare_exact.measure if plan.live is None else live.measure
        result = measure(plan, folder, work)
    remember(folder, work.progress, database)
    return result
