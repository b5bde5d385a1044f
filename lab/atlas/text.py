"""An atlas in the terminal: one case over all kernels, and two kernels over all cases; as text and as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from lab.atlas.data import Atlas, CaseInfo, Cell, Column
from lab.atlas.judgement import Change, Judgement
from lab.core import records
from lab.core.text import columns, number, plural, visible, visible_lines, wrapped
from lab.guests import model_version
from lab.kernels import architecture
from lab.report.matrix_text import SIGNS, STYLES
from lab.stats.verdict import Outcome, percent

_RIGHT = (3, 4, 5, 6)

SIZES = (0.05, 0.1)
"""The sizes of steps whose causes are counted."""

_NO_PROFILES = "functions not known: without a cost model there are no profiles"
_NO_FUNCTIONS = "functions not known: profiles of both kernels were not at hand"
"""For a step from or to a column of another atlas that did not have it."""


# ---- one case


def case(judged: Judgement, info: CaseInfo, width: int) -> Group:
    """A case: its cost in each kernel, and its steps and creeps."""
    atlas = judged.atlas
    changes = of_case(judged, info)
    lines = [Text(f"{info.name}: {info.note} ({info.group})", "bold"), Text(about(atlas))]
    lines.append(Text(""))
    lines += [Text(line) for line in columns(_rows(judged, info), _RIGHT)]
    lines.append(Text(""))
    lines += [part for change in changes for part in _told(judged, change, width)]
    if not changes:
        lines.append(Text("no step and no creep beyond the threshold and the A/A band"))
    for broken in judged.breaks:
        lines.append(Text(f"the series breaks at {broken.test.version}: {broken.why}"))
    return Group(*(Text(visible_lines(line.plain), style=line.style) for line in lines))


def _rows(judged: Judgement, info: CaseInfo) -> list[list[str]]:
    """A line for each kernel: its costs, and the changes from the neighbour before it."""
    bases = judged.atlas.bases
    before = {test.id: base for base, test in judged.neighbours(info)}
    rows = [["series", "kernel", "date", *bases, *(f"change of {basis}" for basis in bases)]]
    for column in judged.atlas.columns:
        cell, kernel = judged.cell(info, column), [column.series, column.version, column.date]
        if not isinstance(cell, Cell):
            rows.append([*kernel, *["-"] * len(bases), _short(cell), *[""] * (len(bases) - 1)])
            continue
        costs = [number(cell.mean(basis) or 0.0) for basis in bases]
        moved = []
        for basis in bases:
            base = before.get(column.id)
            found = judged.compare(info, base, column, basis) if base else None
            moved.append(f"{percent(found.ratio)} {SIGNS[str(found.verdict)]}" if found else "")
        rows.append([*kernel, *costs, *moved])
    return rows


def _short(hole: str) -> str:
    return hole if len(hole) <= 60 else f"{hole[:57]}..."


def of_case(judged: Judgement, info: CaseInfo) -> list[Change]:
    """The changes of a case, by either basis, in the order of the kernels; changes by both bases appear once."""
    order = {column.id: index for index, column in enumerate(judged.atlas.columns)}
    found: dict[tuple[str, str], Change] = {}
    for basis in judged.atlas.bases:
        for change in judged.changes[basis]:
            if change.case.name == info.name:
                found.setdefault((change.base.id, change.test.id), change)
    return sorted(found.values(), key=lambda change: (order[change.test.id], order[change.base.id]))


def _told(judged: Judgement, change: Change, width: int) -> list[Text]:
    """A step or a creep in a few lines."""
    style = STYLES.get(str(change.comparison.verdict), "")
    lines = [Text(sentence(change), style)]
    unknown = [] if judged.explained(change) else [no_functions(change)]
    lines += [Text(wrapped(f"  {line}", 4, width)) for line in (*unknown, *reasons(judged, change))]
    return lines


def sentence(change: Change) -> str:
    """A change in a line: its size, its dates, its reason."""
    kind = "creep" if change.creep else "step"
    ratio = percent(change.comparison.ratio)
    return f"{kind} {change.dated}: {ratio} {change.basis}, {change.word}; {change.comparison.reason}"


def no_functions(change: Change) -> str:
    """The reason why no function of a change is known."""
    return _NO_PROFILES if change.basis == "nanoseconds" else _NO_FUNCTIONS


def reasons(judged: Judgement, change: Change) -> list[str]:
    """The facts about a change: functions, a published change, a commit that was found."""
    lines = [judged.why(change)]
    if known := judged.known(change):
        lines.append(f'published: {known.commit[:12]} ("{known.subject}"), {known.link}')
    if found := judged.bisected(change):
        lines.append(f"bisected: {found.text}")
    return [line for line in lines if line]


def about(atlas: Atlas) -> str:
    """The origin of an atlas's numbers, in a line."""
    made = "SYNTHETIC, made up for tests; " if atlas.synthetic else ""
    # Its own version is that of one workload; the atlas has the newest of all.
    model = re.sub(r" v\d+\b", "", atlas.environment.get("model", "none"))
    said = "" if model == "none" else f", {architecture.experiment(model)}"
    return (
        f"{made}{atlas.name} on {atlas.architecture}, {plural(len(atlas.columns), 'kernel')}, "
        f"measured {atlas.measured[:10]}, "
        f"{plural(atlas.seeds, 'seed')}; costs of one operation{said}, "
        f"model version {atlas.model_version}"
    )


def progress(complete: Atlas, growing: Atlas) -> str:
    """A line with the progress of the newer atlas beside a complete one, and the reasons why its numbers differ."""
    number = growing.model_version
    ids = {column.id for atlas in (complete, growing) for column in atlas.columns}
    why = model_version.reasons(complete.model_version, number, [case.selection for case in growing.cases])
    said = f"Model version {number}: {len(growing.whole)} of {plural(len(ids), 'column')} measured so far"
    return f"{said} ({why})" if why else said


# ---- two kernels


def pair(judged: Judgement, base: Column, test: Column, width: int) -> Group:
    """Two kernels: the changes, the largest first."""
    atlas = judged.atlas
    basis = atlas.bases[0]
    found = judged.pair(base, test, basis)
    changed = [change for change in found if change.comparison.is_change]
    others = {change.case.name: change for other in atlas.bases[1:] for change in judged.pair(base, test, other)}
    lines = [Text(f"{base.version} ({base.series}) to {test.version} ({test.series})", "bold"), Text(about(atlas))]
    lines += [Text(f"note: {line}", "yellow") for line in remarks(base, test)]
    lines.append(Text(""))
    rows = [["group", "case", f"{basis} before", "after", "change", "instructions" if others else "", ""]]
    for change in changed:
        other = others.get(change.case.name)
        old, new = (number(_mean(judged, change, column)) for column in (base, test))
        count = percent(other.comparison.ratio) if other else ""
        sign = f"{SIGNS[str(change.comparison.verdict)]} {change.comparison.verdict}"
        rows.append([change.case.group, change.case.short, old, new, percent(change.ratio), count, sign])
    styles = ["bold", *(STYLES.get(str(change.comparison.verdict), "") for change in changed)]
    lines += [Text(line, style) for line, style in zip(columns(rows, (2, 3, 4, 5)), styles, strict=True)]
    lines += [Text(""), *(Text(line) for line in _by_group(found)), Text(_rest(judged, base, test, found))]
    return Group(*(Text(visible(line.plain), style=line.style) for line in lines))


def _mean(judged: Judgement, change: Change, column: Column) -> float:
    cell = judged.cell(change.case, column)
    return (cell.mean(change.basis) or 0.0) if isinstance(cell, Cell) else 0.0


def remarks(base: Column, test: Column) -> list[str]:
    """Differences between two columns beside the kernel's source."""
    lines = []
    if base.compiler != test.compiler:
        lines.append(f"two compilers: {base.compiler or 'unknown'}, and {test.compiler or 'unknown'}")
    if base.machine != test.machine:
        lines.append(f"two kinds of machine, {base.machine} and {test.machine}: nothing is compared")
    return lines


def _by_group(found: Sequence[Change]) -> list[str]:
    """The number of cases of each verdict, by group."""
    groups: dict[str, Counter[str]] = {}
    for change in found:
        groups.setdefault(change.case.group, Counter())[str(change.comparison.verdict)] += 1
    words = [str(word) for word in Outcome]
    rows = [["group", *words]] + [
        [group, *(str(counts[word] or "") for word in words)] for group, counts in groups.items()
    ]
    return columns(rows, (1, 2, 3, 4))


def _rest(judged: Judgement, base: Column, test: Column, found: Sequence[Change]) -> str:
    holes = len(judged.atlas.cases) - len(found)
    return f"{plural(holes, 'case')} without numbers in one of the two" if holes else "every case has numbers in both"


# ---- causes


def causes(judged: Judgement, width: int) -> Group:
    """Count the steps between two sources and those that have a cause, by kernels and sizes; then between packages."""
    steps = judged.steps(judged.atlas.bases[0])
    built: dict[tuple[str, str], list[Change]] = {}
    for step in steps:
        if not (step.base.is_package or step.test.is_package):
            built.setdefault((step.base.version, step.test.version), []).append(step)
    rows = [["from", "to", "steps of", "all", "with a cause", "proved both ways"]]
    rows += [[*ends, *row] for ends, found in built.items() for row in _tallies(judged, found)]
    rows += [["all", "", *row] for row in _tallies(judged, [step for found in built.values() for step in found])]
    packages = [step for step in steps if step.base.is_package and step.test.is_package and step.is_of(SIZES[0])]
    known = sum(judged.bisected(step) is not None for step in packages)
    rest = (
        f"Of {plural(len(packages), 'step')} of {100 * SIZES[0]:g} % and more between packages {known} have the cause "
        "that was found between the sources of both; for the others, `lab atlas show CASE` has functions alone."
    )
    table = columns(rows, (3, 4, 5)) if built else ["It has no two sources that one compiler built."]
    lines = [about(judged.atlas), "", *table, "", wrapped(rest, 0, width)]
    return Group(*(Text(visible_lines(line)) for line in lines))


def _tallies(judged: Judgement, steps: Sequence[Change]) -> Iterator[list[str]]:
    """A row for each size: the steps, those with a cause, and those whose cause is proved both ways."""
    for least in SIZES:
        large = [step for step in steps if step.is_of(least)]
        found = [cause for step in large if (cause := judged.bisected(step))]
        both = sum(cause.both_ways for cause in found)
        yield [f"{100 * least:g} % and more", *(str(count) for count in (len(large), len(found), both))]


# ---- JSON


def case_document(judged: Judgement, info: CaseInfo) -> dict[str, Any]:
    """A case as `lab atlas show --json` prints it."""
    cells = []
    for column in judged.atlas.columns:
        cell = judged.cell(info, column)
        numbers: dict[str, Any] = {"hole": cell}
        if isinstance(cell, Cell):
            numbers = {basis: list(cell.values(basis)) for basis in judged.atlas.bases}
        cells.append({"kernel": column.id, "series": column.series, "date": column.date, **numbers})
    return {
        "schema": "lab.atlas.case/1",
        "architecture": judged.atlas.architecture,
        "model_version": judged.atlas.model_version,
        "case": info.name,
        "group": info.group,
        "cells": cells,
        "changes": [change_document(judged, change) for change in of_case(judged, info)],
    }


def pair_document(judged: Judgement, base: Column, test: Column) -> dict[str, Any]:
    """Two kernels as `lab atlas diff --json` prints them."""
    return {
        "schema": "lab.atlas.diff/1",
        "architecture": judged.atlas.architecture,
        "model_version": judged.atlas.model_version,
        "base": base.id,
        "test": test.id,
        "remarks": remarks(base, test),
        "cases": {
            basis: [change_document(judged, change) for change in judged.pair(base, test, basis)]
            for basis in judged.atlas.bases
        },
    }


def change_document(judged: Judgement, change: Change) -> dict[str, Any]:
    """A change with its numbers and reasons."""
    found = judged.explained(change)
    comparison = change.comparison
    return {
        "case": change.case.name,
        "base": change.base.id,
        "test": change.test.id,
        "date": change.test.date,
        "basis": change.basis,
        "kind": "creep" if change.creep else "step",
        "verdict": str(comparison.verdict),
        "ratio": comparison.ratio,
        "interval": list(comparison.interval) if comparison.interval else None,
        "reason": comparison.reason,
        "functions": records.plain(found.functions) if found else [],
        "why": reasons(judged, change),
    }
