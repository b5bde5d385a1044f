"""What the formats are given: finished results, made safe to show, with the folder behind each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lab import results
from lab.core import records
from lab.core.errors import UserError
from lab.core.text import visible_record
from lab.results import AbResult, CaseResult, Plan
from lab.runs import Run


@dataclass(frozen=True, kw_only=True)
class Report:
    """One result. `raw` is as stored; in `result` every string is visible, so formats show that one."""

    raw: AbResult
    folder: Path

    @cached_property
    def result(self) -> AbResult:
        """The result with its strings made visible."""
        return visible_record(self.raw)

    @cached_property
    def plan(self) -> Plan | None:
        """What was asked for; None where only the finished document was kept."""
        path = self.folder / "plan.json"
        return records.load(path, Plan) if path.is_file() else None

    @cached_property
    def runs(self) -> list[Run]:
        """The records of all guests that were kept, by seed."""
        found = [records.load(path, Run) for path in sorted((self.folder / "runs").glob("*.json"))]
        return sorted(found, key=lambda run: (run.workload, run.seed, run.arm))

    @cached_property
    def _seeds(self) -> dict[tuple[str, str], list[int]]:
        arms: dict[tuple[str, str], dict[str, set[int]]] = {}
        for run in self.runs:
            for case in run.cases:
                arms.setdefault((run.workload, case), {}).setdefault(run.arm, set()).add(run.seed)
        return {key: sorted(set.intersection(*both.values())) for key, both in arms.items() if len(both) == 2}

    def seeds(self, case: CaseResult) -> list[int | None]:
        """The seed of each pair of a case's numbers; None where it is not known any more."""
        pairs = max((len(comparison.base) for comparison in case.metrics), default=0)
        found = self._seeds.get((case.workload, case.case), self.result.seeds)
        return list(found) if len(found) == pairs else [None] * pairs


@dataclass(frozen=True, kw_only=True)
class Reports:
    """Results to be shown together. `mark` is what must be said wherever they are: empty if they compare."""

    items: Sequence[Report]
    mark: str = ""

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self.items) > 1


def open_reports(references: Sequence[str], *, anyway: bool = False) -> Reports:
    """The results of those ids; `UserError` where their environments differ, unless that is wanted anyway."""
    folders = list(dict.fromkeys(results.open_folder(reference) for reference in references))
    items = [Report(raw=results.load_result(folder), folder=folder) for folder in folders]
    return Reports(items=items, mark=_mark(items, anyway=anyway))


def _mark(items: Sequence[Report], *, anyway: bool) -> str:
    fingerprints = list(dict.fromkeys(item.result.environment.fingerprint for item in items))
    if len(fingerprints) < 2:
        return ""
    differing = ", ".join(differences(items))
    if not anyway:
        raise UserError(
            f"the environments differ ({differing}), so the numbers do not compare one by one",
            hint="repeat one in the other's environment, or show them --anyway",
        )
    return f"ENVIRONMENTS DIFFER ({differing}): numbers of different results do not compare one by one"


def differences(items: Sequence[Report]) -> list[str]:
    """The names of what differs around the results, the fingerprint aside."""
    around = [records.plain(item.result.environment) for item in items]
    names = [name for name in around[0] if name not in ("fingerprint", "lab")]
    return [name for name in names if any(one[name] != around[0][name] for one in around)] or ["fingerprint"]
