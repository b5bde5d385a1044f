"""A night while it is at work: the record, saved whenever it changes, and what is known around it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec.structs import replace

from lab.core.progress import Meter
from lab.nightly import livemode, night, sharing
from lab.nightly.livemode import LiveAllowance
from lab.nightly.memory import Memory, remember
from lab.nightly.night import Ack, BranchNight, Night
from lab.nightly.planfile import BranchPlan, NightlyPlan
from lab.nightly.sharing import Team


@dataclass
class Tonight:
    """A night at work. Whatever changes is saved at once.

    deadline: on the monotonic clock. live: live mode's part of it. team: what other machines know.
    """

    plan: NightlyPlan
    night: Night
    earlier: list[Night]
    jobs: int
    meter: Meter
    deadline: float = field(init=False)
    live: LiveAllowance = field(init=False)
    team: Team = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.plan.budget_s
        self.save()
        self.team = sharing.team_if_it_works(self.plan.database, self.meter)
        self.live = livemode.allowance(self.plan, self.deadline, self.meter)
        if self.live.why and self.live.why not in self.night.notes:
            self.night = replace(self.night, notes=[*self.night.notes, self.live.why])
            self.save()
            self.meter.say(self.live.why)

    @property
    def acks(self) -> dict[str, Ack]:
        """What is acknowledged by now, as far as the team was asked."""
        return sharing.known_acks(self.team)

    @property
    def memory(self) -> Memory:
        """What was known before this night."""
        return remember(self.earlier, self.acks)

    @property
    def out_of_time(self) -> bool:
        """Whether the night's budget is used up."""
        return time.monotonic() > self.deadline

    def save(self) -> None:
        """Keep what is known."""
        night.save(self.night)


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
        self.around.meter.say(f"{self.now.name}: {text}")


def now() -> str:
    """The time that goes into a night's record."""
    return datetime.now(UTC).isoformat(timespec="seconds")
