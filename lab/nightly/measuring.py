"""Measuring a tip: each comparison a stored result like any of `lab ab`, gone on with if the night was interrupted."""

from __future__ import annotations

from pathlib import Path

from lab.compare import exact as compare_exact
from lab.compare import live, results
from lab.compare.results import AbResult, ArmPlan, Plan
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed
from lab.core.progress import Meter
from lab.guests import exact, hardware
from lab.guests.live_machine import Accelerator
from lab.history.entries import LABEL, Label
from lab.history.hook import remember
from lab.kernels import kernel, resolve
from lab.kernels.trees import Tree
from lab.nightly import livemode
from lab.nightly.night import Measured, Mode, cases_of
from lab.nightly.planfile import BranchPlan, NightlyPlan
from lab.workloads import selection

#: What a guest's death says of the kernel in it; the others are this machine's doing.
KERNELS_DOING = ("panic", "oops", "oom", "hang", "no-report")


class Broken(Exception):
    """Not an error of the night: the tip does not build, or does not survive. `why` says more."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def arm(tree: Tree, commit: str, cc: str, meter: Meter) -> ArmPlan:
    """A commit as an arm."""
    return ArmPlan(spec=resolve.resolve(commit, tree, progress=meter.news), cc=cc)


def build(plan: NightlyPlan, tree: Tree, commit: str, jobs: int, meter: Meter) -> None:
    """Build a tip, so that a failure is known to be its own."""
    try:
        kernel.obtain(arm(tree, commit, plan.cc, meter).spec, cc=plan.cc, jobs=jobs, meter=meter)
    except BuildFailed as error:
        log = f" (log: {error.log})" if error.log else ""
        raise Broken(f"it does not build: {error.message}{log}") from error


def plan_of(
    plan: NightlyPlan, one: BranchPlan, base: ArmPlan, test: ArmPlan, accelerator: Accelerator | None = None
) -> Plan:
    """A comparison as the plan wants it: in live mode, with an accelerator."""
    asked = plan.workloads_of(one)
    exact.find_qemu(plan.qemu)
    hardware.load(plan.machine)
    live = livemode.plan_of(plan, asked, accelerator) if accelerator else None
    model = plan.model if live is None else "none"
    return Plan(
        mode="exact" if live is None else "live",
        base=base,
        test=test,
        workloads=[selection.canonical(text) for text in asked],
        files=selection.user_files(asked),
        threshold=plan.threshold,
        alpha=0.01,
        seeds=plan.seeds,
        max_seeds=plan.max_seeds,
        fixed_seeds=False,
        qemu=plan.qemu,
        guest_timeout_s=plan.guest_timeout_s,
        model=model,
        machine=plan.machine if model != "none" else None,
        live=live,
    )


def begin(plan: Plan, label: Label) -> Path:
    """A folder for a comparison, that says what it is for."""
    folder = results.new_folder(None)
    with results.claimed(folder):
        records.save(folder / LABEL, label)
        results.store_plan(folder, plan)
    return folder


def finish(folder: Path, *, jobs: int, deadline: float | None, meter: Meter, database: str | None) -> AbResult:
    """A comparison's result, measured as far as it was not yet."""
    if (folder / "result.json").is_file():
        return results.load_result(folder)
    with results.claimed(folder):
        plan = results.load_plan(folder)
        measure = compare_exact.measure if plan.live is None else live.measure
        result = measure(plan, folder, jobs=jobs, deadline=deadline, meter=meter)
    remember(folder, meter, database)
    return result


def measured(result: AbResult, baselines: tuple[str, ...], commit: str) -> Measured:
    """What a comparison said, as a night keeps it."""
    mode: Mode = "exact" if result.live is None else "live"
    return Measured(baselines=baselines, commit=commit, result=result.result, cases=cases_of(result), mode=mode)


def is_kernels_doing(error: GuestFailed) -> bool:
    """Whether a guest's death is to be blamed on its kernel."""
    return error.kind in KERNELS_DOING
