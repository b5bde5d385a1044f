"""An A/B of two commits, one boot of each at a time in random order, until the evidence is in."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from lab.stats import evidence
from lab.stats.evidence import Estimate, Moments

FEWEST_BLOCKS = 4


@dataclass(kw_only=True)
class Duel:
    """Two commits; x holds one difference of logs (new - old) per finished block."""

    old: int
    new: int
    x: list[float] = field(default_factory=list)
    _half: dict[int, float] = field(default_factory=dict)

    def order(self, chance: random.Random) -> tuple[int, ...]:
        """The boots of the next block."""
        return (self.old, self.new) if chance.random() < 0.5 else (self.new, self.old)

    def add(self, commit: int, value: float) -> None:
        """One boot's log metric; the second of a block completes it."""
        self._half[commit] = value
        if len(self._half) == 2:
            self.x.append(self._half[self.new] - self._half[self.old])
            self._half.clear()

    @property
    def log_e(self) -> float:
        """Log evidence against "no difference"; 0 before there are enough blocks."""
        return evidence.log_evidence(self._clipped()) if len(self.x) >= FEWEST_BLOCKS else 0.0

    def effect(self, alpha: float) -> Estimate:
        """Mean difference as tested, with its interval at any look."""
        m = self.moments
        return Estimate(m.mean, evidence.interval(m, alpha))

    @property
    def moments(self) -> Moments:
        """Of the differences as tested."""
        return evidence.moments(self._clipped())

    def _clipped(self) -> list[float]:
        return evidence.clip(self.x)
