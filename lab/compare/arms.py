"""The arms of a comparison: from a plan to kernels at hand, and to what a result says about them."""

from __future__ import annotations

from collections.abc import Mapping

from lab.compare.plan import ArmPlan, Plan
from lab.compare.results import ArmResult
from lab.core.executor import Work
from lab.guests import exact
from lab.guests.run import Arm
from lab.kernels.kconfig import Needs
from lab.kernels.kernel import Kernel
from lab.workloads import selection


def obtain_arms(plan: Plan, work: Work) -> tuple[Arm, Arm]:
    """Both arms with their kernels, built or fetched."""
    plans = {"base": plan.base, "test": plan.test}
    needs = selection.needs_of(plan.workloads)
    base, test = work.map(lambda name: obtain_arm(name, plans[name], needs, work), list(plans))
    return base, test


def obtain_arm(name: str, plan: ArmPlan, needs: Needs, work: Work) -> Arm:
    """An arm of a plan with its kernel at hand: from the store, built, or fetched. needs: the workloads' options."""
    kernel = plan.spec.obtain(work, cc=plan.cc, needs=needs)
    return Arm(name=name, kernel=kernel, settings=dict(plan.spec.settings))


def arm_result(arm: Arm, machine: Mapping[str, str] | None = None) -> ArmResult:
    """An arm as the document describes it. machine: the settings of every guest; None for exact mode's."""
    kernel: Kernel = arm.kernel
    source = kernel.spec.tree_source
    own = exact.exact_machine(kernel.architecture).settings
    return ArmResult(
        spec=kernel.spec.text,
        tree=source.tree if source else None,
        commit=kernel.commit,
        release=kernel.release,
        build=kernel.key,
        subject=source.subject if source else None,
        compiler=kernel.compiler(),
        settings={**(own if machine is None else machine), **arm.settings},
        note=kernel.spec.note,
    )
