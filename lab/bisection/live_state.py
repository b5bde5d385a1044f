"""What a journal of boots says about a range: the live search as it stands, brought back event by event. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from lab.bisection.acquisition import Costs
from lab.bisection.commit_range import History
from lab.bisection.exact_search import OLD
from lab.bisection.journal import Boot, Built, Event, Reading
from lab.bisection.live_search import Done, Duel, LiveSearch, Outcome, Part, Rules, Visit
from lab.bisection.plan import BisectPlan
from lab.stats.defaults import ALPHA
from lab.stats.evidence import Estimate
from lab.stats.posterior import Reading as Point
from lab.stats.verdict import Metric, percent

FIRST_GUESS = Costs(build_s=60.0, boot_s=10.0)
"""What a build and a boot are thought to cost before there was one; weighs as much as one of them."""

_BUILT_S = 1.0  # what took less was in the store


class LiveState:
    """A search over the candidates of a line, and what was spent on it.

    The search counts commits from 0, the old end, so candidate n of the history is its commit n + 1.
    """

    def __init__(self, plan: BisectPlan, history: History, metric: Metric, events: Iterable[Event] = ()) -> None:
        self.plan, self.history, self.metric = plan, history, metric
        last = len(history.candidates)
        ready = range(last + 1) if history.kind == "packages" else ()
        self.search = LiveSearch(last, costs=FIRST_GUESS, built=ready, rules=rules_of(plan))
        self.boots: list[Boot] = []
        self.skipped: dict[str, Reading] = {}
        self.kernels: dict[str, Built] = {}
        self._builds_s: list[float] = []
        for event in events:
            self.take(event)

    def number(self, commit: str) -> int:
        """A candidate's number in the search."""
        return self.history.number(commit) - OLD

    def name(self, number: int) -> str:
        """The candidate that the search has under a number."""
        return self.history[number + OLD].id

    def next(self) -> Visit | Done:
        """What to boot next, or the answer. The same until something is taken."""
        # From the events alone, and only ever before one is taken, so a replay chooses what was chosen.
        self.search.costs = self.costs
        step = self.search.next()
        if isinstance(step, Visit) and step.part is not Part.ENDS and self._improved:
            return self._wrong_way()
        return step

    def take(self, event: Event) -> None:
        """Something that happened. ValueError: a boot that was not asked for."""
        self.next()
        match event:
            case Built():
                self.kernels[event.commit] = event
                self._builds_s += [event.build_s] if event.build_s >= _BUILT_S else []
            case Boot():
                self.search.record(Point(self.number(event.commit), event.at_s, math.log(event.value)))
                self.boots.append(event)
            case Reading():
                self.search.skip(self.number(event.commit))
                self.skipped[event.commit] = event
                self._builds_s += [event.build_s] if event.build_s >= _BUILT_S else []

    def conclude(self, reason: str) -> Done:
        """The answer as far as it goes."""
        step = self.next()
        return step if isinstance(step, Done) else self.search.conclude(reason)

    @property
    def costs(self) -> Costs:
        """Seconds of a build and of a boot, as they were so far."""
        return Costs(
            build_s=_mean_with(FIRST_GUESS.build_s, self._builds_s),
            boot_s=_mean_with(FIRST_GUESS.boot_s, [boot.run_s for boot in self.boots]),
        )

    @property
    def build_s(self) -> float:
        """All builds together, those that failed too."""
        built, skipped = self.kernels.values(), self.skipped.values()
        return math.fsum([*(one.build_s for one in built), *(one.build_s for one in skipped)])

    @property
    def run_s(self) -> float:
        """All boots together."""
        return math.fsum(boot.run_s for boot in self.boots)

    def values(self, commit: str) -> list[float]:
        """The metric of each boot of a commit."""
        return [boot.value for boot in self.boots if boot.commit == commit]

    def pairs(self, part: Part, duel: Duel) -> tuple[list[float], list[float]]:
        """The finished blocks of a comparison of two commits: the old one's values, and the new one's."""
        old, new = (
            [boot.value for boot in self.boots if boot.part == part and boot.commit == self.name(number)]
            for number in (duel.old, duel.new)
        )
        count = min(len(old), len(new))
        first = count - len(duel.x)  # an earlier comparison of the same two may have been given up
        return old[first:count], new[first:count]

    def chance(self, commit: str) -> float | None:
        """The probability that a commit has the change in it; None before the ends were told apart."""
        if not self.search.differ():
            return None
        return float(self.search.belief.bad[self.number(commit)])

    @property
    def _improved(self) -> bool:
        """Whether the ends were called good and bad, and the bad one is the better one."""
        if not self.plan.worse_only or self.metric.better == "neither":
            return False
        return (self.search.ends.moments.mean > 0) == (self.metric.better == "higher")

    def _wrong_way(self) -> Done:
        old, new = self.plan.words
        effect = self.search.ends.effect(self.search.rules.alpha)
        return Done(
            outcome=Outcome.NO_CULPRIT,
            reason=f"the {new} end is better than the {old} one ({percent(math.exp(effect.value))}); to find what "
            "improved it, call the ends --old and --new",
            last_good=0,
            first_bad=self.search.last,
            suspects=(),
            probability=0.0,
            effect=Estimate(effect.value, effect.interval),
        )


def rules_of(plan: BisectPlan) -> Rules:
    """When a search of this plan believes what."""
    confidence = 1 - plan.alpha
    return Rules(
        confidence=confidence,
        hunch=min(Rules.hunch, confidence),
        alpha=min(ALPHA, plan.alpha),
        confirm_alpha=plan.alpha,
        margin=math.log1p(plan.threshold),
    )


def certainty(probability: float) -> str:
    """A probability as a percentage that never says 100 where it is not."""
    return f"{100 * probability:.1f} %" if probability < 0.9995 else "over 99.9 %"


def _mean_with(guess: float, seen: Sequence[float]) -> float:
    return (guess + math.fsum(seen)) / (1 + len(seen))
