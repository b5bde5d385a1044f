"""What is known from all nights so far: which changes are open, which branches are broken, what was measured when.

It is computed from the stored nights each time, so there is nothing beside them that could be lost or disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lab.nightly.night import MODES, Ack, BranchNight, Event, Mode, Night

Branch = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """A commit that a branch was at, and was measured."""

    night: int
    date: str
    commit: str


@dataclass(kw_only=True)
class Memory:
    """The sum of all nights. open: regressions, steps and creeps that are there yet, acknowledged ones too.

    last_good: per branch and mode, the last tip that was measured in it, and had no open change that somebody would
    mind and no undecided case there.
    """

    open: dict[str, Event] = field(default_factory=dict)
    closed: dict[str, Event] = field(default_factory=dict)
    acks: Mapping[str, Ack] = field(default_factory=dict)
    broken: dict[Branch, Event] = field(default_factory=dict)
    tips: dict[Branch, list[Tip]] = field(default_factory=dict)
    last_good: dict[tuple[Branch, Mode], Tip] = field(default_factory=dict)

    def open_on(self, branch: Branch) -> list[Event]:
        """What is open on a branch, the oldest first."""
        return [event for event in self.open.values() if (event.tree, event.branch) == branch]

    def before(self, branch: Branch) -> Tip | None:
        """The tip that was measured last."""
        tips = self.tips.get(branch)
        return tips[-1] if tips else None

    def known(self, branch: Branch) -> list[Event]:
        """Every change there ever was on a branch."""
        every = [*self.open.values(), *self.closed.values()]
        return [event for event in every if (event.tree, event.branch) == branch]

    def culprits(self, tree: str) -> dict[str, Event]:
        """The commits of a tree that are known to have done something, open or not."""
        every = [*self.open.values(), *self.closed.values()]
        return {culprit.commit: event for event in every if event.tree == tree for culprit in event.culprits}

    @property
    def minded(self) -> list[Event]:
        """What is open and not acknowledged."""
        return [event for event in self.open.values() if event.id not in self.acks]


def remember(nights: Iterable[Night], acks: Mapping[str, Ack]) -> Memory:
    """Everything that the nights say together."""
    memory = Memory(acks=acks)
    for night in nights:
        for one in night.branches:
            branch = one.tree, one.branch
            for event in one.events:
                _take(memory, branch, event)
            if one.state != "measured":
                continue
            tip = Tip(night=night.number, date=night.date, commit=one.tip)
            memory.tips.setdefault(branch, []).append(tip)
            for mode in MODES:
                if _is_good(memory, one, branch, mode):
                    memory.last_good[branch, mode] = tip
    return memory


def _is_good(memory: Memory, one: BranchNight, branch: Branch, mode: Mode) -> bool:
    """Whether nothing is wrong with a tip, as far as one mode can tell."""
    if mode != "exact" and not one.measured_in(mode):
        return False
    minded = [event for event in memory.open_on(branch) if event.id not in memory.acks and mode in event.modes]
    return not minded and all(case.mode != mode for case in one.undecided)


def _take(memory: Memory, branch: Branch, event: Event) -> None:
    match event.kind:
        case "regression" | "creep" | "step" | "known":
            memory.open[event.id] = event
        case "fixed":
            if event.closes in memory.open:
                memory.closed[event.closes] = memory.open.pop(event.closes)
        case "unfounded":
            memory.closed[event.id] = event
        case "broken":
            memory.broken[branch] = event
        case "mended":
            memory.broken.pop(branch, None)
