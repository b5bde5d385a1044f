"""The state of a search as its status, log, answer and proof need it, whether commits are computed or booted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from lab.bisection.answer import Culprit, OpenRange, OutcomeWord, Posterior, Step, Suspicion
from lab.bisection.commit_range import SPLIT, Candidate, History
from lab.bisection.journal import Reading
from lab.bisection.plan import BisectPlan
from lab.stats.verdict import Comparison, Metric, Outcome, percent
from lab.stats.whole import Whole


class Remaining(NamedTuple):
    """An estimate of the remaining measurements.

    next: the commit to measure next; None when the search is over.
    bits: the information still missing, in live mode.
    """

    next: Candidate | None
    steps: int
    seconds: float | None = None
    bits: float | None = None


class SearchState(ABC):
    """The knowledge about a range by the events of a journal. Commits are named by their ids."""

    plan: BisectPlan
    history: History
    metric: Metric

    @property
    def size(self) -> int:
        """The number of places that the change may be in; 0 of files or hunks that nobody has looked at."""
        return 0 if self.history.kind in SPLIT else len(self.history.candidates)

    @property
    @abstractmethod
    def ends(self) -> Comparison | None:
        """The new end against the old one; None when there are no numbers of both."""

    @property
    @abstractmethod
    def threshold(self) -> float:
        """The smallest relative change that the search tells from none; a proof asks for no more."""

    @property
    @abstractmethod
    def tried(self) -> Sequence[str]:
        """The commits between the ends that were built or measured, in the order of the first try."""

    @abstractmethod
    def reading(self, commit: str) -> Reading:
        """The measurement of a tried commit, or the way in which it fails."""

    @abstractmethod
    def likeness(self, commit: str) -> str:
        """The end that a tried commit is like, in the plan's terms."""

    @abstractmethod
    def ratio(self, reading: Reading) -> float | None:
        """A reading over the old end."""

    @property
    def ends_instructions(self) -> Comparison | None:
        """The count of instructions of the new end against the old one, beside modelled cycles."""
        return None

    @property
    def ends_whole(self) -> Whole | None:
        """The whole cost at the ends, beside modelled cycles."""
        return None

    def instructions(self, reading: Reading) -> Comparison | None:
        """The count of instructions of a reading against the old end, beside modelled cycles."""
        return None

    @abstractmethod
    def term(self, commit: str) -> str:
        """The word for a tried commit in `git bisect`: one of the plan's two, or skip."""

    @abstractmethod
    def describe_ends(self) -> list[str]:
        """Lines about the ends, for people."""

    @abstractmethod
    def describe(self, commit: str) -> str:
        """A tried commit in a few words."""

    @abstractmethod
    def describe_changes(self) -> list[str]:
        """Lines about the places of the changes, for people."""

    @abstractmethod
    def open_changes(self) -> list[OpenRange]:
        """The ranges that are known to hold a change."""

    @abstractmethod
    def remaining(self) -> Remaining:
        """An estimate of the remaining measurements."""

    @abstractmethod
    def culprits(self) -> list[Culprit]:
        """The changes that are found so far."""

    @abstractmethod
    def outcome(self, culprits: Sequence[Culprit], *, out_of_time: bool) -> tuple[OutcomeWord, str]:
        """The outcome of a search that found these changes, and the reason for it."""

    def suspicions(self) -> list[Suspicion]:
        """The likeliest places of the culprit; in live mode only."""
        return []

    def posterior(self) -> Posterior | None:
        """The end of a search in live mode."""
        return None

    def step(self, commit: str) -> Step:
        """A tried commit, for the answer."""
        reading = self.reading(commit)
        count = self.instructions(reading)
        return Step(
            commit=commit,
            title=self.history.find(commit).title,
            decision=f"untestable: {reading.untestable}" if reading.untestable else self.likeness(commit),
            ratio=self.ratio(reading),
            instructions=count.ratio if count else None,
            values=reading.values,
            build=reading.kernel,
            same_as=reading.same_as,
            why=reading.why,
            log=reading.log,
            build_s=reading.build_s,
            run_s=reading.run_s,
        )

    def between(self, commits: Sequence[str]) -> list[str]:
        """The commits that are not ends."""
        return [commit for commit in commits if commit not in (self.history.old.id, self.history.new.id)]

    def culprit(
        self,
        *,
        at: int,
        suspects: Sequence[int],
        untested: Sequence[int],
        before: int,
        effect: Comparison | None,
        ratio: float | None,
        confidence: float,
    ) -> Culprit:
        """A change in the history: `at` shows it first, one of the suspects made it."""
        history, commit = self.history, self.history[at]
        direction = None
        if ratio is not None and self.metric.better != "neither":
            direction = Outcome.IMPROVEMENT if (ratio > 1) == (self.metric.better == "higher") else Outcome.REGRESSION
        return Culprit(
            commit=commit.id,
            title=commit.title,
            author=commit.author,
            date=commit.date,
            suspects=[history[number].id for number in suspects],
            untested=[history[number].id for number in untested],
            before=history[before].id,
            effect=effect,
            direction=direction,
            confidence=confidence,
            merge=commit.merge,
            outside_paths=bool(history.paths) and commit.id == history.new.id,
        )

    def improved(self, ratio: float | None) -> str:
        """The reason why a search for a change for the worse names no commit when the new end is better."""
        old, new = self.plan.terms
        return (
            f"the {new} end is better than the {old} one ({percent(ratio)}); to find the improvement, call the ends "
            "--old and --new"
        )
