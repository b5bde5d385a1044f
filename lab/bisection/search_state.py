"""The state of a search as its status, log, answer and proof need it, whether commits are computed or booted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from lab.bisection.answer import Culprit, Open, OutcomeWord, Posterior, Proof, Step, Suspicion
from lab.bisection.commit_range import Candidate, History
from lab.stats.verdict import Comparison, Metric, Outcome, percent


class Remaining(NamedTuple):
    """An estimate of what is left to measure. bits: of information still missing, in live mode.

    next: the commit to measure next; None when the search is over.
    """

    next: Candidate | None
    steps: int
    seconds: float | None = None
    bits: float | None = None


class SearchState(Protocol):
    """What the events of a journal show about a range. Commits are named by their ids."""

    @property
    def metric(self) -> Metric:
        """The metric that decides."""

    @property
    def ends(self) -> Comparison | None:
        """The new end against the old one; None when there are no numbers of both."""

    @property
    def tried(self) -> Sequence[str]:
        """The commits between the ends that were built or measured, in the order of the first try."""

    @property
    def untestable(self) -> Collection[str]:
        """The commits that do not build, boot or survive the workload."""

    def describe_ends(self) -> list[str]:
        """Lines about the ends, for people."""

    def describe(self, commit: str) -> str:
        """A tried commit in a few words."""

    def describe_changes(self) -> list[str]:
        """Lines about the places of the changes, for people."""

    def term(self, commit: str) -> str:
        """The word for a tried commit in `git bisect`: one of the plan's two, or skip."""

    def step(self, commit: str) -> Step:
        """A tried commit, for the answer."""

    def open_changes(self) -> list[Open]:
        """The ranges that are known to hold a change."""

    def suspicions(self) -> list[Suspicion]:
        """The likeliest places of the culprit, in live mode."""

    def remaining(self) -> Remaining:
        """What is left to measure."""

    def culprits(self) -> list[Culprit]:
        """The changes that are found so far."""

    def outcome(self, culprits: Sequence[Culprit], *, out_of_time: bool) -> tuple[OutcomeWord, str]:
        """The outcome of a search that found these changes, and the reason for it."""

    def posterior(self) -> Posterior | None:
        """The end of a search in live mode."""


def culprit(
    history: History,
    metric: Metric,
    *,
    at: int,
    suspects: Sequence[int],
    untested: Sequence[int],
    before: int,
    effect: Comparison | None,
    ratio: float | None,
    confidence: float,
    proof: Proof | None = None,
) -> Culprit:
    """A change in the history: `at` shows it first, one of `suspects` made it."""
    commit = history[at]
    return Culprit(
        commit=commit.id,
        title=commit.title,
        author=commit.author,
        date=commit.date,
        suspects=[history[number].id for number in suspects],
        untested=[history[number].id for number in untested],
        before=history[before].id,
        effect=effect,
        direction=_direction(metric, ratio),
        confidence=confidence,
        merge=commit.merge,
        outside_paths=bool(history.paths) and commit.id == history.new.id,
        proof=proof,
    )


def _direction(metric: Metric, ratio: float | None) -> Outcome | None:
    """Whether a change by this ratio is for the better or the worse; None for a metric without a better side."""
    if ratio is None or metric.better == "neither":
        return None
    return Outcome.IMPROVEMENT if (ratio > 1) == (metric.better == "higher") else Outcome.REGRESSION


def better_end(old: str, new: str, ratio: float | None) -> str:
    """The reason why a search for what made it worse names no commit."""
    return (
        f"the {new} end is better than the {old} one ({percent(ratio)}); to find what improved it, call the ends "
        "--old and --new"
    )
