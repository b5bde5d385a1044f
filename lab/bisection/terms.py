"""The words of the live search: its rules, what it asks for, what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lab.stats.evidence import Estimate
from lab.stats.posterior import DRIFTS, Drift


class Outcome(StrEnum):
    """How a search ended."""

    NO_CULPRIT = "no culprit"
    CONFIRMED = "confirmed"
    FOUND = "found"
    UNDECIDED = "undecided"


class Part(StrEnum):
    """What a visit is for."""

    ENDS = "ends"
    SEARCH = "search"
    CONFIRM = "confirm"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """When a search believes what.

    confidence: probability at which a gap is the answer. hunch: probability at which its neighbours begin to be
    compared afresh, which both confirms and measures. alpha: chance that equal ends are searched at all.
    confirm_alpha: the same for the two neighbours at the end; None leaves that out. margin: a log ratio
    within which the ends count as the same, None never to say so. side_boots: boots that both neighbours must
    have had. max_boots: when to give up.
    """

    confidence: float = 0.95
    hunch: float = 0.85
    alpha: float = 0.01
    confirm_alpha: float | None = 0.05
    margin: float | None = None
    end_blocks: int = 200
    confirm_blocks: int = 60
    side_boots: int = 2
    max_boots: int = 3000
    drifts: tuple[Drift, ...] = DRIFTS
    robust: bool = True


@dataclass(frozen=True, kw_only=True)
class Visit:
    """Boots to be made one after the other. `commit` is what they are for."""

    part: Part
    commit: int
    boots: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Done:
    """The answer: the culprit is one of `suspects`, the last of which is the first commit seen bad.

    last_good, first_bad: the neighbours that were measured. probability: that the answer is right, as the
    model sees it. effect: change between the ends (no culprit) or between the neighbours when confirmed, else
    the model's; logs, with its interval where there is one.
    """

    outcome: Outcome
    reason: str
    last_good: int
    first_bad: int
    suspects: tuple[int, ...]
    probability: float
    effect: Estimate


@dataclass(frozen=True, kw_only=True)
class Status:
    """Where a search stands. gaps: (last good, first bad, probability), likeliest first."""

    part: Part
    boots: int
    evidence: float
    gaps: tuple[tuple[int, int, float], ...]
    bits_left: float
    seconds_left: float | None
