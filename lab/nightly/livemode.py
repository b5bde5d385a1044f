"""Live mode's part of a night: whether this host has one, and how much of its budget is left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lab.compare import live_guests
from lab.compare.plan import LivePlan
from lab.core.errors import LabError
from lab.core.progress import Meter
from lab.guests import kvm, live_machine
from lab.guests.live_machine import Accelerator
from lab.nightly.planfile import NightlyPlan
from lab.workloads import selection


@dataclass(kw_only=True)
class LiveAllowance:
    """accelerator: None where nothing is measured live; `why` says why not, if the plan wants it.

    left_s: of its budget. deadline: of the whole night, on the monotonic clock.
    """

    accelerator: Accelerator | None = None
    why: str = ""
    left_s: float = 0.0
    deadline: float = 0.0

    @property
    def out_of_time(self) -> bool:
        """Whether nothing more can be begun."""
        return self.left_s <= 0 or time.monotonic() > self.deadline

    @contextmanager
    def spending(self) -> Iterator[float]:
        """The deadline of a piece of work, whose time is taken from the budget."""
        started = time.monotonic()
        try:
            yield min(self.deadline, started + self.left_s)
        finally:
            self.left_s -= time.monotonic() - started


def allowance(plan: NightlyPlan, deadline: float, meter: Meter) -> LiveAllowance:
    """What a plan wants of live mode, and this host can do."""
    if "live" not in plan.modes:
        return LiveAllowance()
    try:
        live_machine.find()
        accelerator = kvm.accelerator(plan.live.accel, plan.qemu, meter)
    except LabError as error:
        return LiveAllowance(why=f"live mode is not measured on this host: {error.message}")
    return LiveAllowance(accelerator=accelerator, left_s=plan.live.budget_s, deadline=deadline)


def plan_of(plan: NightlyPlan, asked: tuple[str, ...], accelerator: Accelerator) -> LivePlan:
    """How a comparison is done; `LabError` where this host is too small for its guests."""
    how = LivePlan(
        accelerator=accelerator,
        vcpus=plan.live.cpus,
        max_rounds=plan.live.rounds,
        iterations=plan.live.iterations,
        perf=accelerator == "kvm",
        seed=live_guests.draw_seed(),
    )
    live_guests.check(selection.select_all(asked), how)
    return how
