"""The state of a search in exact mode: the readings of a journal, and the level of every measured commit. Pure.

All values are one number a seed, the same seeds for all commits, so they are compared in pairs, on log ratios. Two are
alike when their mean log ratio is within the dead band: the threshold, but never more than a third of the difference
between the ends, so that nothing is like both ends. Numbers without spread are decided by their values; if the seeds
disagree, three standard errors are kept clear of the band's edge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from lab.bisection import exact_search
from lab.bisection.answer import Culprit, OpenRange, OutcomeWord
from lab.bisection.commit_range import History, counted
from lab.bisection.exact_search import OLD, Change, Readings
from lab.bisection.journal import Reading
from lab.bisection.plan import BisectPlan, outcome_word
from lab.bisection.search_state import Remaining, SearchState
from lab.compare import beliefs, state
from lab.core.errors import GuestFailure
from lab.core.git import short
from lab.core.text import plural
from lab.guests import costs
from lab.stats import evidence, verdict, whole
from lab.stats.verdict import Comparison, Metric, Outcome, percent
from lab.stats.whole import Whole

PANICS = (GuestFailure.PANIC, GuestFailure.OOPS)
CHOOSE = "choose the metric that decides: --metric instructions, or --metric cycles"
MITIGATE = "search with mitigations=off"
_PANICKED = 1_000_000
"""The level of kernels that panic, in a search for the first one that does."""


class _Levels(NamedTuple):
    """The level of each commit that has one, the reason for each that has none, the values of each level.

    The reason is empty for a commit that cannot be tested.
    """

    of: dict[int, int]
    skipped: dict[int, str]
    values: list[list[float]]


@dataclass(frozen=True)
class ExactState(SearchState):
    """The state by readings, those of both ends among them."""

    plan: BisectPlan
    history: History
    metric: Metric
    readings: Mapping[str, Reading]

    @cached_property
    def ends(self) -> Comparison | None:
        """The new end against the old one; None when one of them panics, as the recipe wants it.

        `unknown` if something beside modelled cycles contradicts them: the count of instructions, unless the user
        chose the metric, the CPU that the kernels believe in, or the whole cost.
        """
        return self._weighed_ends[0]

    @property
    def ends_whole(self) -> Whole | None:
        return self._weighed_ends[1]

    @cached_property
    def _weighed_ends(self) -> tuple[Comparison | None, Whole | None]:
        old, new = (self.readings[end.id] for end in self.history.ends)
        return self.weighed(old, new)

    @property
    def is_disputed(self) -> bool:
        """True of ends that no seed more would tell apart, because the numbers beside their metric contradict it."""
        old, new = (self.readings[end.id] for end in self.history.ends)
        return (
            self.ends is not None
            and (self.ends.verdict, self.ends.more_blocks) == (Outcome.UNKNOWN, None)
            and self.compare(old, new).verdict != Outcome.UNKNOWN
        )

    @property
    def dispute(self) -> str:
        """The reason against a search between disputed ends, and the remedy."""
        old, new = (self.readings[end.id] for end in self.history.ends)
        believed = _believed(self.compare(old, new), old, new)
        advice = MITIGATE if believed.verdict == Outcome.UNKNOWN else CHOOSE
        return f"{self.ends.reason if self.ends else ''}; {advice}"

    def weighed(
        self, base: Reading, test: Reading, threshold: float | None = None
    ) -> tuple[Comparison | None, Whole | None]:
        """The comparison of two readings, limited by the numbers beside it, and the whole cost; None without values.

        threshold: the comparison's; None for the plan's.
        """
        if not base.values or not test.values:
            return None, None
        compared, count = self.compare(base, test, threshold), self.instructions(test, base)
        if count and not self.plan.metric:
            compared = verdict.beside_count(compared, count, self.plan.threshold)
        compared = _believed(compared, base, test)
        if not self.plan.metric:
            compared = state.beside_left(compared, (base.left, test.left))
        if costs.beside(self.metric.name) is None:
            return compared, None
        parts = (
            self._compared(metric, base.whole.get(metric.name, []), test.whole.get(metric.name, []))
            for metric in costs.WHOLE_METRICS
        )
        return whole.weigh(
            compared, *parts,
            threshold=threshold or self.plan.threshold, alpha=self.plan.alpha, chosen=self.plan.metric is not None,
        )  # fmt: skip

    @property
    def ends_instructions(self) -> Comparison | None:
        return self.instructions(self.readings[self.history.new.id])

    def instructions(self, reading: Reading, base: Reading | None = None) -> Comparison | None:
        """The count of instructions of a reading against the old end or another one, beside modelled cycles."""
        name, base = costs.count_of(self.metric.name), base or self.readings[self.history.old.id]
        metric = next((metric for metric in costs.METRICS if metric.name == name), None)
        if metric is None or not base.instructions or not reading.instructions:
            return None
        return self._compared(metric, base.instructions, reading.instructions)

    @property
    def differ(self) -> bool:
        """True if the ends are certainly not alike."""
        return self.ends is None or self.ends.is_change

    def compare(self, base: Reading, test: Reading, threshold: float | None = None) -> Comparison:
        """The verdict on two readings, with the plan's threshold unless another is given."""
        # The search asks only whether they differ, so a metric without a better side gets one.
        metric = self.metric if self.metric.better != "neither" else replace(self.metric, better="higher")
        return self._compared(metric, base.values, test.values, threshold)

    def _compared(
        self, metric: Metric, base: list[float], test: list[float], threshold: float | None = None
    ) -> Comparison:
        limit = self.plan.threshold if threshold is None else threshold
        return verdict.compare_metric(metric, *paired(base, test), threshold=limit, alpha=self.plan.alpha, exact=True)

    @cached_property
    def band(self) -> float:
        """The dead band of all decisions."""
        old, new = (self.readings[end.id].values for end in self.history.ends)
        return band(old, new or old, self.plan.threshold) if old else 0.0

    @property
    def threshold(self) -> float:
        """The dead band as a share: two changes of 1.5 % each are found between ends that differ by 3 %."""
        return math.expm1(self.band) if self.band else self.plan.threshold

    @cached_property
    def known(self) -> Readings:
        """The readings for the search."""
        levels = self._levels
        old = levels.values[0]
        effects = {i: distance(*paired(values, old)).mean if old else 0.0 for i, values in enumerate(levels.values)}
        return Readings(levels.of, frozenset(levels.skipped), effects, tolerance=2 * self.band)

    @cached_property
    def _levels(self) -> _Levels:
        levels = _Levels({}, {}, [self.readings[self.history.old.id].values])
        new = self.history.new.id
        # The new end comes first: if it differs, it is level 1.
        for commit, reading in sorted(self.readings.items(), key=lambda item: item[0] != new):
            number = self.history.number(commit)
            if number == OLD:
                continue
            if reading.untestable:
                if self.plan.panics == "bad" and reading.untestable in PANICS:
                    levels.of[number] = _PANICKED
                else:
                    levels.skipped[number] = ""
                continue
            if commit == new:
                level = Level(None, new=True) if self.differ else Level(0)
            else:
                level = level_of(reading.values, levels.values, self.band)
            if level.new:
                levels.of[number] = len(levels.values)
                levels.values.append(reading.values)
            elif level.number is None:
                levels.skipped[number] = level.why
            else:
                levels.of[number] = level.number
        return levels

    @cached_property
    def changes(self) -> list[Change]:
        return exact_search.changes(self.history.graph(), self.known)

    def next(self) -> int | None:
        """The commit to measure next; None when the search is over."""
        return next(iter(self.choose(1)), None)

    def choose(self, count: int) -> list[int]:
        """Up to so many commits to measure next, all at once; none when the search is over."""
        if not self._is_searched:
            return []
        graph = self.history.graph()
        chosen = exact_search.next_commits(graph, self.known, count)
        if not chosen and not self.differ and not self.changes:
            probes = self.plan.probes - len(self.known.levels) + 1
            left = probes if len(self.known.skipped) <= self.plan.probes else 0
            return exact_search.widest_gaps(graph, self.known, min(count, left))
        return chosen

    @property
    def steps_left(self) -> int:
        """The number of measurements that are still needed, roughly."""
        left = exact_search.steps_left(self.history.graph(), self.known)
        return left or (max(0, self.plan.probes - len(self.known.levels) + 1) if self.next() is not None else 0)

    @property
    def _is_searched(self) -> bool:
        """True if the ends allow a search at all."""
        return self.ends is None or (self.ends.verdict != Outcome.UNKNOWN and not self._is_better)

    @property
    def _is_better(self) -> bool:
        """True if the new end is the better one, though only a change for the worse is looked for."""
        return self.plan.worse_only and self.ends is not None and self.ends.verdict == Outcome.IMPROVEMENT

    # ---- for status, log and answer

    @property
    def tried(self) -> list[str]:
        return self.between(list(self.readings))

    def reading(self, commit: str) -> Reading:
        """A reading, with the reason if its level is not clear."""
        reading = self.readings[commit]
        return replace(reading, why=reading.why or self._levels.skipped.get(self.history.number(commit), ""))

    def likeness(self, commit: str) -> str:
        old, new = self.plan.terms
        number = self.history.number(commit)
        if number in self.known.skipped:
            return "not clear" if self._levels.skipped[number] else "untestable"
        level = self.known.level(number)
        if level == 0:
            return f"like {old}" if self.differ else "like both ends"
        if level == _PANICKED:
            return "panics"
        return f"like {new}" if level == 1 and self.differ else "like neither end"

    def ratio(self, reading: Reading) -> float | None:
        """A reading over the old end; None without numbers of both, or if a command decides."""
        if self.plan.run:
            return None
        old = self.readings[self.history.old.id]
        return self.compare(old, reading).ratio if old.values and reading.values else None

    def term(self, commit: str) -> str:
        """A commit like neither end, or an unclear one, is skipped: git knows no third side."""
        level = self.known.levels.get(self.history.number(commit))
        return self.plan.terms[level] if level == 0 or (level == 1 and self.differ) else "skip"

    def describe_ends(self) -> list[str]:
        ends = zip(self.history.ends, self.plan.terms, strict=True)
        return [f'{end.name}  the {term} end  "{end.title}"' for end, term in ends]

    def describe(self, commit: str) -> str:
        """A commit's likeness and its change against the old end."""
        reading = self.reading(commit)
        if reading.untestable:
            return reading.failure
        why = f", {reading.why}" if reading.why else ""
        change = self._shown(reading)
        twin = f", same kernel as {short(reading.same_as)}" if reading.same_as else ""
        return f"{self.likeness(commit)}{why} ({change}{twin})"

    def _shown(self, reading: Reading) -> str:
        """The change of a reading against the old end, or whether the command works; empty without numbers of both."""
        if self.plan.run and reading.values:
            return f"the command {outcome_word(reading.values)}"
        return percent(self.ratio(reading)) if self.readings[self.history.old.id].values else ""

    def describe_changes(self) -> list[str]:
        kind = self.history.kind
        return [
            f"change among {change.candidates} {kind}, {change.first} to {change.last}"
            if change.candidates > 1
            else f"change at {change.last}"
            for change in self.open_changes()
        ]

    def open_changes(self) -> list[OpenRange]:
        ranges = [[self.history[number].name for number in change.suspects] for change in self.changes]
        return [OpenRange(candidates=len(names), first=names[0], last=names[-1]) for names in ranges]

    def remaining(self) -> Remaining:
        """An estimate: each further commit takes as long as the earlier ones."""
        number = self.next()
        steps = self.steps_left if number is not None else 0
        spent = [self.readings[commit].build_s + self.readings[commit].run_s for commit in self.tried]
        return Remaining(
            next=self.history[number] if number is not None else None,
            steps=steps,
            seconds=steps * math.fsum(spent) / len(spent) if spent else None,
        )

    def culprits(self) -> list[Culprit]:
        """The changes, unless the ends make the search pointless."""
        return [self._culprit(change) for change in self.changes] if self._is_searched else []

    def _culprit(self, change: Change) -> Culprit:
        base, test = (self.readings[self.history[number].id] for number in (change.before, change.at))
        effect, cost = self.weighed(base, test, self.threshold)
        found = self.culprit(
            at=change.at,
            suspects=change.suspects,
            untested=[number for number in change.suspects if number in self.known.skipped],
            before=change.before,
            effect=effect,
            ratio=effect.ratio if effect else None,
            confidence=1 - effect.p_value if effect else 1.0,
        )
        found = self.without_word(found, base, test)
        return replace(found, instructions=self.instructions(test, base), whole=cost)

    def without_word(self, found: Culprit, base: Reading, test: Reading) -> Culprit:
        """A change, but neither a regression nor an improvement if the numbers beside its metric contradict it."""
        if found.effect is None or found.effect.verdict != Outcome.UNKNOWN:
            return found
        alone = self.compare(base, test, self.threshold)
        return found if alone.verdict == Outcome.UNKNOWN else replace(found, direction=None)

    def outcome(self, culprits: Sequence[Culprit], *, out_of_time: bool) -> tuple[OutcomeWord, str]:
        """By the ends, then by the remaining changes."""
        ends = self.ends
        if out_of_time:
            left = counted(self.steps_left, self.history.kind)
            return "undecided", f"the budget is used up; left to measure: about {left}"
        if ends is not None and self.is_disputed:
            return "undecided", f"the ends disagree: {self.dispute}"
        if ends is not None and ends.verdict == Outcome.UNKNOWN:
            return "undecided", f"{len(ends.base)} seeds do not tell the ends apart: {ends.reason}"
        if ends is not None and self._is_better:
            return "no culprit", self.improved(ends.ratio)
        if not culprits:
            alike = self._shown(self.readings[self.history.new.id]) or "n/a"
            inside = len(self.known.levels) - 1
            measured = f", and {counted(inside, self.history.kind)} between them, too" if inside else ""
            return "no culprit", f"the ends are alike ({alike}){measured}"
        if ranges := sum(not change.is_single for change in culprits):
            left = f"the {self.history.kind} left cannot be tested, or lie between such"
            return "range", f"{plural(ranges, 'change')} cannot be narrowed down: {left}"
        return "found", plural(len(culprits), "change")


def _believed(compared: Comparison, base: Reading, test: Reading) -> Comparison:
    """The comparison of two readings, limited by the CPU that their kernels believe in."""
    found = {short(one.commit): one.belief for one in (base, test) if one.belief}
    return beliefs.weigh(compared, found)


def paired(base: list[float], test: list[float]) -> tuple[list[float], list[float]]:
    """The values of the seeds that both have: the first few may have been enough for one of them."""
    return base[: len(test)], test[: len(base)]


# ---- the level of a commit's values: the old end's, the new end's, another one, or none that is clear

_BAND_OF_EFFECT = 1 / 3
_ERRORS_APART = 3.0


@dataclass(frozen=True, slots=True)
class Distance:
    """Mean log ratio of values over reference, and three standard errors of it. Infinite if there are no logs."""

    mean: float
    error: float = 0.0

    @property
    def size(self) -> float:
        """The distance without its direction."""
        return abs(self.mean)


@dataclass(frozen=True, slots=True)
class Level:
    """The level of a commit, by its number. None: a `new` level, or none that is clear, for the reason in `why`."""

    number: int | None
    new: bool = False
    why: str = ""


def distance(values: Sequence[float], reference: Sequence[float]) -> Distance:
    """The distance of values from a reference, seed by seed. ValueError when they are not as many."""
    if len(values) != len(reference) or not values:
        raise ValueError(f"{len(values)} values against {len(reference)}")
    pairs = list(zip(values, reference, strict=True))
    if all(value == other for value, other in pairs):
        return Distance(0.0)
    if min(*values, *reference) <= 0:
        # Counters may be zero. From or to zero, or across it, there is no ratio: as different as can be.
        return Distance(math.copysign(math.inf, math.fsum(values) - math.fsum(reference)))
    moments = evidence.moments([math.log(value) - math.log(other) for value, other in pairs])
    return Distance(moments.mean, _ERRORS_APART * moments.sd / math.sqrt(moments.n))


def band(old: Sequence[float], new: Sequence[float], threshold: float) -> float:
    """The dead band's half width in log units, given the ends; the threshold alone for ends that are alike."""
    full, apart = math.log1p(threshold), distance(new, old).size
    return full if apart <= full else min(full, apart * _BAND_OF_EFFECT)


def level_of(values: Sequence[float], levels: Sequence[Sequence[float]], half_width: float) -> Level:
    """The level of a commit, given the values of all levels so far, the old end's first.

    If one side has fewer values, the comparison takes the seeds that both have.
    """
    if any(not math.isfinite(value) for value in values):
        return Level(None, why="a value is not a number")
    pairs = [(values[: len(known)], known[: len(values)]) for known in levels]
    for level, (mine, known) in enumerate(pairs):
        if list(mine) == list(known):
            return Level(level)
    far = [distance(mine, known) for mine, known in pairs]
    order = sorted(range(len(levels)), key=lambda level: far[level].size)
    nearest = far[order[0]]
    if nearest.size <= half_width:
        if len(order) > 1 and far[order[1]].size < 2 * nearest.size:
            return Level(None, why="as near to one level as to another")
        return Level(order[0])
    if nearest.size - nearest.error > half_width:
        return Level(None, new=True)
    # Beyond the band, but perhaps not really. Clear all the same if everything else is much further away.
    if len(order) > 1 and far[order[1]].size - far[order[1]].error > 3 * (nearest.size + nearest.error):
        return Level(order[0])
    spread = f"{100 * math.expm1(nearest.mean):+.1f} % ± {100 * nearest.error:.1f}"
    return Level(None, why=f"the seeds disagree: {spread} from the nearest level")
