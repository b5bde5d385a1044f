"""Building a tip, and comparing it: each comparison is a stored result like those of `lab ab`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.compare import result_folders
from lab.compare.comparison import measure
from lab.compare.plan import ArmPlan, Plan
from lab.compare.request import ComparisonRequest, plan_of
from lab.compare.results import AbResult
from lab.core import records
from lab.core.errors import BuildFailed
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.guests.live_machine import Accelerator
from lab.history import remember
from lab.history.index import LABEL, Label
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
    mode: dict[str, Any] = {"mode": "exact", "metric": plan.metric, "model": plan.model, "machine": plan.machine}
    if accelerator is not None:
        mode = {"mode": "live", "accel": accelerator, "cpus": plan.live.cpus, "max_rounds": plan.live.rounds,
                "iterations": plan.live.iterations}  # fmt: skip
    asked = ComparisonRequest(
        base=base.spec,
        test=test.spec,
        workload=plan.workloads_of(branch),
        suite=plan.suite_of(branch),
        threshold=plan.threshold,
        first_seeds=plan.seeds,
        max_seeds=plan.max_seeds,
        cc=plan.cc,
        qemu=plan.qemu,
        guest_timeout=plan.guest_timeout_s,
        **mode,
    )
    return plan_of(asked, Progress())


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
        result = measure(plan, folder, work)
    remember(folder, work.progress, database)
    return result
