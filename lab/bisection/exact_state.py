"""What a journal says about a range: every commit on its level, and so what the search knows. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lab.bisection import classify, exact_search
from lab.bisection.answer import Culprit, Open, OutcomeWord, Step, Suspicion
from lab.bisection.commit_range import History
from lab.bisection.exact_search import OLD, Change, Readings
from lab.bisection.journal import Reading
from lab.bisection.plan import BisectPlan
from lab.bisection.search_state import Remaining, better_end, culprit
from lab.core.errors import GuestFailure
from lab.stats import verdict
from lab.stats.verdict import Comparison, Metric, Outcome, percent

PANICS = (GuestFailure.PANIC, GuestFailure.OOPS)
_PANICKED = 1_000_000
"""The level of kernels that panic, in a search for the one that began to."""


@dataclass(frozen=True)
class ExactState:
    """A `SearchState`. Both ends are among the readings."""

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
        return self.ends is None or self.ends.is_change

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
        found = classify.classify(reading.values, places, self.band)
        if found.new:
            places.append(reading.values)
            levels[number] = len(places) - 1
        elif found.number is None:
            skipped[number] = found.why
        else:
            levels[number] = found.number

    @cached_property
    def changes(self) -> list[Change]:
        """What the readings show."""
        return exact_search.changes(self.history.graph(), self.known)

    def next(self) -> int | None:
        """The commit to measure next; None when the readings say all that is asked."""
        return next(iter(self.choose(1)), None)

    def choose(self, count: int) -> list[int]:
        """Up to so many commits to measure next, all at once; none when the readings say all that is asked."""
        if not self._is_searched:
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

    @property
    def _is_searched(self) -> bool:
        """Whether the ends allow a search at all."""
        if self.ends is None:
            return True
        return self.ends.verdict != Outcome.UNKNOWN and not self._is_better

    @property
    def _is_better(self) -> bool:
        """Whether the new end is the better one, though only a change for the worse is looked for."""
        return self.plan.worse_only and self.ends is not None and self.ends.verdict == Outcome.IMPROVEMENT

    # ---- for status, log and answer

    @property
    def tried(self) -> list[str]:
        """The measured commits and those that cannot be tested, but for the ends."""
        return [commit for commit in self.readings if commit not in (self.history.old.id, self.history.new.id)]

    @property
    def untestable(self) -> Collection[str]:
        """The commits that do not build, boot or survive the workload."""
        return [commit for commit, reading in self.readings.items() if reading.untestable]

    def describe_ends(self) -> list[str]:
        """A line for each end."""
        ends = zip((self.history.old, self.history.new), self.plan.terms, strict=True)
        return [f'{end.name}  the {term} end  "{end.title}"' for end, term in ends]

    def describe(self, commit: str) -> str:
        """A tried commit in a few words."""
        return self.describe_reading(self.history.number(commit), self.readings[commit])

    def describe_reading(self, number: int, reading: Reading) -> str:
        """A reading of a commit in a few words."""
        if reading.untestable:
            return f"cannot be tested ({reading.untestable}): {reading.why}"
        likeness = self._likeness(number)
        if number in self.unclear:
            likeness += f", {self.unclear[number]}"
        twin = f", same kernel as {reading.same_as[:12]}" if reading.same_as else ""
        return f"{likeness} ({percent(self._ratio(reading)) if self._old.values else ''}{twin})"

    def _likeness(self, number: int) -> str:
        """A commit's level in words, with the plan's terms for the ends."""
        old, new = self.plan.terms
        if number in self.known.skipped:
            return "not clear" if number in self.unclear else "untestable"
        level = self.known.level(number)
        if level == 0:
            return f"like {old}" if self.differ else "like both ends"
        if level == _PANICKED:
            return "panics"
        return f"like {new}" if level == 1 and self.differ else "like neither end"

    @property
    def _old(self) -> Reading:
        return self.readings[self.history.old.id]

    def _ratio(self, reading: Reading) -> float | None:
        return self.compare(self._old, reading).ratio

    def term(self, commit: str) -> str:
        """A commit like neither end, or one that cannot be told, is skipped: git knows no third side."""
        level = self.known.levels.get(self.history.number(commit))
        return self.plan.terms[level] if level == 0 or (level == 1 and self.differ) else "skip"

    def step(self, commit: str) -> Step:
        """A tried commit, for the answer."""
        reading, number = self.readings[commit], self.history.number(commit)
        return Step(
            commit=commit,
            title=self.history[number].title,
            decision=f"untestable: {reading.untestable}" if reading.untestable else self._likeness(number),
            ratio=self._ratio(reading) if self._old.values and reading.values else None,
            values=reading.values,
            build=reading.kernel,
            same_as=reading.same_as,
            why=reading.why or self.unclear.get(number, ""),
            log=reading.log,
            build_s=reading.build_s,
            run_s=reading.run_s,
        )

    def describe_changes(self) -> list[str]:
        """A line for each change."""
        kind = self.history.kind
        return [
            f"change among {change.candidates} {kind}, {change.first} to {change.last}"
            if change.candidates > 1
            else f"change at {change.last}"
            for change in self.open_changes()
        ]

    def open_changes(self) -> list[Open]:
        """Each change by the commits one of which made it."""
        return [
            Open(
                candidates=len(change.suspects),
                first=self.history[change.suspects[0]].name,
                last=self.history[change.suspects[-1]].name,
            )
            for change in self.changes
        ]

    def suspicions(self) -> list[Suspicion]:
        """None: exact mode has no probabilities."""
        return []

    def posterior(self) -> None:
        """None: exact mode has no probabilities."""

    def remaining(self) -> Remaining:
        """What is left, if the commits to come take as long as those before."""
        number = self.next()
        steps = self.steps_left if number is not None else 0
        readings = [self.readings[commit] for commit in self.tried]
        spent = math.fsum(reading.build_s + reading.run_s for reading in readings)
        return Remaining(
            next=self.history[number] if number is not None else None,
            steps=steps,
            seconds=steps * spent / len(readings) if readings else None,
        )

    def culprits(self) -> list[Culprit]:
        """The changes, unless the ends make the search pointless."""
        return [self._culprit(change) for change in self.changes] if self._is_searched else []

    def _culprit(self, change: Change) -> Culprit:
        base, test = (self.readings[self.history[number].id] for number in (change.before, change.at))
        effect = self.compare(base, test) if base.values and test.values else None
        return culprit(
            self.history,
            self.metric,
            at=change.at,
            suspects=change.suspects,
            untested=[number for number in change.suspects if number in self.known.skipped],
            before=change.before,
            effect=effect,
            ratio=effect.ratio if effect else None,
            confidence=1 - effect.p_value if effect else 1.0,
        )

    def outcome(self, culprits: Sequence[Culprit], *, out_of_time: bool) -> tuple[OutcomeWord, str]:
        """The outcome of a search that found these changes, and the reason for it."""
        ends, (old, new) = self.ends, self.plan.terms
        if out_of_time:
            return "undecided", f"the budget is used up, about {self.steps_left} commits are still to be measured"
        if ends is not None and ends.verdict == Outcome.UNKNOWN:
            return "undecided", f"{len(ends.base)} seeds do not tell the ends apart: {ends.reason}"
        if self._is_better and ends is not None:
            return "no culprit", better_end(old, new, ends.ratio)
        if not culprits:
            inside = len(self.known.levels) - 1
            measured = f", and so are {inside} commits between them" if inside else ""
            return "no culprit", f"the ends are alike ({percent(ends.ratio if ends else None)}){measured}"
        if ranges := sum(not change.is_single for change in culprits):
            left = "the commits left cannot be tested, or lie between such"
            return "range", f"{_changes(ranges)} cannot be narrowed down: {left}"
        return "found", _changes(len(culprits))


def _changes(count: int) -> str:
    return f"{count} change{'s' * (count != 1)}"


def paired(base: list[float], test: list[float]) -> tuple[list[float], list[float]]:
    """The values of the seeds that both have: a commit may have been placed by the first few."""
    return base[: len(test)], test[: len(base)]


def _sided(metric: Metric) -> Metric:
    """A metric without a better side, with one: the search asks only whether, not which way."""
    return Metric(name=metric.name, unit=metric.unit, better="higher", primary=metric.primary)
