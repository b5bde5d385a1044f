"""The site of an atlas: a matrix, a page for each case and each kernel, one for any two kernels, and all data as files.

Every page is a file that loads nothing: the site needs no server, and any page may be sent on alone.
"""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from msgspec.structs import replace

from lab.atlas import data, text
from lab.atlas.data import Atlas, Basis, CaseInfo, Cell, Column
from lab.atlas.judgement import Change, Judgement
from lab.core import paths, records
from lab.core.text import number, visible_lines, visible_record
from lab.kernels import architecture
from lab.report import plots, templates
from lab.report.plots import Chart, Series
from lab.stats.defaults import ALPHA

LEVELS = (0.02, 0.1, 0.25, 0.5)
"""The changes from which a cell of the matrix has a darker colour, on either side."""

_NEXT = "next"
"""The folder of a newer atlas that grows, below the complete one's."""

_LARGEST = 25
_MOVED = ("after", "difference")


def write_files(paths: Sequence[Path], output: Path) -> int:
    """Write the site of atlases on file, each with the newer one that grows beside it. Returns the files."""
    atlases = [data.load(path) for path in paths]
    newer = enumerate(data.growing(path) for path in paths)
    growing = {place: data.load(path) for place, path in newer if path.exists()}
    return write(atlases, output, growing, [data.table_of(path) for path in paths])


def write(
    atlases: Sequence[Atlas], output: Path, growing: Mapping[int, Atlas] | None = None, tables: Sequence[str] = ()
) -> int:
    """Write the site of atlases into a folder: the first at its top, each other one below it. Returns the files.

    growing: newer ones by the place of the complete one, each in a folder of its own below it. tables: the names of
    those that are further tables of the lab's.
    """
    count = 0
    tables = tables or [""] * len(atlases)
    names = [" ".join(filter(None, (table, atlas.architecture))) for table, atlas in zip(tables, atlases, strict=True)]
    folders = ["", *(f"{name.replace(' ', '-')}/" for name in names[1:])]
    for index, atlas in enumerate(atlases):
        folder = output / folders[index]
        others = [
            (names[place], f"{'../' if index else ''}{folders[place]}index.html")
            for place in range(len(atlases))
            if place != index
        ]
        down = None
        if newer := (growing or {}).get(index):
            said = text.progress(atlas, newer)
            down = Beside(said, "its pages as it grows", f"{_NEXT}/index.html")
            up = Beside(said, f"the last complete one, of model version {atlas.model_version}", "../index.html")
            ways = [(name, f"../{way}") for name, way in others]
            count += _write(Site(newer, ways, up, is_growing=True), folder / _NEXT)
        count += _write(Site(atlas, others, down, table=tables[index]), folder)
    return count


def _write(site: Site, folder: Path) -> int:
    count = 1
    for name, content in site.files():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with paths.writing(path):
            path.write_text(content)
        count += 1
    records.write_atomic(folder / "atlas.json", data.encode(site.stored))
    return count


class Beside(NamedTuple):
    """The other of a complete atlas and the newer one: a line about both, and the way to it."""

    said: str
    title: str
    path: str


class Site:
    """The pages of an atlas. others: the names of other atlases, and the way to them. beside: the complete one of a
    newer one that grows, or the other way round. table: its name, if it is a further table of the lab's."""

    def __init__(
        self,
        atlas: Atlas,
        others: Sequence[tuple[str, str]] = (),
        beside: Beside | None = None,
        *,
        is_growing: bool = False,
        table: str = "",
    ) -> None:
        self.stored = atlas
        self.atlas = atlas = _visible(atlas)
        self.others = others
        self.beside = beside
        self.title = f"{atlas.architecture}, {table}" if table else atlas.architecture
        self.source = ["--data", f"{atlas.architecture}.next.json"] if is_growing else []
        if not is_growing and atlas.architecture != architecture.DEFAULT:
            self.source = ["--arch", atlas.architecture]
        if not is_growing and table:
            self.source += ["--table", table]
        self.judged = Judgement(atlas)

    def files(self) -> Iterator[tuple[str, str]]:
        """The path and the content of every file but the data itself."""
        about = text.about(self.atlas)
        largest = self.judged.changes[self.atlas.bases[0]][:_LARGEST]
        yield "index.html", self._page("index", about=about, largest=largest)
        yield "pair.html", self._page("pair", about=about)
        for case in self.atlas.cases:
            yield f"case/{case.slug}.html", self._case(case, about)
        for column in self.atlas.columns:
            yield f"kernel/{column.id}.html", self._kernel(column, about)
        yield "cells.csv", data.rows(self.atlas)
        yield "steps.csv", self._steps_csv()

    def _page(self, name: str, **values: Any) -> str:
        top = "../" if name in ("case", "kernel") else ""
        return templates.fill(
            f"atlas/{name}.html.j2",
            own="atlas/atlas",
            site=self,
            reasons=text.reasons,
            here=f"{name}.html",
            top=top,
            **values,
        )

    # ---- the matrix

    @cached_property
    def reference(self) -> Column:
        """The kernel that the matrix is relative to at first: the oldest of the series with most kernels."""
        there = [column for column in self.atlas.columns if not column.hole] or list(self.atlas.columns)
        longest = Counter(column.series for column in there).most_common(1)[0][0]
        return next(column for column in there if column.series == longest)

    @property
    def newest(self) -> Column:
        """The newest kernel of that series."""
        return [one for one in self.atlas.columns if not one.hole and one.series == self.reference.series][-1]

    @property
    def series(self) -> list[tuple[str, int]]:
        """The series, and the number of columns of each."""
        return list(Counter(column.series for column in self.atlas.columns).items())

    @cached_property
    def _chain_of(self) -> dict[str, int]:
        return {column.id: number for number, chain in enumerate(self.judged.chains) for column in chain}

    def starts(self, column: Column) -> str:
        """The reason why a series, or a part of one, starts at a column; empty if it continues."""
        index = self.atlas.columns.index(column)
        before = self.atlas.columns[index - 1] if index else None
        if before is not None and before.series != column.series:
            return f"{column.series}, built by {column.compiler or 'an unknown compiler'}"
        return next((one.why for one in self.judged.breaks if one.test.id == column.id), "")

    @cached_property
    def labels(self) -> dict[str, str]:
        """The upstream version of each column, with the package's revision if two have the same."""
        counts = Counter((column.series, column.upstream) for column in self.atlas.columns)
        return {
            column.id: column.upstream if counts[column.series, column.upstream] == 1 else column.version
            for column in self.atlas.columns
        }

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The colours of the matrix."""
        shares = [f"{100 * level:g} %" for level in LEVELS]
        up = [(f"u{n}", f"+{share}") for n, share in enumerate(shares, start=1)]
        down = [(f"d{n}", f"-{share}") for n, share in enumerate(shares, start=1)]
        return [*down[::-1], *up]

    @cached_property
    def _steps(self) -> dict[tuple[str, Basis], list[int]]:
        """The columns at which a case has a step or ends a creep."""
        found: dict[tuple[str, Basis], list[int]] = {}
        for basis, changes in self.judged.changes.items():
            for change in changes:
                found.setdefault((change.case.name, basis), []).append(self.atlas.at(change.test.id))
        return found

    def row(self, case: CaseInfo) -> list[tuple[str, str]]:
        """The cells of a case in the matrix, relative to the reference: class and text of each."""
        basis = self.atlas.bases[0]
        costs, steps = self._means(case, basis), self._steps.get((case.name, basis), [])
        base = costs[self.atlas.at(self.reference.id)]
        fields = [_field(cost, base) for cost in costs]
        marks = zip(self._breaks, (" s" * (i in steps) for i in range(len(costs))), strict=True)
        return [(f"{kind}{cut}{step}".strip(), shown) for (kind, shown), (cut, step) in zip(fields, marks, strict=True)]

    @cached_property
    def _breaks(self) -> list[str]:
        return [" b" * bool(self.starts(column)) for column in self.atlas.columns]

    def _means(self, case: CaseInfo, basis: Basis) -> list[float | None]:
        return [cell.mean(basis) if isinstance(cell, Cell) else None for cell in self.atlas.cells[case.name]]

    @cached_property
    def embedded(self) -> Markup:
        """The data of the script: means, bands, steps and the reasons of holes."""
        reasons = list(dict.fromkeys(hole for _, _, hole in self.atlas.holes))
        places = {reason: place for place, reason in enumerate(reasons)}
        share = ALPHA / max(1, len(self.atlas.cases))
        document = {
            "threshold": self.atlas.threshold,
            "levels": LEVELS,
            "holes": reasons,
            "source": "".join(f" {word}" for word in self.source),
            "columns": [
                {
                    "id": column.id, "version": column.version, "series": column.series, "builder": column.compiler,
                    "machine": column.machine, "chain": self._chain_of.get(column.id, -1),
                }
                for column in self.atlas.columns
            ],
            "cases": [
                {
                    "name": case.name,
                    "slug": case.slug,
                    "group": case.group,
                    **{basis: self._means(case, basis) for basis in self.atlas.bases},
                    "steps": {basis: self._steps.get((case.name, basis), []) for basis in self.atlas.bases},
                    "bands": {basis: self._half_width(case, basis, ALPHA) for basis in self.atlas.bases},
                    "wide": {basis: self._half_width(case, basis, share) for basis in self.atlas.bases},
                    "holes": {
                        str(index): places[cell]
                        for index, cell in enumerate(self.atlas.cells[case.name])
                        if isinstance(cell, str)
                    },
                }
                for case in self.atlas.cases
            ],
        }  # fmt: skip
        packed = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
        return Markup(packed)  # noqa: S704  (JSON without the beginning of a tag)

    def _half_width(self, case: CaseInfo, basis: Basis, alpha: float) -> float:
        """The A/A band as a log ratio; wider than any change if it is not known."""
        half = self.judged.band(case, basis).half_width(self.atlas.seeds, alpha)
        return round(half, 6) if math.isfinite(half) else 99.0

    @property
    def holes(self) -> list[tuple[str, int, str]]:
        """The reasons for holes, how many there are of each, and an example."""
        return _grouped([(hole, f"{case.name} in {column.version}") for case, column, hole in self.atlas.holes])

    # ---- words about changes

    def why(self, change: Change) -> str:
        """The functions that make most of a change, or a note that none is known."""
        return self.judged.why(change) or text.no_functions(change)

    def compare_command(self, change: Change) -> str:
        """The command that compares both kernels of a change."""
        base, test = change.base.spec, change.test.spec
        return shlex.join(["lab", "ab", "--base", base, "--test", test, "-w", change.case.name])

    def again(self, case: CaseInfo, column: Column) -> str:
        """The command that measures a cell again."""
        return shlex.join(["lab", "atlas", "check", f"{case.name}@{column.id}", *self.source])

    # ---- a case

    def _case(self, case: CaseInfo, about: str) -> str:
        bases = self.atlas.bases
        cells = list(zip(self.atlas.columns, self.atlas.cells[case.name], strict=True))
        return self._page(
            "case",
            case=case,
            about=about,
            curves=[(basis, self.curve(case, basis)) for basis in bases],
            breaks=self.judged.breaks,
            changes=text.of_case(self.judged, case),
            cells=cells,
            again=next((column for column, cell in reversed(cells) if isinstance(cell, Cell)), None),
            columns={
                "moved": [("function", ""), *((name, "n") for b in bases for name in (f"{b} before", *_MOVED))],
                "cells": dict.fromkeys(("kernel", "series", "date", *(f"{b}, by seed" for b in bases)), ""),
                "profile": {"function": "", **dict.fromkeys(bases, "n")},
            },
        )

    def curve(self, case: CaseInfo, basis: Basis) -> tuple[Chart, str]:
        """The cost over the kernels, a line for each chain, and the steps; and the A/A band in words.

        The picture's band is the threshold around the first cost.
        """
        costs = self._means(case, basis)
        known = [cost for cost in costs if cost is not None] or [0.0]
        chain = [self._chain_of.get(column.id, -1) for column in self.atlas.columns]
        there = [i for i, cost in enumerate(costs) if cost is not None]
        series = Series(
            values=costs,
            names=list(self.labels.values()),
            band=(known[0] * (1 - self.atlas.threshold), known[0] * (1 + self.atlas.threshold)),
            steps=self._steps.get((case.name, basis), []),
            cuts=[i for before, i in pairwise(there) if chain[before] < 0 or chain[before] != chain[i]],
        )
        label = f"{case.name}: {number(min(known))} to {number(max(known))} {basis} in {len(there)} kernels"
        half = self.judged.band(case, basis).half_width(self.atlas.seeds)
        width = f"±{100 * math.expm1(half):.1f} %" if math.isfinite(half) else "not known"
        return plots.series(series, label), width

    # ---- a kernel

    def _kernel(self, column: Column, about: str) -> str:
        base = self._before(column)
        cells = [(case, self.atlas.cells[case.name][self.atlas.at(column.id)]) for case in self.atlas.cases]
        groups: dict[str, dict[str, Change]] = {}
        for basis in self.atlas.bases:
            for change in self.judged.changes[basis]:
                if change.test.id == column.id:
                    groups.setdefault(change.case.group, {}).setdefault(change.case.name, change)
        judged = [change for found in groups.values() for change in found.values()]
        worse = sum(change.word == "worse" for change in judged)
        return self._page(
            "kernel",
            column=column,
            base=base,
            about=about,
            why=column.hole or ("" if base else self.starts(column) or "the first kernel of its series"),
            counts=f"{worse} of {len(cells)} cases worse, {len(judged) - worse} better",
            groups=[(group, list(found.values())) for group, found in groups.items()],
            holes=_grouped([(cell, case.name) for case, cell in cells if isinstance(cell, str)]),
        )

    def _before(self, column: Column) -> Column | None:
        """The neighbour before a column."""
        for chain in self.judged.chains:
            ids = [one.id for one in chain]
            if column.id in ids[1:]:
                return chain[ids.index(column.id) - 1]
        return None

    # ---- files

    def _steps_csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        names = ["architecture", "case", "group", "kind", "basis", "base", "test", "date", "verdict", "ratio", "why"]
        writer.writerow(names)
        for changes in self.judged.changes.values():
            for change in changes:
                kind = "creep" if change.creep else "step"
                row = [self.atlas.architecture, change.case.name, change.case.group, kind, change.basis]
                row += [change.base.id, change.test.id, change.test.date, str(change.comparison.verdict)]
                writer.writerow([*row, change.comparison.ratio, "; ".join(text.reasons(self.judged, change))])
        return out.getvalue()


def _visible(atlas: Atlas) -> Atlas:
    """The atlas without hidden characters; code keeps its lines."""
    shown = visible_record(atlas)
    cases = [
        replace(case, code=visible_lines(before.code.expandtabs(8)))
        for case, before in zip(shown.cases, atlas.cases, strict=True)
    ]
    return replace(shown, cases=tuple(cases))


def _grouped(found: Sequence[tuple[str, str]]) -> list[tuple[str, int, str]]:
    """Reasons with their number and their first example, the most frequent first."""
    counts = Counter(reason for reason, _ in found)
    examples = dict(reversed(found))
    return [(reason, count, examples[reason]) for reason, count in counts.most_common()]


def _field(cost: float | None, base: float | None) -> tuple[str, str]:
    """The class and the text of a cell, as the script makes them."""
    if cost is None:
        return "h", "·"
    if not base:
        return "", "n/a"
    ratio = cost / base
    level = sum(abs(math.log(ratio)) >= math.log1p(one) for one in LEVELS) if ratio > 0 else 0
    kind = f"{'u' if ratio > 1 else 'd'}{level}" if level else ""
    if ratio >= 10:
        return kind, f"x{ratio:.0f}"
    change = math.floor(100 * (ratio - 1) + 0.5)
    return kind, f"{'+' if change > 0 else '-'}{abs(change)}" if change else "0"
