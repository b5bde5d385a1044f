"""The context of a night at work: its record, saved with every change, its budgets, and the state before it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from msgspec.structs import replace

from lab.core.errors import LabError
from lab.core.executor import Work
from lab.guests import kvm, live_machine
from lab.guests.live_machine import Accelerator
from lab.guests.run import Mode
from lab.nightly import record
from lab.nightly.events import PlanState
from lab.nightly.plan import BranchPlan, NightlyPlan
from lab.nightly.record import BranchNight, Night


@dataclass(kw_only=True)
class LiveBudget:
    """The means of live mode in a night.

    work: of the whole night.
    accelerator: None if the night does not use live mode.
    why: the reason for that, if the plan asks for live mode.
    left_s: the rest of live mode's own budget.
    """

    work: Work
    accelerator: Accelerator | None = None
    why: str = ""
    left_s: float = 0.0

    @property
    def out_of_time(self) -> bool:
        """True once nothing more can be begun."""
        return self.left_s <= 0 or self.work.out_of_time

    @contextmanager
    def spend(self) -> Iterator[Work]:
        """The work of one measurement, whose time is taken from the budget."""
        started = time.monotonic()
        deadline = started + self.left_s
        try:
            yield self.work.until(deadline if self.work.deadline is None else min(self.work.deadline, deadline))
        finally:
            self.left_s -= time.monotonic() - started


def live_budget(plan: NightlyPlan, work: Work) -> LiveBudget:
    """The means of live mode that the plan asks for and this host has."""
    if "live" not in plan.modes:
        return LiveBudget(work=work)
    try:
        live_machine.find_vng()
        accelerator = kvm.accelerator(plan.live.accel, plan.qemu, work.progress, guest_timeout_s=plan.guest_timeout_s)
    except LabError as error:
        return LiveBudget(work=work, why=f"live mode is not measured on this host: {error.message}")
    return LiveBudget(work=work, accelerator=accelerator, left_s=plan.live.budget_s)


@dataclass
class NightContext:
    """A night at work. earlier: the nights before it."""

    plan: NightlyPlan
    record: Night
    earlier: list[Night]
    work: Work
    live: LiveBudget = field(init=False)

    def __post_init__(self) -> None:
        self.update()
        self.live = live_budget(self.plan, self.work)
        if self.live.why and self.live.why not in self.record.notes:
            self.update(notes=[*self.record.notes, self.live.why])
            self.work.progress.log(self.live.why)

    def update(self, **changes: object) -> None:
        """Change the record, and save it."""
        self.record = replace(self.record, **changes)
        record.save(self.record)

    @property
    def state(self) -> PlanState:
        """The state of the plan before this night."""
        return PlanState.after(self.earlier, record.load_acks())

    @property
    def state_after(self) -> PlanState:
        """The state of the plan after this night."""
        return PlanState.after([*self.earlier, self.record], record.load_acks())

    def out_of_time(self, mode: Mode) -> bool:
        """True once the budget for a mode is used up."""
        return self.live.out_of_time if mode == "live" else self.work.out_of_time

    def spend(self, mode: Mode) -> AbstractContextManager[Work]:
        return self.live.spend() if mode == "live" else nullcontext(self.work)

    def accelerator(self, mode: Mode) -> Accelerator | None:
        """The accelerator of guests in live mode; None in exact mode."""
        return self.live.accelerator if mode == "live" else None


@dataclass(frozen=True)
class BranchContext:
    """A branch of a night at work. index: its place in the plan."""

    night: NightContext
    index: int

    @property
    def plan(self) -> BranchPlan:
        return self.night.plan.branch[self.index]

    @property
    def record(self) -> BranchNight:
        return self.night.record.branches[self.index]

    @property
    def others(self) -> list[BranchNight]:
        return [branch for index, branch in enumerate(self.night.record.branches) if index != self.index]

    def update(self, **changes: object) -> None:
        """Change the record of the branch, and save it."""
        branches = list(self.night.record.branches)
        branches[self.index] = replace(self.record, **changes)
        self.night.update(branches=branches)

    def note(self, text: str) -> None:
        """Add a note to the record, and show it."""
        if text not in self.record.notes:
            self.update(notes=[*self.record.notes, text])
        self.log(text)

    def log(self, text: str) -> None:
        self.night.work.progress.log(f"{self.record.name}: {text}")
