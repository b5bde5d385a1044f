"""How a comparison in live mode is going, in words: a line a round, or a bar for each case as its interval narrows."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from lab.core.progress import Meter, Task
from lab.live.document import LiveRound
from lab.live.measuring import Taking
from lab.live.rounds import primary_of
from lab.stats.verdict import Comparison, Outcome, percent


class Narrator:
    """Tells of every round that is over. Use as a context manager around the rounds."""

    def __init__(self, taking: Taking, meter: Meter) -> None:
        self._taking = taking
        self._meter = meter
        self._bars: dict[str, Task] = {}
        self._told = 0
        self._planned = False

    def __enter__(self) -> Self:
        if self._meter.shows_bars:
            for case in self._taking.rounds.metrics:
                self._bars[case] = self._meter.open_task(case, self._taking.rounds.max_blocks)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for bar in self._bars.values():
            bar.close()

    def tell(self, one: LiveRound) -> None:
        """A round is over: what went wrong on the way to it, and how every case stands."""
        for other in self._taking.tried[self._told :]:
            if other.reasons:
                self._meter.say(f"round {other.number}: {_trouble(other)}")
        self._told = len(self._taking.tried)
        self._tell_plan()
        standing = {case: primary_of(found) for case, found in self._taking.rounds.standing().items()}
        if self._bars:
            for case, comparison in standing.items():
                self._bars[case].advance(1, in_words(comparison))
            return
        cases = "; ".join(f"{case} {in_words(comparison)}" for case, comparison in standing.items())
        self._meter.say(f"round {one.number}, {one.seconds:.0f} s: {cases}{self._left()}")

    def _tell_plan(self) -> None:
        """How many rounds fit into the budget, once that is known; without one the options have said it."""
        horizon = self._taking.rounds.horizon
        if horizon is None or horizon.iterations is None or self._planned:
            return
        self._planned = True
        each = f"{horizon.iterations} iteration{'s' * (horizon.iterations != 1)} a boot"
        self._meter.say(f"planned for this budget: {horizon.rounds} rounds, {each}")

    def _left(self) -> str:
        """How long it may still take: what the open cases ask for, or the end of the rounds."""
        rounds = self._taking.rounds
        undecided = set(rounds.undecided())
        asked = [primary_of(found).more_blocks for case, found in rounds.standing().items() if case in undecided]
        if not asked and not rounds.fixed_blocks:
            return ""
        most = rounds.max_blocks - len(rounds.blocks)
        more = most if rounds.fixed_blocks else min(most, max((most if n is None else n) for n in asked))
        if not more:
            return ""
        return f"; at most {more} more round{'s' * (more != 1)}, about {more * self._taking.seconds_a_round():.0f} s"


def in_words(comparison: Comparison) -> str:
    """How a case stands: its change, the interval, the verdict, and what would be needed for one."""
    if comparison.interval is None:
        return f"{percent(comparison.ratio)}, {comparison.reason}"
    low, high = comparison.interval
    words = f"{percent(comparison.ratio)} [{percent(low)}, {percent(high)}] {comparison.verdict}"
    if comparison.verdict != Outcome.UNKNOWN:
        return words
    more = f", about {comparison.more_blocks} more rounds would settle it" if comparison.more_blocks else ""
    return f"{words}: {comparison.reason}{more}"


def _trouble(one: LiveRound) -> str:
    reasons = "; ".join(one.reasons)
    match one.state:
        case "repeated":
            return f"repeated: {reasons}"
        case "died":
            return f"repeated, a guest died: {reasons}"
    return f"taken although {reasons}"
