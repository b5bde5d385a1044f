"""A night while it is at work: the record, saved whenever it changes, and what is known around it.

Live mode's part of a night: whether this host has one, and how much of its budget is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec.structs import replace

from lab.compare import live_guests
from lab.compare.plan import LivePlan
from lab.core.errors import LabError
from lab.core.executor import Work
from lab.guests import kvm, live_machine
from lab.guests.live_machine import Accelerator
from lab.nightly import record, team
from lab.nightly.events import PlanState
from lab.nightly.plan import BranchPlan, NightlyPlan
from lab.nightly.record import Ack, BranchNight, Night
from lab.nightly.team import Team
from lab.workloads import selection


@dataclass(kw_only=True)
class LiveAllowance:
    """accelerator: None where nothing is measured live; `why` says why not, if the plan wants it.

    work: of the whole night. left_s: of live mode's budget.
    """

    work: Work
    accelerator: Accelerator | None = None
    why: str = ""
    left_s: float = 0.0

    @property
    def out_of_time(self) -> bool:
        """Whether nothing more can be begun."""
        return self.left_s <= 0 or self.work.out_of_time

    @contextmanager
    def spending(self) -> Iterator[Work]:
        """The work of one measurement, whose time is taken from the budget."""
        started = time.monotonic()
        until = started + self.left_s
        try:
            yield self.work.until(until if self.work.deadline is None else min(self.work.deadline, until))
        finally:
            self.left_s -= time.monotonic() - started


def allowance(plan: NightlyPlan, work: Work) -> LiveAllowance:
    """What a plan wants of live mode, and this host can do."""
    if "live" not in plan.modes:
        return LiveAllowance(work=work)
    try:
        live_machine.find_vng()
        accelerator = kvm.accelerator(plan.live.accel, plan.qemu, work.progress)
    except LabError as error:
        return LiveAllowance(work=work, why=f"live mode is not measured on this host: {error.message}")
    return LiveAllowance(work=work, accelerator=accelerator, left_s=plan.live.budget_s)


def plan_of(plan: NightlyPlan, asked: tuple[str, ...], accelerator: Accelerator) -> LivePlan:
    """How a comparison is done; `LabError` where this host is too small for its guests."""
    return live_guests.plan(
        selection.select_all(asked), accelerator, plan.live.cpus, max_rounds=plan.live.rounds,
        iterations=plan.live.iterations, perf=accelerator == "kvm",
    )  # fmt: skip


@dataclass
class Tonight:
    """A night at work. Whatever changes is saved at once.

    live: live mode's part of it. team: what other machines know.
    """

    plan: NightlyPlan
    night: Night
    earlier: list[Night]
    work: Work
    live: LiveAllowance = field(init=False)
    team: Team = field(init=False)

    def __post_init__(self) -> None:
        self.save()
        self.team = team.try_load_team(self.plan.database, self.work.progress)
        self.live = allowance(self.plan, self.work)
        if self.live.why and self.live.why not in self.night.notes:
            self.night = replace(self.night, notes=[*self.night.notes, self.live.why])
            self.save()
            self.work.progress.log(self.live.why)

    @property
    def acks(self) -> dict[str, Ack]:
        """What is acknowledged by now, as far as the team was asked."""
        return self.team.own_acks()

    @property
    def memory(self) -> PlanState:
        """What was known before this night."""
        return PlanState.after(self.earlier, self.acks)

    def save(self) -> None:
        """Keep what is known."""
        record.save(self.night)


@dataclass(frozen=True)
class BranchTonight:
    """One branch of a night at work."""

    around: Tonight
    place: int
    plan: BranchPlan

    @property
    def now(self) -> BranchNight:
        """What is known of it."""
        return self.around.night.branches[self.place]

    @property
    def others(self) -> list[BranchNight]:
        """The other branches of the night."""
        return [one for place, one in enumerate(self.around.night.branches) if place != self.place]

    def put(self, **changes: object) -> None:
        """Change what is known of the branch, and keep it."""
        branches = list(self.around.night.branches)
        branches[self.place] = replace(self.now, **changes)
        self.around.night = replace(self.around.night, branches=branches)
        self.around.save()

    def note(self, text: str) -> None:
        """Something that the reader should know."""
        if text not in self.now.notes:
            self.put(notes=[*self.now.notes, text])
        self.around.work.progress.log(f"{self.now.name}: {text}")


def now() -> str:
    """The time that goes into a night's record."""
    return datetime.now(UTC).isoformat(timespec="seconds")
