"""The arms of a comparison: their kernels, and their description in a result."""

from __future__ import annotations

from collections.abc import Mapping

from lab.compare.plan import Plan
from lab.compare.results import ArmResult
from lab.core.executor import Work
from lab.guests import exact
from lab.guests.run import Arm
from lab.workloads import selection


def obtain_arms(plan: Plan, work: Work) -> tuple[Arm, Arm]:
    """Both arms with their kernels at hand: from the store, built, or fetched."""
    needs = selection.needs_of(plan.workloads)

    def obtain(name: str) -> Arm:
        arm = plan.base if name == "base" else plan.test
        kernel = arm.spec.obtain(work, cc=arm.cc, needs=needs)
        return Arm(name=name, kernel=kernel, settings=dict(arm.spec.settings))

    base, test = work.map(obtain, ("base", "test"))
    return base, test


def arm_result(arm: Arm, machine: Mapping[str, str] | None = None) -> ArmResult:
    """An arm as the document describes it. machine: the settings of every guest; None for exact mode's."""
    kernel, source = arm.kernel, arm.kernel.spec.tree_source
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
