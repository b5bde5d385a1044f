"""What `lab matrix` stores: its plan and its finished document, in a result folder like that of `lab ab`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lab import results
from lab.axes import Axis
from lab.core import records
from lab.core.records import Record
from lab.kernels.resolve import KernelSpec
from lab.results import ArmResult, Measuring, ResultEnvironment
from lab.stats.verdict import Better, Comparison, Outcome

KIND = "matrix"


class MatrixArmPlan(Record, frozen=True, kw_only=True):
    """One arm as resolved. name: what its files are called."""

    label: str
    name: str
    at: tuple[str, ...]
    spec: KernelSpec


class MatrixPlan(Measuring, frozen=True, kw_only=True):
    """Everything that decides a matrix. The same plan gives the same numbers.

    kernels: the specs of the first axis, as they were asked for.
    """

    kind: Literal["matrix"] = "matrix"
    axes: list[Axis]
    kernels: list[str]
    arms: list[MatrixArmPlan]
    baseline: str
    cc: str
    metric: str | None = None


class MatrixArm(Record, frozen=True, kw_only=True):
    """One arm in the finished document. at: its value on each axis, in the order of the axes."""

    label: str
    at: tuple[str, ...]
    arm: ArmResult


class Cell(Record, frozen=True, kw_only=True):
    """One arm at one case.

    values: the metric by seed, as measured (None where it was not a number); mean: over the seeds that all arms
    with runs of this case have, so that what stands side by side is comparable.
    comparison: with the baseline arm; None for the baseline itself, and where there is nothing to compare.
    holm: whether a change is beyond chance over all cells, None where there is none.
    failed: why there is no number, or no more of them. means: every metric that the runs have.
    """

    arm: str
    workload: str
    case: str
    control: bool
    metric: str
    unit: str
    better: Better
    seeds: list[int]
    values: list[float | None]
    mean: float | None
    comparison: Comparison | None = None
    verdict: Outcome | None = None
    holm: bool | None = None
    failed: str | None = None
    means: dict[str, float]


class MatrixResult(Record, frozen=True, kw_only=True):
    """`lab matrix --json`: the finished document. Cells are by workload, case and arm, in that order."""

    schema: Literal["lab.matrix/1"] = "lab.matrix/1"
    mode: str
    threshold: float
    alpha: float
    axes: list[Axis]
    kernels: list[str]
    arms: list[MatrixArm]
    baseline: str
    environment: ResultEnvironment
    cells: list[Cell]
    summary: str
    started: str
    seconds: float
    result: str
    reproduce: str

    @property
    def failed(self) -> list[Cell]:
        """The cells that have no number because a guest failed."""
        return [cell for cell in self.cells if cell.failed]


def load_plan(folder: Path) -> MatrixPlan:
    """What a matrix was asked for."""
    results.require_kind(folder, KIND)
    return records.load(folder / "plan.json", MatrixPlan)


def load_result(folder: Path) -> MatrixResult:
    """A finished matrix."""
    results.require_kind(folder, KIND)
    return results.load_finished(folder, MatrixResult)
