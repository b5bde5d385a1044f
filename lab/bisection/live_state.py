"""The state of a search in live mode: the events of a journal, played back into the search. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from lab.bisection.acquisition import Costs
from lab.bisection.answer import Culprit, OpenRange, OutcomeWord, Posterior, Proof, Suspicion, certainty
from lab.bisection.commit_range import Candidate, History
from lab.bisection.exact_search import OLD
from lab.bisection.journal import Boot, BuiltKernel, Event, Reading
from lab.bisection.live_search import (
    LiveSearch,
    NextBoots,
    PairedComparison,
    Phase,
    Result,
    SearchOutcome,
    StoppingRules,
)
from lab.bisection.plan import BisectPlan
from lab.bisection.search_state import Remaining, SearchState
from lab.stats import verdict
from lab.stats.defaults import ALPHA
from lab.stats.posterior import Image
from lab.stats.posterior import Reading as Point
from lab.stats.verdict import Comparison, Metric, percent

FIRST_GUESS = Costs(build_s=60.0, boot_s=10.0)
"""The costs before the first build and boot; afterwards it weighs as much as one of them."""

_BUILT_S = 1.0  # a kernel that took less was in the store
_SURE = 0.95  # certain enough for a word to git
_GAPS = 10  # in an answer
_SHOWN = 5  # in the status


class LiveState(SearchState):
    """The state by boots of the candidates of a line.

    The search counts commits from 0, the old end, so candidate n of the history is its commit n + 1.
    """

    def __init__(self, plan: BisectPlan, history: History, metric: Metric, events: Iterable[Event] = ()) -> None:
        self.plan, self.history, self.metric = plan, history, metric
        last = len(history.candidates)
        ready = range(last + 1) if history.kind == "packages" else ()
        rules = dataclasses.replace(rules_of(plan), layouts=history.kind != "packages")
        self.search = LiveSearch(last, costs=FIRST_GUESS, built=ready, rules=rules)
        self.boots: list[Boot] = []
        self.skipped: dict[str, Reading] = {}
        self.kernels: dict[str, BuiltKernel] = {}
        self._builds_s: list[float] = []
        for event in events:
            self.take(event)

    def number(self, commit: str) -> int:
        """A candidate's number in the search."""
        return self.history.number(commit) - OLD

    def candidate(self, number: int) -> Candidate:
        """The candidate that the search has under a number."""
        return self.history[number + OLD]

    def name(self, number: int) -> str:
        return self.candidate(number).id

    def next(self) -> NextBoots | Result:
        """The boots to make next, or the answer. The same until something is taken."""
        # The costs follow from the events so far, so a replay chooses the same boots.
        self.search.costs = self.costs
        step = self.search.next()
        if isinstance(step, NextBoots) and step.phase is not Phase.ENDS and self._is_better:
            reason = self.improved(math.exp(self.search.ends.moments.mean))
            return self.search.without_culprit(SearchOutcome.NO_CULPRIT, reason)
        return step

    def take(self, event: Event) -> None:
        self.next()
        match event:
            case BuiltKernel():
                if not event.layout:
                    self.kernels[event.commit] = event
                self._builds_s += [event.build_s] if event.build_s >= _BUILT_S else []
            case Boot():
                image = Image(self.number(event.commit), event.layout)
                self.search.follow(Phase(event.phase), image)
                self.search.record(Point(image.commit, event.at_s, math.log(event.value), image.layout))
                self.boots.append(event)
            case Reading() if event.layout:
                self.search.keep_layout()
            case Reading():
                self.search.skip(self.number(event.commit))
                self.skipped[event.commit] = event
                self._builds_s += [event.build_s] if event.build_s >= _BUILT_S else []

    def conclude(self, reason: str) -> Result:
        """End the search: the answer so far."""
        step = self.next()
        return step if isinstance(step, Result) else self.search.conclude(reason)

    @property
    def costs(self) -> Costs:
        """The mean seconds of a build and of a boot so far."""
        return Costs(
            build_s=_mean_with(FIRST_GUESS.build_s, self._builds_s),
            boot_s=_mean_with(FIRST_GUESS.boot_s, [boot.run_s for boot in self.boots]),
        )

    def chance(self, commit: str) -> float | None:
        """The probability that a commit has the change; None before the ends were told apart."""
        if not self.search.differ():
            return None
        return float(self.search.belief.bad[self.number(commit)])

    @property
    def _is_better(self) -> bool:
        """True if the new end is the better one, though only a change for the worse is looked for."""
        if not self.plan.worse_only or self.metric.better == "neither":
            return False
        return (self.search.ends.moments.mean > 0) == (self.metric.better == "higher")

    # ---- for status, log and answer

    @property
    def ends(self) -> Comparison | None:
        """The new end against the old one, by their pairs of boots."""
        return self._compare(Phase.ENDS, self.search.ends, ALPHA)

    def _compare(self, phase: Phase, comparison: PairedComparison, alpha: float) -> Comparison | None:
        """The verdict on the full blocks of a comparison; None before there is one."""
        if not comparison.x:
            return None
        old, new = (
            [
                boot.value
                for boot in self.boots
                if (boot.phase, boot.commit, boot.layout) == (phase, self.name(image.commit), image.layout)
            ]
            for image in (comparison.old, comparison.new)
        )
        count = min(len(old), len(new))
        first = count - len(comparison.x)  # an earlier comparison of the same two may have been given up
        return verdict.compare_metric(
            self.metric, old[first:count], new[first:count], threshold=self.plan.threshold, alpha=alpha, min_blocks=4,
            exact=False,
        )  # fmt: skip

    @property
    def threshold(self) -> float:
        return self.plan.threshold

    @property
    def tried(self) -> list[str]:
        return self.between(list(dict.fromkeys([*self.kernels, *self.skipped])))

    def reading(self, commit: str) -> Reading:
        boots = [boot for boot in self.boots if boot.commit == commit]
        reading = self.skipped.get(commit) or Reading(commit=commit, values=[boot.value for boot in boots])
        if built := self.kernels.get(commit):
            reading = replace(reading, kernel=built.kernel, build_s=built.build_s)
        return replace(reading, run_s=round(math.fsum(boot.run_s for boot in boots), 3))

    def likeness(self, commit: str) -> str:
        """The end that a commit is like, and how sure that is."""
        chance = self.chance(commit)
        if chance is None:
            return "not known yet"
        old, new = self.plan.terms
        return f"like {new} ({certainty(chance)})" if chance > 0.5 else f"like {old} ({certainty(1 - chance)})"

    def ratio(self, reading: Reading) -> float | None:
        """The geometric mean of the boots over that of the old end's."""
        old = self.reading(self.history.old.id).values
        return math.exp(_mean_log(reading.values) - _mean_log(old)) if reading.values else None

    def term(self, commit: str) -> str:
        """A commit is skipped unless it is as good as certain."""
        chance = None if commit in self.skipped else self.chance(commit)
        return "skip" if chance is None or 1 - _SURE < chance < _SURE else self.plan.terms[int(chance > 0.5)]

    def describe_ends(self) -> list[str]:
        """A line with the difference between the ends so far."""
        ends, (old, new) = self.search.ends, self.plan.terms
        if not ends.x:
            return []
        differ = self.search.differ()
        state = "" if differ else ", not told apart yet" if differ is None else ", alike"
        by_layout = self.plan.layouts_sd
        known = f"; layouts alone differ by {100 * math.expm1(by_layout):.2g} % (sd)" if by_layout else ""
        return [f"ends: {new} against {old} {percent(math.exp(ends.moments.mean))}, {len(ends.x)} pairs{state}{known}"]

    def describe(self, commit: str) -> str:
        reading = self.reading(commit)
        if reading.untestable:
            return reading.failure
        return f"{self.likeness(commit)}, {len(reading.values)} boot{'s' * (len(reading.values) != 1)}"

    def describe_changes(self) -> list[str]:
        """Lines with the likeliest places of the change, once the ends differ."""
        lines = []
        for place in self.suspicions()[:_SHOWN] if self.search.differ() else []:
            up_to = self.history.find(place.up_to).name
            commits = f"{place.commits} {self.history.kind} up to {up_to}" if place.commits > 1 else up_to
            lines.append(f"    {certainty(place.probability)} {commits}")
        return lines

    def open_changes(self) -> list[OpenRange]:
        """The likeliest place of the change, once the ends differ."""
        if not self.search.differ():
            return []
        low, high, _ = self.search.outlook().gaps[0]
        return [OpenRange(candidates=high - low, first=self.candidate(low + 1).name, last=self.candidate(high).name)]

    def suspicions(self) -> list[Suspicion]:
        return [
            Suspicion(after=self.name(low), up_to=self.name(high), commits=high - low, probability=round(chance, 6))
            for low, high, chance in self.search.outlook().gaps
        ]

    def remaining(self) -> Remaining:
        """An estimate by the posterior."""
        step, outlook = self.next(), self.search.outlook()
        return Remaining(
            next=self.candidate(step.boots[0].commit) if isinstance(step, NextBoots) else None,
            steps=math.ceil(outlook.bits_left),
            seconds=outlook.seconds_left,
            bits=outlook.bits_left,
        )

    def culprits(self) -> list[Culprit]:
        """The change that the search has found; this ends the search."""
        result = self.conclude("")
        if not result.suspects:
            return []
        proof = self._fresh_boots(result) if result.outcome in (SearchOutcome.CONFIRMED, SearchOutcome.FOUND) else None
        change = self.culprit(
            at=result.first_bad + OLD,
            suspects=[number + OLD for number in result.suspects],
            untested=[number + OLD for number in result.suspects if number in self.search.untestable],
            before=result.last_good + OLD,
            effect=proof.fresh if proof else None,
            ratio=math.exp(result.effect.value),
            confidence=result.probability,
        )
        return [replace(change, proof=proof)]

    def _fresh_boots(self, result: Result) -> Proof:
        """The comparison of both neighbours by boots that the search did not have."""
        comparison = self.search.confirming
        fresh = self._compare(Phase.CONFIRM, comparison, self.plan.alpha) if comparison else None
        parent, image = (self.kernels[self.name(number)].image for number in (result.last_good, result.first_bad))
        same = parent == image
        return Proof(
            confirmed=result.outcome is SearchOutcome.CONFIRMED and not same,
            same_image=same,
            fresh=fresh,
            layout=comparison.new.layout if comparison else 0,
        )

    def outcome(self, culprits: Sequence[Culprit], *, out_of_time: bool) -> tuple[OutcomeWord, str]:
        """The probability at the end of the search, unless both neighbours have one kernel."""
        result = self.conclude("")
        if result.outcome is SearchOutcome.NO_CULPRIT:
            return "undecided" if out_of_time else "no culprit", result.reason
        if result.outcome is SearchOutcome.UNDECIDED or not culprits:
            return "undecided", result.reason
        (change,) = culprits
        if change.proof and change.proof.same_image:
            return "undecided", "the kernels of both neighbours are the same, byte for byte: one of them was misread"
        reason = f"{certainty(result.probability)} sure{f'; {result.reason}' if result.reason else ', and confirmed'}"
        if not change.is_single:
            return "range", f"{reason}; the other {self.history.kind} of the range cannot be tested"
        return "found", reason

    def posterior(self) -> Posterior:
        result = self.conclude("")
        return Posterior(
            outcome=result.outcome,
            probability=result.probability,
            boots=len(self.boots),
            kernels=len({(boot.commit, boot.layout) for boot in self.boots}),
            effect=math.exp(result.effect.value),
            noise=math.expm1(self.search.belief.noise) if self.search.differ() else None,
            layouts=math.expm1(self.search.belief.own_sd) if self.search.differ() else None,
            suspicions=self.suspicions()[:_GAPS],
        )


def rules_of(plan: BisectPlan) -> StoppingRules:
    confidence = 1 - plan.alpha
    return StoppingRules(
        confidence=confidence,
        hunch=min(StoppingRules.hunch, confidence),
        alpha=min(ALPHA, plan.alpha),
        confirm_alpha=plan.alpha,
        threshold=plan.threshold,
        layouts_sd=plan.layouts_sd,
    )


def _mean_log(values: Sequence[float]) -> float:
    return math.fsum(map(math.log, values)) / len(values)


def _mean_with(guess: float, seen: Sequence[float]) -> float:
    return (guess + math.fsum(seen)) / (1 + len(seen))
