"""What a journal says about a range: every commit on its level, and so what the search knows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lab.bisection import classify, exact_search
from lab.bisection.commit_range import History
from lab.bisection.exact_search import OLD, Change, Readings
from lab.bisection.journal import Reading
from lab.bisection.plan import BisectPlan
from lab.core.errors import GuestFailure
from lab.stats import verdict
from lab.stats.verdict import Comparison, Metric, Outcome, percent

PANICS = (GuestFailure.PANIC, GuestFailure.OOPS)
_PANICKED = 1_000_000
"""The level of kernels that panic, in a search for the one that began to."""


@dataclass(frozen=True)
class State:
    """Both ends are among the readings."""

    plan: BisectPlan
    history: History
    metric: Metric
    readings: Mapping[str, Reading]

    @cached_property
    def ends(self) -> Comparison | None:
        """The new end against the old one; None when one of them panics, as the recipe wants it."""
        old, new = (self.readings[one.id] for one in (self.history.old, self.history.new))
        return self.compare(old, new) if old.values and new.values else None

    @property
    def differ(self) -> bool:
        """Whether the ends are certainly not alike."""
        return self.ends is None or changed(self.ends)

    def compare(self, base: Reading, test: Reading) -> Comparison:
        """Two readings as a verdict sees them."""
        metric = self.metric if self.metric.better != "neither" else _sided(self.metric)
        return verdict.compare_metric(
            metric, *paired(base.values, test.values), threshold=self.plan.threshold, alpha=self.plan.alpha, exact=True
        )

    @cached_property
    def band(self) -> float:
        """The dead band of all decisions."""
        old, new = (self.readings[one.id].values for one in (self.history.old, self.history.new))
        return classify.band(old, new if old and new else old, self.plan.threshold) if old else 0.0

    @cached_property
    def known(self) -> Readings:
        """The readings as the search takes them."""
        levels, skipped, places = self._levels()
        old = places[0]
        effects = {i: classify.distance(*paired(values, old)).mean if old else 0.0 for i, values in enumerate(places)}
        return Readings(levels, frozenset(skipped), effects, tolerance=2 * self.band)

    @cached_property
    def unclear(self) -> dict[int, str]:
        """Measured commits whose numbers could not be put on a level, and why."""
        return {number: why for number, why in self._levels()[1].items() if why}

    def _levels(self) -> tuple[dict[int, int], dict[int, str], list[list[float]]]:
        """Levels of the measured commits; what was skipped, with a reason where it was measured; values of levels."""
        new = self.history.graph().new
        places = [self.readings[self.history.old.id].values]
        levels: dict[int, int] = {}
        skipped: dict[int, str] = {}
        for name, reading in sorted(self.readings.items(), key=lambda item: item[0] != self.history.new.id):
            number = self.history.number(name)
            if number == OLD:
                continue
            if reading.untestable:
                self._take_untestable(number, reading, levels, skipped)
            elif number == new:
                levels[number] = 1 if self.differ else 0
                places += [reading.values] if self.differ else []
            else:
                self._take(number, reading, levels, skipped, places)
        return levels, skipped, places

    def _take_untestable(self, number: int, reading: Reading, levels: dict[int, int], skipped: dict[int, str]) -> None:
        if self.plan.panics == "bad" and reading.untestable in PANICS:
            levels[number] = _PANICKED
        else:
            skipped[number] = ""

    def _take(
        self,
        number: int,
        reading: Reading,
        levels: dict[int, int],
        skipped: dict[int, str],
        places: list[list[float]],
    ) -> None:
        found = classify.place(reading.values, places, self.band)
        if found.new:
            places.append(reading.values)
            levels[number] = len(places) - 1
        elif found.level is None:
            skipped[number] = found.why
        else:
            levels[number] = found.level

    @cached_property
    def changes(self) -> list[Change]:
        """What the readings show."""
        return exact_search.changes(self.history.graph(), self.known)

    def next(self) -> int | None:
        """The commit to measure next; None when the readings say all that is asked."""
        return next(iter(self.choose(1)), None)

    def choose(self, count: int) -> list[int]:
        """Up to so many commits to measure next, all at once; none when the readings say all that is asked."""
        if self.ends is not None and self.ends.verdict == Outcome.UNKNOWN:
            return []
        if self.plan.worse_only and self.ends is not None and self.ends.verdict == Outcome.IMPROVEMENT:
            return []
        graph = self.history.graph()
        chosen = exact_search.next_commits(graph, self.known, count)
        if not chosen and not self.differ and not self.changes:
            return exact_search.widest_gaps(graph, self.known, min(count, self._probes_left()))
        return chosen

    def _probes_left(self) -> int:
        inside = len(self.known.levels) - 1
        return self.plan.probes - inside if len(self.known.skipped) <= self.plan.probes else 0

    @property
    def steps_left(self) -> int:
        """About how many measurements are still needed."""
        left = exact_search.steps_left(self.history.graph(), self.known)
        return left or (max(0, self.plan.probes - len(self.known.levels) + 1) if self.next() is not None else 0)

    def likeness(self, number: int) -> str:
        """A commit's place in words, with the names that the ends have."""
        old, new = self.plan.words
        if number in self.known.skipped:
            return "not clear" if number in self.unclear else "untestable"
        level = self.known.level(number)
        if level == 0:
            return f"like {old}" if self.differ else "like both ends"
        if level == _PANICKED:
            return "panics"
        return f"like {new}" if level == 1 and self.differ else "like neither end"


def describe(state: State, number: int, reading: Reading) -> str:
    """A reading in a few words."""
    if reading.untestable:
        return f"cannot be tested ({reading.untestable}): {reading.why}"
    words = state.likeness(number)
    if number in state.unclear:
        words += f", {state.unclear[number]}"
    old = state.readings[state.history.old.id]
    ratio = percent(state.compare(old, reading).ratio) if old.values and number != OLD else ""
    return f"{words} ({ratio}{', same kernel as ' + reading.same_as[:12] if reading.same_as else ''})"


def paired(base: list[float], test: list[float]) -> tuple[list[float], list[float]]:
    """The values of the seeds that both have: a commit may have been placed by the first few."""
    return base[: len(test)], test[: len(base)]


def changed(found: Comparison) -> bool:
    """Whether a comparison says that there is a difference."""
    return found.is_change


def _sided(metric: Metric) -> Metric:
    """A metric without a better side, with one: the search asks only whether, not which way."""
    return Metric(name=metric.name, unit=metric.unit, better="higher", primary=metric.primary)
