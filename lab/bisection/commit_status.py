"""The status of every commit of a range once a bisection is over: measured, inferred, untestable or suspected. Pure.

It follows from the stored answer and the range alone, so it is the same for both modes of search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from lab.bisection.answer import Answer, Step
from lab.bisection.commit_range import Candidate, History
from lab.bisection.exact_search import OLD


class CommitStatus(StrEnum):
    """The status of one commit. An answer's `terms` are the user's words for the old and the new end."""

    OLD = "like the old end"
    NEW = "like the new end"
    NEITHER = "like neither end"
    UNCLEAR = "not clear"
    UNTESTABLE = "untestable"
    SUSPECT = "not measured, may be the culprit"
    OPEN = "not measured"


LEVELS = (CommitStatus.OLD, CommitStatus.NEW, CommitStatus.NEITHER)
"""The statuses of commits whose values are known, or inferred."""


class RangeCommit(NamedTuple):
    """A commit of the range.

    number: its place in the history, from 1 on; 0 is the old end.
    measured: False for an inferred status.
    order: its place among the measurements, from 1 on; None for a commit that was not tried, and for the ends.
    step: its reading, if it has an order.
    chance: the probability of being the culprit of a change.
    culprit: True for the one commit that a change is blamed on.
    """

    number: int
    candidate: Candidate
    status: CommitStatus
    measured: bool
    order: int | None
    step: Step | None
    chance: float
    culprit: bool


def range_commits(answer: Answer, history: History) -> list[RangeCommit]:
    """All commits in order, the old end first."""
    steps = {step.commit: (i, step) for i, step in enumerate(answer.path, start=1)}
    measured = _measured(answer, history)
    inferred = _inferred(history, measured)
    chances = culprit_chances(answer, history)
    suspects = {commit for change in answer.changes if not change.is_single for commit in change.suspects}
    culprits = {change.commit for change in answer.changes if change.is_single}
    commits = []
    for number, candidate in enumerate([history.old, *history.candidates]):
        order, step = steps.get(candidate.id, (None, None))
        status = measured.get(candidate.id)
        is_measured = status is not None
        if status is None:
            status = CommitStatus.SUSPECT if candidate.id in suspects else inferred[number]
        chance = chances.get(candidate.id, 0.0)
        commits.append(
            RangeCommit(number, candidate, status, is_measured, order, step, chance, candidate.id in culprits)
        )
    return commits


def culprit_chances(answer: Answer, history: History) -> dict[str, float]:
    """The chance of each commit to be a culprit: the same for all that were not told apart."""
    chances: dict[str, float] = {}
    if answer.live is not None:
        names = [history.old.id, *(candidate.id for candidate in history.candidates)]
        for gap in answer.live.suspicions:
            suspects = names[names.index(gap.after) + 1 : names.index(gap.up_to) + 1]
            chances |= dict.fromkeys(suspects, gap.probability / max(len(suspects), 1))
        return chances
    for change in answer.changes:
        chances |= dict.fromkeys(change.suspects, change.confidence / len(change.suspects))
    return chances


def _measured(answer: Answer, history: History) -> dict[str, CommitStatus]:
    """The status of both ends and of the commits that were tried."""
    alike = answer.ends is not None and not answer.ends.is_change
    ends = {history.old.id: CommitStatus.OLD, history.new.id: CommitStatus.OLD if alike else CommitStatus.NEW}
    return ends | {step.commit: _status(step, answer.terms) for step in answer.path}


def _status(step: Step, terms: tuple[str, str]) -> CommitStatus:
    """A step's decision; in live mode the probability follows the text."""
    old, new = terms
    statuses = {
        "untestable": CommitStatus.UNTESTABLE, "not": CommitStatus.UNCLEAR, "panics": CommitStatus.NEW,
        f"like {old}": CommitStatus.OLD, f"like {new}": CommitStatus.NEW, "like both": CommitStatus.OLD,
        "like neither": CommitStatus.NEITHER,
    }  # fmt: skip
    return next((status for text, status in statuses.items() if step.decision.startswith(text)), CommitStatus.UNCLEAR)


def _inferred(history: History, measured: Mapping[str, CommitStatus]) -> Sequence[CommitStatus]:
    """The status that each commit's nearest measured ancestors have, if all of them agree."""
    graph = history.graph()
    behind: list[frozenset[CommitStatus]] = []
    for parents in graph.parents:
        statuses: frozenset[CommitStatus] = frozenset()
        for parent in parents:
            status = CommitStatus.OLD if parent == OLD else measured.get(history[parent].id)
            statuses |= {status} if status in LEVELS else behind[parent]
        behind.append(statuses)
    return [CommitStatus.OLD, *(next(iter(found)) if len(found) == 1 else CommitStatus.OPEN for found in behind)]


class Stretch(NamedTuple):
    """Neighbouring commits of one status, none of them tried; or a single commit."""

    commits: Sequence[RangeCommit]

    @property
    def first(self) -> RangeCommit:
        """The oldest of them."""
        return self.commits[0]

    @property
    def last(self) -> RangeCommit:
        """The newest of them."""
        return self.commits[-1]


def stretches(commits: Sequence[RangeCommit]) -> list[Stretch]:
    """The range with untried neighbours put together: it may have thousands of commits."""
    rows: list[list[RangeCommit]] = []
    for commit in commits:
        alone = commit.measured or commit.culprit
        if not alone and rows and _joins(rows[-1][-1], commit):
            rows[-1].append(commit)
        else:
            rows.append([commit])
    return [Stretch(row) for row in rows]


def _joins(before: RangeCommit, commit: RangeCommit) -> bool:
    return before.status == commit.status and not before.measured and not before.culprit
