"""The data of an atlas: columns of kernels, their cells, and the facts about the steps between them; one file.

An atlas is of one architecture. The lab ships its own atlases in the data folder `atlas`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

import msgspec

from lab.atlas.plan import Known, version_of
from lab.core import paths, records
from lab.core.errors import GuestFailure, UserError, suggestion
from lab.core.records import Record
from lab.kernels import architecture, compilers

Basis = Literal["cycles", "instructions", "nanoseconds"]
"""The unit of a cost; nanoseconds of guest time, if the workload runs without a model."""

BASES: tuple[Basis, ...] = get_args(Basis)

Hole = str
"""The reason why a cell has no numbers."""

NOT_MEASURED = "not measured yet"

_LASTING = {"no number", *(kind.value for kind in GuestFailure if kind.blames != "host")}
"""The beginnings of holes that every machine finds again."""


class Cell(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The cost of one operation, by seed from 1: modelled cycles, instructions, and the starts of strings in cycles.

    cycles: none if guests are not modelled. strings: left out if none begins. nanoseconds: in place of all these, the
    number that decides a workload without a model.
    """

    cycles: tuple[float, ...]
    instructions: tuple[float, ...]
    strings: tuple[float, ...] = ()
    nanoseconds: tuple[float, ...] = ()

    def values(self, basis: Basis) -> tuple[float, ...]:
        """The costs by seed."""
        found: tuple[float, ...] = getattr(self, basis)
        return found

    def mean(self, basis: Basis) -> float | None:
        """The mean over the seeds."""
        values = self.values(basis)
        return fmean(values) if values else None


def lasts(cell: Cell | Hole) -> bool:
    """True for numbers, and for a hole that no other call and no other machine can fill."""
    return isinstance(cell, Cell) or cell.partition(":")[0] in _LASTING


class FunctionCost(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A function's part of one operation of the first seed. user: the program's own."""

    name: str
    cycles: float
    instructions: float
    user: bool = False

    def cost(self, basis: Basis) -> float:
        """Its cost in one of the two."""
        return self.cycles if basis == "cycles" else self.instructions


class FunctionChange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A function's part of an operation in two kernels: modelled cycles, then instructions."""

    name: str
    cycles: tuple[float, float]
    instructions: tuple[float, float]
    user: bool = False

    def delta(self, basis: Basis) -> float:
        """The newer one minus the older one."""
        old, new = self.cycles if basis == "cycles" else self.instructions
        return new - old


class Column(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One kernel. spec: its name, as `lab ab` takes it. builder: the compiler that built it. date: of its version.

    machine: the kind of QEMU's machine; costs on different kinds are not compared.
    hole: the reason why nothing of it could be measured.
    """

    id: str
    series: str
    version: str
    spec: str
    release: str = ""
    builder: str = ""
    date: str = ""
    machine: str = ""
    hole: Hole | None = None

    @property
    def is_package(self) -> bool:
        """True for a package of the archive, whose version names the kernel; others are named by a spec."""
        return self.version != self.spec

    @property
    def compiler(self) -> str:
        """The version of its builder, which goes by several names; the builder's own words without one."""
        return compilers.version_in(self.builder) or self.builder

    @property
    def upstream(self) -> str:
        """The version as upstream has it."""
        numbers = self.version.rpartition("/")[2].partition("-")[0]
        return numbers.partition("@")[0]


class CaseInfo(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A case. selection: of its guests, as `-w` takes it. code: of the operation. profile: of the newest kernel.

    metrics: the names of the counts in cycles, or in nanoseconds, and in instructions.
    """

    name: str
    group: str
    selection: str
    note: str = ""
    control: bool = False
    code: str = ""
    metrics: tuple[str, str] = ("cycles", "instructions")
    profile: tuple[FunctionCost, ...] = ()

    @property
    def slug(self) -> str:
        """Its name in files and links."""
        return self.name.replace(":", "-")

    @property
    def vcpus(self) -> int | None:
        """The vCPUs that contend in its guests; None if the workload does not say so."""
        count = self.name.partition(":")[0].partition("@")[2]
        return int(count) if count else None

    @property
    def short(self) -> str:
        """Its name without the workload, but with its number of vCPUs: `fstat@4`."""
        case = self.name.partition(":")[2]
        return f"{case}@{self.vcpus}" if self.vcpus else case

    def metric(self, basis: Basis) -> str:
        return self.metrics[basis == "instructions"]


class Explained(Record, frozen=True, kw_only=True):
    """The functions of a case that moved most between two columns, by their ids. total: of all functions."""

    case: str
    base: str
    test: str
    total: FunctionChange
    functions: tuple[FunctionChange, ...]


NOT_PROVED = "not proved"
ONE_WAY = "the other way does not build"
"""Words of a proof."""


class Bisected(Record, frozen=True, kw_only=True):
    """The commit that a bisection named for a step, or, without history, the hunks. result: its id.

    commit: empty for hunks, which `subject` names. share: part of the step that the hunks carry. proof: its
    confirmation.
    """

    case: str
    base: str
    test: str
    commit: str = ""
    subject: str
    result: str = ""
    share: float | None = None
    proof: str = ""

    @property
    def both_ways(self) -> bool:
        """True if the older kernel with the hunks confirms them, too."""
        return bool(self.proof) and not self.proof.endswith((NOT_PROVED, f"{ONE_WAY})"))

    @property
    def text(self) -> str:
        """The cause in a line."""
        named = f'{self.commit[:12]} ("{self.subject}")' if self.commit else self.subject
        share = f", {100 * self.share:.0f} % of the step" if self.share is not None else ""
        return f"{named}{share}{f': {self.proof}' if self.proof else ''}"


class Atlas(Record, frozen=True, kw_only=True, dict=True):
    """An atlas of one architecture. cells: of each case, one for each column.

    model_version: of its workloads, the newest one (see `lab.guests.model_version`).
    environment: the inputs of all numbers besides kernel, case and seed. fingerprints: of guests, by workload and kind
    of machine. synthetic: made up, for tests.
    """

    schema: Literal[1] = 1
    name: str
    model_version: int = 1
    architecture: str
    measured: str
    seeds: int
    threshold: float
    environment: dict[str, str]
    fingerprints: dict[str, str]
    columns: tuple[Column, ...]
    cases: tuple[CaseInfo, ...]
    cells: dict[str, tuple[Cell | Hole, ...]]
    explained: tuple[Explained, ...] = ()
    known: tuple[Known, ...] = ()
    bisected: tuple[Bisected, ...] = ()
    synthetic: bool = False

    def __post_init__(self) -> None:
        """Refuse an atlas that does not fit together: every case has a cell for each column."""
        for case in self.cases:
            if len(self.cells.get(case.name, ())) != len(self.columns):
                raise ValueError(f"{case.name} has {len(self.cells.get(case.name, ()))} of {len(self.columns)} cells")

    @cached_property
    def bases(self) -> tuple[Basis, ...]:
        """The bases that its costs have, the deciding one first: cycles, if guests of its version are modelled."""
        cells = [cell for row in self.cells.values() for cell in row if isinstance(cell, Cell)]
        found = tuple(basis for basis in BASES if any(cell.values(basis) for cell in cells))
        return found or ("cycles", "instructions")

    @property
    def groups(self) -> dict[str, list[CaseInfo]]:
        found: dict[str, list[CaseInfo]] = {}
        for case in self.cases:
            found.setdefault(case.group, []).append(case)
        return found

    def case(self, name: str) -> CaseInfo:
        """A case by its name, with or without its workload."""
        for case in self.cases:
            if name in (case.name, case.short):
                return case
        known = [case.short for case in self.cases]
        raise UserError(
            f"the atlas has no case {name!r}",
            hint=suggestion(name, known) or f"there are {len(known)}, such as {', '.join(known[:5])}",
        )

    def at(self, column: str) -> int:
        """The place of a column by its id."""
        return next(index for index, one in enumerate(self.columns) if one.id == column)

    def find(self, text: str, *, like: Column | None = None) -> Column:
        """The newest column of a version: `6.12`, `6.12.95`, or a whole id. like: whose series is preferred."""
        if exact := [column for column in self.columns if text in (column.id, column.version)]:
            return exact[0]
        wanted = text.removeprefix("v").split(".")
        found = [column for column in self.columns if column.upstream.split(".")[: len(wanted)] == wanted]
        measured = [column for column in found if not column.hole] or found
        same = [column for column in measured if like and column.series == like.series] or measured
        if not same:
            numbers = (version_of(column.upstream)[:2] for column in self.columns)
            releases = dict.fromkeys(".".join(map(str, release)) for release in numbers)
            raise UserError(f"the atlas has no kernel {text}", hint=f"it has {', '.join(releases)}, and their points")
        return max(same, key=lambda column: (version_of(column.upstream), self.at(column.id)))

    def pair(self, base: str, test: str) -> tuple[Column, Column]:
        """Two columns by their versions, of one series if one has both."""
        for series in dict.fromkeys(column.series for column in self.columns):
            like = next(column for column in self.columns if column.series == series)
            try:
                both = self.find(base, like=like), self.find(test, like=like)
            except UserError:
                break
            if both[0].series == both[1].series:
                return both
        first = self.find(base)
        return first, self.find(test, like=first)

    @cached_property
    def by_functions(self) -> dict[tuple[str, str, str], Explained]:
        """The functions that moved most, by case and both columns."""
        return {(one.case, one.base, one.test): one for one in self.explained}

    @property
    def holes(self) -> Iterator[tuple[CaseInfo, Column, Hole]]:
        """The cells without numbers, and why."""
        for case in self.cases:
            for column, cell in zip(self.columns, self.cells[case.name], strict=True):
                if isinstance(cell, str):
                    yield case, column, cell

    @cached_property
    def whole(self) -> list[Column]:
        """The complete columns."""
        rows = self.cells.values()
        return [
            column
            for index, column in enumerate(self.columns)
            if not column.hole and all(lasts(row[index]) for row in rows)
        ]


PLAN = "atlas"
"""The plan that comes with the lab; each other one is that of a further table."""


def folder() -> Path:
    """The folder of the plans and of the data that come with the lab."""
    return paths.data_folder("atlas")


def shipped() -> list[Path]:
    """The atlases that come with the lab: that of the default architecture, of others, then further tables."""
    found = [path for path in folder().glob("**/*.json") if not path.stem.endswith(".next")]
    return sorted(found, key=lambda path: (table_of(path), path.stem != architecture.DEFAULT, path.stem))


def table_of(path: Path) -> str:
    """The further table whose atlas a file of the lab's own is; empty for any other file."""
    return path.parent.name if path.parent.parent == folder() else ""


def tables() -> list[str]:
    """The further tables whose plans come with the lab."""
    return sorted(path.stem for path in folder().glob("*.toml") if path.stem != PLAN)


def growing(path: Path) -> Path:
    """The file beside an atlas in which a newer one grows, until it has all columns of the atlas."""
    return path.with_suffix(".next.json")


def load(path: Path | None = None, guests: str = architecture.DEFAULT, table: str = "") -> Atlas:
    """The atlas of a file, or the lab's own for an architecture, or of one of its further tables."""
    if path is None:
        path = folder() / table / f"{guests}.json"
        if not path.is_file():
            there = [one.stem for one in shipped() if table_of(one) == table]
            measure = f"measure one: `lab atlas run --arch {guests} --output DIR`, then give --data DIR/{guests}.json"
            raise UserError(
                f"no atlas of {guests} comes with this version" + "".join(f", there is {name}" for name in there),
                hint=f"give --arch {there[0]}" if table and there else measure,
            )
    try:
        return records.decode(records.bounded(path).read_bytes(), Atlas)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except records.DAMAGED as error:
        raise UserError(f"{path} is no atlas: {error}", hint="give a file that `lab atlas run` wrote") from error


def encode(atlas: Atlas) -> bytes:
    """An atlas as JSON, a line for each case and column: differences of two atlases can be read."""
    parts = []
    for key, value in records.plain(atlas).items():
        if key == "cells":
            rows = [f"{_json(name)}: {_json(cells)}" for name, cells in value.items()]
            text = "{\n" + ",\n".join(rows) + "\n}"
        elif isinstance(value, (list, tuple)) and value:
            text = "[\n" + ",\n".join(map(_json, value)) + "\n]"
        else:
            text = _json(value)
        parts.append(f"{_json(key)}: {text}")
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def explained(
    case: str, base: str, test: str, old: Sequence[FunctionCost], new: Sequence[FunctionCost], most: int = 8
) -> Explained:
    """The functions that moved most between two profiles of a case, in cycles or in instructions."""
    before, after = ({(one.name, one.user): one for one in costs} for costs in (old, new))
    none = FunctionCost("", 0.0, 0.0)
    found = {key: _change(key, before.get(key, none), after.get(key, none)) for key in before.keys() | after.keys()}
    kept: dict[tuple[str, bool], FunctionChange] = {}
    for basis in BASES:
        moved = sorted(found.items(), key=lambda one: (-abs(one[1].delta(basis)), one[0]))
        kept |= {key: one for key, one in moved[:most] if one.delta(basis)}
    sums = [
        FunctionCost("", sum(one.cycles for one in many), sum(one.instructions for one in many)) for many in (old, new)
    ]
    return Explained(
        case=case,
        base=base,
        test=test,
        total=_change(("total", False), *sums),
        functions=tuple(sorted(kept.values(), key=lambda one: (-abs(one.delta("cycles")), one.name))),
    )


def _change(key: tuple[str, bool], old: FunctionCost, new: FunctionCost) -> FunctionChange:
    pairs = (old.cycles, new.cycles), (old.instructions, new.instructions)
    cycles, instructions = ((round(first, 3), round(last, 3)) for first, last in pairs)
    return FunctionChange(key[0], cycles, instructions, key[1])


def rows(atlas: Atlas) -> str:
    """Every cell as CSV: its numbers by seed, or the reason why it has none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    seeds = range(1, atlas.seeds + 1)
    names = [f"{basis}_{seed}" for basis in atlas.bases for seed in seeds]
    writer.writerow(["architecture", "case", "group", "series", "kernel", "date", *atlas.bases, *names, "hole"])
    for case in atlas.cases:
        for column, cell in zip(atlas.columns, atlas.cells[case.name], strict=True):
            key = [atlas.architecture, case.name, case.group, column.series, column.id, column.date]
            if isinstance(cell, str):
                writer.writerow([*key, *[""] * (len(atlas.bases) + len(names)), cell])
            else:
                each = [value for basis in atlas.bases for value in _padded(cell.values(basis), atlas.seeds)]
                writer.writerow([*key, *(cell.mean(basis) for basis in atlas.bases), *each, ""])
    return out.getvalue()


def _padded(values: Sequence[float], seeds: int) -> list[float | str]:
    return [*values, *[""] * (seeds - len(values))]
