"""Why a case of a stored result differs: functions and kernel counters of both arms, as one answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import explain, profiles, records
from lab.explain import Cost, Explanation
from lab.mechanisms import Mechanism, mechanisms
from lab.progress import Meter
from lab.results import AbResult, CaseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """One case explained. machine, model: what cycles were modelled by."""

    result: AbResult
    case: CaseResult
    explanation: Explanation
    mechanisms: list[Mechanism]
    machine: str
    model: str
    cost: Cost

    @property
    def title(self) -> str:
        """The case and its arms in words."""
        return f"{self.case.workload}:{self.case.case}, {self.result.base.spec} against {self.result.test.spec}"

    def document(self) -> dict[str, Any]:
        """The answer as `lab explain --json` prints it."""
        return {
            **records.plain(self.explanation),
            "schema": "lab.explain/1",
            "result": self.result.result,
            "workload": self.case.workload,
            "case": self.case.case,
            "machine": self.machine,
            "model": self.model,
            "mechanisms": records.plain(self.mechanisms),
        }


def find(
    folder: Path,
    result: AbResult,
    case: str | None = None,
    *,
    machine: str | None = None,
    model: str | None = None,
    cost: Cost = "cycles",
    jobs: int,
    meter: Meter,
) -> Why:
    """Explain one case of a finished result: the one named, else the one that changed most.

    machine, model: of the cost model; None for what the result was measured with, or the whole model.
    """
    chosen = profiles.choose(result, case)
    found = profiles.collect(folder, chosen, machine=machine, model=model, jobs=jobs, meter=meter)
    explanation = explain.explain(found.base, found.test, cost=cost)
    kept = profiles.Remembered(
        workload=chosen.workload,
        case=chosen.case,
        machine=found.machine,
        model=found.model,
        cost=cost,
        explanation=explanation,
    )
    profiles.remember(folder, kept)
    return Why(
        result=result,
        case=chosen,
        explanation=explanation,
        mechanisms=mechanisms([*chosen.metrics, *profiles.kernel_counters(folder, chosen)]),
        machine=found.machine,
        model=found.model,
        cost=cost,
    )
