"""The axes and arms of `lab matrix`, and its records: the plan and the finished document.

The result folder is like that of `lab ab`. The axes are kernels and settings, and every combination is an arm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count, product
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from lab.compare import result_folders, results
from lab.compare.plan import ArmPlan, ComparisonPlan
from lab.compare.results import ArmResult, ResultEnvironment
from lab.core import records
from lab.core.errors import UserError
from lab.core.records import Record
from lab.kernels import spec
from lab.kernels.kernel import KernelSpec
from lab.stats.verdict import Better, Comparison, Outcome, distance
from lab.stats.whole import Whole

KERNEL = "kernel"
"""The name of the axis whose values are kernels."""

# Before anything that a kernel spec is made of: `before=d4148aeab412`, not `HEAD@thp=never`.
_LABELLED = re.compile(r"([A-Za-z0-9][\w.-]*)=(.+)", re.DOTALL)


class Axis(Record, frozen=True, kw_only=True):
    """A thing that varies (`kernel`, or the name of a setting), and the names of its values."""

    name: str
    values: tuple[str, ...]


class Arm(NamedTuple):
    """One combination. at: its value on each axis. kernel: which of the kernels. spec: all of it as one spec."""

    label: str
    at: tuple[str, ...]
    kernel: int
    spec: str


class Span(NamedTuple):
    """Axes, the kernels of the first one as specs, and every combination in the order of the axes."""

    axes: list[Axis]
    kernels: list[str]
    arms: list[Arm]


def span(kernels: Sequence[str], settings: Sequence[str]) -> Span:
    """All combinations of kernels (`[NAME=]SPEC`) and settings (`KEY=VALUE,VALUE,...`), kernels outermost."""
    if not kernels:
        raise UserError("no kernel is given", hint="name at least one, e.g. --kernel v6.12")
    # A kernel's label and its spec; the default label is the spec.
    labelled = [(found[1], found[2]) if (found := _LABELLED.fullmatch(text)) else (text, text) for text in kernels]
    axes = [Axis(name=KERNEL, values=tuple(label for label, _ in labelled)), *map(setting_axis, settings)]
    for axis in axes:
        if twice := records.repeated(axis.values):
            hint = "give each a name of its own: --kernel NAME=SPEC" if axis.name == KERNEL else "give each value once"
            raise UserError(f"{axis.name} {twice} is given twice", hint=hint)
    if twice := records.repeated(axis.name for axis in axes):
        raise UserError(f"--set {twice} is given twice", hint=f"give all values at once: --set {twice}=VALUE,VALUE,...")
    specs_of = dict(labelled)
    arms = [
        Arm(
            # A setting with its name, a kernel by itself.
            label=" ".join(at[i] if axes[i].name == KERNEL else f"{axes[i].name}={at[i]}" for i in varying(axes)),
            at=at,
            kernel=axes[0].values.index(at[0]),
            spec=specs_of[at[0]] + _suffixes(axes[1:], at[1:]),
        )
        for at in product(*(axis.values for axis in axes))
    ]
    if len(arms) < 2:
        raise UserError(
            "a matrix of one arm has nothing to compare", hint="give it more kernels, or --set thp=always,never"
        )
    for arm in arms:
        spec.parse(arm.spec)
    return Span(axes=axes, kernels=[spec for _, spec in labelled], arms=arms)


def setting_axis(text: str) -> Axis:
    """`KEY=VALUE,VALUE,...` as an axis."""
    key, equals, values = text.partition("=")
    if not equals or not key:
        raise UserError(f"--set {text!r} is not KEY=VALUE,VALUE,...", hint="e.g. --set thp=always,madvise,never")
    return Axis(name=key, values=tuple(value.strip() for value in values.split(",")))


def varying(axes: Sequence[Axis]) -> list[int]:
    """Axes that have more than one value: the others need no mention."""
    return [index for index, axis in enumerate(axes) if len(axis.values) > 1]


def choose(arms: Sequence[Arm], text: str | None) -> Arm:
    """The arm that words name: its label, or some words of it that no other has. The first without words."""
    if text is None:
        return arms[0]
    words = set(re.split(r"[\s,]+", text.strip()))
    found = [arm for arm in arms if arm.label == text] or [
        arm for arm in arms if words <= set(arm.label.split()) | set(arm.at)
    ]
    if len(found) == 1:
        return found[0]
    some = ", ".join(repr(arm.label) for arm in (found or arms)[:6])
    raise UserError(f"--against {text!r} {'fits several arms' if found else 'is no arm'}", hint=f"choose from {some}")


def file_names(labels: Sequence[str]) -> list[str]:
    """The labels as parts of file names: of harmless characters, each different."""
    names: list[str] = []
    for label in labels:
        plain = re.sub(r"[^A-Za-z0-9.+^~_]+", "-", label).strip("-.")[:100] or "arm"
        free = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        names.append(next(name for name in free if name not in names))
    return names


def _suffixes(axes: Sequence[Axis], at: Sequence[str]) -> str:
    """Settings as a spec has them behind the kernel; kconfig symbols have their own sign."""
    return "".join(
        f"{'%' if axis.name.startswith('CONFIG_') else '@'}{axis.name}={value}"
        for axis, value in zip(axes, at, strict=True)
    )


KIND = "matrix"


class MatrixArmPlan(Record, frozen=True, kw_only=True):
    """One arm as resolved. name: that of its files."""

    label: str
    name: str
    at: tuple[str, ...]
    spec: KernelSpec


class MatrixPlan(ComparisonPlan, frozen=True, kw_only=True):
    """Everything that decides a matrix. The same plan gives the same numbers.

    kernels: the specs of the first axis, as typed.
    """

    kind: Literal["matrix"] = "matrix"
    axes: list[Axis]
    kernels: list[str]
    arms: list[MatrixArmPlan]
    baseline: str
    cc: str

    @property
    def planned(self) -> dict[str, ArmPlan]:
        return {arm.name: ArmPlan(spec=arm.spec, cc=self.cc) for arm in self.arms}


class MatrixArm(Record, frozen=True, kw_only=True):
    """One arm in the finished document. at: its value on each axis, in the order of the axes."""

    label: str
    at: tuple[str, ...]
    arm: ArmResult


class Cell(Record, frozen=True, kw_only=True):
    """One arm at one case.

    values: the metric by seed, as measured (None if it was not a number).
    mean: over the seeds that all arms with runs of this case have, so that cells are comparable.
    comparison: with the baseline arm; None for the baseline itself, and without numbers to compare.
    instructions: the same for the count of instructions, if the metric is modelled cycles that may decide.
    holm: True if a change is beyond chance over all cells; None without a change.
    failed: the reason for missing numbers. unsupported: it is that the kernel lacks something that the case needs.
    means: of every metric of the runs.
    notes: differences of the arm and the baseline besides the metric.
    whole: the whole cost against the baseline, if a model ran.
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
    unsupported: bool = False
    means: dict[str, float]
    notes: list[str] = msgspec.field(default_factory=list)
    instructions: Comparison | None = None
    whole: Whole | None = None

    @property
    def name(self) -> str:
        return f"{self.workload}:{self.case}"

    @property
    def contradiction(self) -> str:
        """The first thing in which the cell contradicts itself; empty if it does not."""
        if (seed := records.repeated(self.seeds)) is not None:
            return f"the seed {seed} counts twice"
        if len(self.values) != len(self.seeds):
            return f"there are {len(self.values)} numbers and {len(self.seeds)} seeds"
        compared = [one.contradiction for one in (self.comparison, self.instructions) if one]
        return next(filter(None, compared), "")

    @property
    def ratio(self) -> float | None:
        """The change against the baseline."""
        return self.comparison.ratio if self.comparison else None

    @property
    def reasons(self) -> list[str]:
        """The reasons for a missing number or an open verdict."""
        if self.failed:
            return [f"{'unsupported' if self.unsupported else 'failed'}: {self.failed}"]
        if self.comparison is None:
            return []
        if self.verdict == Outcome.UNKNOWN:
            return [f"unknown: {self.comparison.undecided('seed')}"]
        return [f"{self.verdict}, but not beyond chance over all cells"] if self.holm is False else []


class MatrixResult(Record, frozen=True, kw_only=True):
    """`lab matrix --json`: the finished document. Cells are by workload, case and arm, in that order.

    metric: the user's choice, `cycles`, `instructions` or a metric's name; None for each workload's own.
    """

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
    metric: str | None = None

    @property
    def contradiction(self) -> str:
        """The first thing in which the matrix contradicts itself; empty if it does not."""
        labels = [arm.label for arm in self.arms]
        if arm := records.repeated(labels):
            return f"the arm {arm} is there twice"
        if missing := {self.baseline, *(cell.arm for cell in self.cells)} - {*labels}:
            return f"there is no arm {min(missing)}"
        if twice := records.repeated((cell.arm, cell.name) for cell in self.cells):
            return f"{twice[1]} of the arm {twice[0]} is there twice"
        for cell in self.cells:
            if cell.contradiction:
                return f"{cell.name} of the arm {cell.arm}: {cell.contradiction}"
        return "it took less than no time" if self.seconds < 0 else ""

    @property
    def failed(self) -> list[Cell]:
        """The cells that have no number because a guest failed."""
        return [cell for cell in self.cells if cell.failed and not cell.unsupported]

    @property
    def notes(self) -> list[str]:
        """Notes about the arms and the guests, each note once."""
        return [*results.notes_on([arm.arm for arm in self.arms]), *filter(None, [self.environment.turns_note])]

    @property
    def repeat(self) -> str:
        """The command that repeats it, with a comment that says which metric the user chose."""
        return results.repeat(self.reproduce, self.metric)

    @property
    def worst(self) -> Cell | None:
        """The regression that is furthest from its baseline, if there is one with a ratio."""
        cells = [cell for cell in self.cells if self.state(cell) == Outcome.REGRESSION and cell.ratio]
        return max(cells, key=lambda cell: distance(cell.ratio), default=None)

    def state(self, cell: Cell) -> str:
        """A cell in a word."""
        return state(cell, self.baseline)


def state(cell: Cell, baseline: str) -> str:
    """A cell in a word: its verdict, `baseline`, or `measured` if nothing judges it.

    Or `failed`, `unsupported` or `not measured`, if it has no number.
    """
    if cell.failed:
        return "unsupported" if cell.unsupported else "failed"
    if not cell.seeds:
        return "not measured"
    if cell.arm == baseline:
        return "baseline"
    return str(cell.verdict) if cell.verdict else "measured"


def load_plan(folder: Path) -> MatrixPlan:
    result_folders.require_kind(folder, KIND)
    return records.load(folder / "plan.json", MatrixPlan)


def load_result(folder: Path) -> MatrixResult:
    result_folders.require_kind(folder, KIND)
    return result_folders.load_finished(folder, MatrixResult)
