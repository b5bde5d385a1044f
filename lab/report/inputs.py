"""Stored results as the formats get them: the raw record, a copy that is safe to show, and the folder behind both."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from lab.bisection import answer, session
from lab.bisection.answer import Answer, Culprit
from lab.bisection.commit_range import History
from lab.bisection.commit_status import RangeCommit, range_commits
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
        """The result with its strings made visible."""
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
        """True if there is more than one."""
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
        """The answer with its strings made visible."""
        return visible_record(self.raw)

    @cached_property
    def history(self) -> History:
        """The whole range."""
        return visible_record(records.load(self.folder / session.HISTORY, History))

    @cached_property
    def commits(self) -> list[RangeCommit]:
        """The status of every commit."""
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
        """The matrix with its strings made visible."""
        return visible_record(self.raw)


Stored = Comparisons | StoredBisection | StoredMatrix


def open_stored(references: Sequence[str], *, anyway: bool = False) -> Stored:
    """Open one result of any kind, or several comparisons (see `open_comparisons`)."""
    folder = result_folders.open_folder(references[0])
    kind = result_folders.kind(folder)
    if len(references) == 1 and kind == session.KIND:
        return open_bisection(folder)
    if len(references) == 1 and kind == matrix_results.KIND:
        return open_matrix(folder)
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


def open_matrix(folder: Path) -> StoredMatrix:
    """The finished matrix in a folder."""
    return StoredMatrix(raw=matrix_results.load_result(folder), folder=folder)
