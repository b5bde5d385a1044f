"""What of the options is for live mode: checked before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lab.bisection.recipes import Recipe
from lab.compare.plan import LivePlan
from lab.core.errors import UserError
from lab.core.progress import Meter
from lab.guests import kvm
from lab.workloads.spec import Case, Workload

if TYPE_CHECKING:
    from lab.bisection.asking import Asked

MOST_ROUNDS = 40
"""Of the comparison with the culprit taken out; the search has limits of its own."""


def plan_of(asked: Asked, recipe: Recipe, workload: Workload, cases: Sequence[Case]) -> LivePlan | None:
    """How guests are booted in live mode; None in exact mode, which `auto` takes. `UserError` for what does not fit.

    A search is exact unless live mode is asked for, with KVM too: numbers without noise are never misread.
    """
    if asked.mode != "live":
        if asked.accel != "auto" or asked.cpus is not None or asked.iterations is not None:
            raise UserError("--accel, --cpus and --iterations are of live mode", hint="add --mode live")
        return None
    from lab.bisection import booting  # brings numpy along, which exact mode does without
    from lab.compare import live_guests

    _refuse_exact(asked, recipe)
    if len(cases) != 1:
        raise UserError(
            f"live mode searches with one case, and {workload.name} has {len(cases)}",
            hint=f"name it, as in --workload {workload.name}:{cases[0].name}",
        )
    booting.metric_of(workload, asked.metric or recipe.metric)
    how = LivePlan(
        accelerator=kvm.accelerator(asked.accel, asked.qemu, Meter()),
        vcpus=asked.cpus or None,
        mirror=asked.cpus == 0,
        max_rounds=MOST_ROUNDS,
        iterations=asked.iterations,
        seed=live_guests.draw_seed(),
    )
    live_guests.check([(workload, cases)], how)
    return how


def _refuse_exact(asked: Asked, recipe: Recipe) -> None:
    if asked.seeds is not None:
        raise UserError("--seeds is of exact mode", hint="in live mode, the boots decide how many are needed")
    if asked.model not in (None, "auto", "none"):
        raise UserError("--model is of exact mode: live mode measures real time", hint="leave one of them out")
    if recipe.panics == "bad":
        raise UserError(
            "a panic that is looked for needs exact mode, in which a kernel panics each time or never",
            hint="leave --mode live out",
        )
