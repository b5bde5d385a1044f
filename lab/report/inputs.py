"""Stored results as the formats get them: the raw record, a copy that is safe to show, and the folder behind both."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

from lab.bisection import answer, session
from lab.bisection.answer import Answer, Culprit, Step
from lab.bisection.commit_range import Candidate, History
from lab.bisection.exact_search import OLD
from lab.bisection.journal import safe_name
from lab.bisection.search import interim_answer
from lab.compare import matrix_results, result_folders, results
from lab.compare.matrix_results import MatrixResult
from lab.compare.plan import Plan
from lab.compare.results import AbResult, CaseResult
from lab.compare.runs import Run, load_all
from lab.core import records
from lab.core.errors import UserError
from lab.core.text import visible_record
from lab.kernels.architecture import of_machine


@dataclass(frozen=True, kw_only=True)
class StoredComparison:
    """One comparison. `raw` is as stored; in `result` every string is visible, so formats show that one."""

    raw: AbResult
    folder: Path

    @cached_property
    def result(self) -> AbResult:
        return visible_record(self.raw)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan; None if only the finished document was kept."""
        return records.find(self.folder / "plan.json", Plan)

    @cached_property
    def runs(self) -> list[Run]:
        """The records of all guests that were kept, by seed."""
        return sorted(load_all(self.folder), key=lambda run: (run.workload, run.seed, run.arm))

    @cached_property
    def _seeds(self) -> dict[tuple[str, str], list[int]]:
        arms: dict[tuple[str, str], dict[str, set[int]]] = {}
        for run in self.runs:
            for case in run.cases:
                arms.setdefault((run.workload, case), {}).setdefault(run.arm, set()).add(run.seed)
        return {key: sorted(set.intersection(*both.values())) for key, both in arms.items() if len(both) == 2}

    def seeds(self, case: CaseResult) -> list[int | None]:
        """The seed of each pair of a case's numbers; None if it is no longer known."""
        pairs = max((len(comparison.base) for comparison in case.metrics), default=0)
        seeds = self._seeds.get((case.workload, case.case), self.result.seeds)
        return list(seeds) if len(seeds) == pairs else [None] * pairs


@dataclass(frozen=True, kw_only=True)
class Comparisons:
    """Comparisons to be shown together. mark: a warning to show with all of their numbers; empty if they compare."""

    kind: ClassVar = "comparison"
    items: Sequence[StoredComparison]
    mark: str = ""

    @property
    def several(self) -> bool:
        return len(self.items) > 1

    @property
    def letters(self) -> list[str]:
        """A, B, C: short names of the results."""
        return [string.ascii_uppercase[i] if i < 26 else str(i + 1) for i in range(len(self.items))]


@dataclass(frozen=True, kw_only=True)
class StoredBisection:
    """One bisection. `raw` is as stored; every string of `answer` and `history` is visible."""

    kind: ClassVar = "bisection"
    raw: Answer
    folder: Path

    @cached_property
    def answer(self) -> Answer:
        return visible_record(self.raw)

    @cached_property
    def history(self) -> History:
        return visible_record(records.load(self.folder / session.HISTORY, History))

    @cached_property
    def commits(self) -> list[RangeCommit]:
        return range_commits(self.answer, self.history)

    def proof(self, change: Culprit) -> StoredComparison | None:
        """The stored comparison of a culprit with its parent, by fresh seeds."""
        name = self.history[self.history.number(change.commit)].name
        folder = self.folder / "proof" / safe_name(name) / "parent"
        if not result_folders.is_finished(folder):
            return None
        return StoredComparison(raw=result_folders.load_result(folder), folder=folder)


@dataclass(frozen=True, kw_only=True)
class StoredMatrix:
    """One matrix. `raw` is as stored; in `result` every string is visible."""

    kind: ClassVar = "matrix"
    raw: MatrixResult
    folder: Path

    @cached_property
    def result(self) -> MatrixResult:
        return visible_record(self.raw)


Stored = Comparisons | StoredBisection | StoredMatrix


def open_stored(references: Sequence[str], *, anyway: bool = False) -> Stored:
    """Open one result of any kind, or several comparisons (see `open_comparisons`)."""
    folder = result_folders.open_folder(references[0])
    kind = result_folders.kind(folder)
    if len(references) == 1 and kind == session.KIND:
        return open_bisection(folder)
    if len(references) == 1 and kind == matrix_results.KIND:
        return StoredMatrix(raw=matrix_results.load_result(folder), folder=folder)
    return open_comparisons(references, anyway=anyway)


def open_comparisons(references: Sequence[str], *, anyway: bool = False) -> Comparisons:
    """Open comparisons; `UserError` if their environments differ, unless `anyway`."""
    folders = list(dict.fromkeys(result_folders.open_folder(reference) for reference in references))
    items = [StoredComparison(raw=result_folders.load_result(folder), folder=folder) for folder in folders]
    return Comparisons(items=items, mark=_mark(items, anyway=anyway))


def _mark(items: Sequence[StoredComparison], *, anyway: bool) -> str:
    environments = [item.result.environment for item in items]
    if len(names := {of_machine(environment.machine).name for environment in environments}) > 1:
        return f"different architectures ({', '.join(sorted(names))}): directions compare, counts do not"
    differing = ", ".join(results.differing(environments))
    if not differing:
        return ""
    if not anyway:
        raise UserError(
            f"the environments differ ({differing}), so the numbers do not compare one by one",
            hint="repeat one in the other's environment, or show them --anyway",
        )
    return f"ENVIRONMENTS DIFFER ({differing}): numbers of different results do not compare one by one"


def open_bisection(folder: Path) -> StoredBisection:
    """The bisection in a folder; of an unfinished one, its findings so far."""
    finished = (folder / answer.FILE).exists()
    so_far = None if finished else interim_answer(session.load(folder))
    return StoredBisection(raw=so_far or answer.load(folder), folder=folder)


# ---- the status of every commit of a range: from the stored answer and the range alone, the same for both modes


class CommitStatus(StrEnum):
    """The status of one commit. An answer's `terms` are the user's words for the old and the new end."""

    OLD = "like the old end"
    NEW = "like the new end"
    NEITHER = "like neither end"
    UNCLEAR = "not clear"
    UNTESTABLE = "untestable"
    SUSPECT = "not measured, may be the culprit"
    OPEN = "not measured"

    @property
    def style(self) -> str:
        """The class that gives the status its colour on a page."""
        return self.name.lower()


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


def stretches(commits: Sequence[RangeCommit]) -> list[list[RangeCommit]]:
    """The range with untried neighbours of one status put together: it may have thousands of commits."""
    rows: list[list[RangeCommit]] = []
    for commit in commits:
        alone = commit.measured or commit.culprit
        before = rows[-1][-1] if rows else commit
        if not rows or alone or before.measured or before.culprit or before.status != commit.status:
            rows.append([commit])
        else:
            rows[-1].append(commit)
    return rows
