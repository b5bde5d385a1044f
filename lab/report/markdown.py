"""`md`: for an issue or a merge request. Text from elsewhere is in code spans, in which no markup or mention counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lab.bisection.answer import Culprit, Proof, Step
from lab.compare import counters
from lab.compare.explain import CaseExplanation, differing
from lab.compare.matrix_results import Cell, MatrixResult
from lab.compare.results import AbResult, CaseResult, ResultEnvironment, mean
from lab.core.git import short
from lab.core.text import number, plural, visible_record
from lab.report import explain_text, heatmap, matrix_text, templates, text, wording
from lab.report.curves import sweeps_of
from lab.report.inputs import Comparisons, StoredBisection, StoredMatrix
from lab.report.matrix_text import Grid
from lab.report.wording import shown
from lab.stats.verdict import Comparison, Outcome, percent

_MOST_MOVERS = 8
_MOST_SUSPECTS = 20
_MOST_LINES = 60
_MOST_FUNCTIONS = 8


def code(text: str) -> str:
    """Text as a code span that ends at the right place, in a table cell too."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """Rows as a table, the first of them its heading, and an empty line."""
    rule = ["---:" if i in right else "---" for i in range(len(rows[0]))]
    yield from (f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))
    yield ""


def _text(name: str, **values: Any) -> str:
    """A text that a template makes of some values."""
    return templates.text(
        f"markdown/{name}.md.j2", code=code, table=lambda *shown: "\n".join(table(*shown)), around=_around,
        plural=plural, **values,
    )  # fmt: skip


def _around(around: ResultEnvironment) -> str:
    return f"QEMU {code(around.qemu)}, {code(around.machine)}, fingerprint {code(around.fingerprint)}"


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


# ---- comparisons


def comparison(comparisons: Comparisons) -> str:
    """Verdict, arms and a table of the cases; counters that moved behind a fold."""
    beside = text.side_by_side(comparisons) if comparisons.several else []
    rows = [(code(name), code(metric), *cells) for name, metric, *cells in beside]
    return _text(
        "comparison",
        comparisons=comparisons,
        together=[("case", "metric", *comparisons.letters), *rows],
        counts=lambda summary: [summary.counts[0], *((code(name), *counts) for name, *counts in summary.counts[1:])],
        moved=lambda cases: [f"{code(case.name)} {wording.change(case.primary)}" for case in cases],
        cases=_cases,
        lists=_lists,
        movers=_movers,
    )


def _lists(result: AbResult) -> Iterator[tuple[str, list[str]]]:
    """Headings, and their lines about some cases."""
    yield "", [code(sweep.line) for sweep in sweeps_of(result)]
    costs, robust = wording.robustness(result)
    counted, checks = wording.model_checks(result)
    for heading, cases in ((f"Verdicts {costs}", robust), (counted.capitalize(), checks)):
        yield heading, [f"{code(name)}: {how}" for name, how in cases]


def _cases(result: AbResult, cases: Sequence[CaseResult]) -> list[tuple[str, ...]]:
    """The heading and the rows of a table of some cases."""
    beside, whole = result.beside, wording.whole_columns(cases)
    heading = ("case", "metric", "base", "test", "change", "interval", *whole, *beside, "verdict")
    return [heading, *(_case(case, result, beside, whole) for case in cases)]


def _case(case: CaseResult, result: AbResult, beside: Sequence[str], whole: Sequence[str]) -> tuple[str, ...]:
    primary, cost = case.primary, wording.whole(case.whole)
    verdict = f"**{case.verdict}**" if case.verdict in ("regression", "improvement") else case.word
    if reason := result.why(case):
        verdict += f" ({reason})"
    return (
        code(case.name) + (" (control)" if case.control else ""),
        code(f"{primary.name}, {wording.unit(primary, result, versions=False)}"),
        shown(primary.base),
        shown(primary.test),
        wording.change(primary),
        primary.interval_text,
        *(percent(cost[name]) if name in cost else "" for name in whole),
        *(wording.change(case.beside[name]) if name in case.beside else "" for name in beside),
        verdict,
    )


def _movers(result: AbResult, cases: Sequence[CaseResult]) -> list[tuple[str, ...]]:
    """The heading and the rows of a table of the counters that moved; nothing without any."""
    rows = [
        (code(case.name), code(f"{c.name}, {wording.unit(c, result, versions=False)}"), shown(c.base), shown(c.test),
         wording.change(c))
        for case in cases
        if case.verdict in ("regression", "improvement")
        for c in counters.changed(case)[:_MOST_MOVERS]
    ]  # fmt: skip
    return [("case", "metric", "base", "test", "change"), *rows] if rows else []


def why(reason: CaseExplanation) -> str:
    """The functions that make a case differ, those with the largest part of it first."""
    explanation = visible_record(reason.explanation)
    rows = [
        explain_text.cells(explanation, row, reason.cost, same=reason.case.verdict == Outcome.SAME)
        for row in differing(explanation, reason.cost)
    ]
    if not rows:
        return _joined([f"No function of {code(reason.case.name)} differs."])
    named = [(code(name), *cells) for name, *cells in rows[:_MOST_FUNCTIONS]]
    lines = [f"Why {code(reason.case.name)} differs, by function:", ""]
    return _joined([*lines, *table([explain_text.heading(reason.cost), *named], right=(1, 2, 3, 4))])


def shares(result: AbResult) -> str:
    """The kernel's part of each case's modelled cycles, in both arms; empty if none were modelled."""
    rows = [(code(case.name), *map(_share, found)) for case in result.cases if (found := _kernel_shares(case))]
    return _joined(list(table([("kernel's share of the cycles", "base", "test"), *rows], right=(1, 2)))) if rows else ""


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _kernel_shares(case: CaseResult) -> list[float]:
    """The kernel's part of a case's modelled cycles, of base and of test; empty without a model."""
    of = {c.name: c for c in case.metrics}
    kernel, user = of.get("kernel_cycles"), of.get("user_cycles")
    if case.failed or not kernel or not user:
        return []
    arms = [(mean(kernel.base), mean(user.base)), (mean(kernel.test), mean(user.test))]
    return [k / (k + u) for k, u in arms if k is not None and u is not None and k + u]


# ---- bisections


def bisection(stored: StoredBisection) -> str:
    """The answer, each change, and the path behind a fold."""
    answer = stored.answer
    counted = answer.instructions is not None
    path = [("step", answer.one, "subject", "state", "change", *(["instructions"] if counted else []))]
    path += [(str(i), *_step(step, counted=counted)) for i, step in enumerate(answer.path, start=1)]
    return _text(
        "bisection",
        answer=answer,
        path=path,
        suspects=lambda found: list(_suspects(stored, found)),
        functions=_functions,
        effect_text=_effect,
        unit_of=explain_text.unit_of,
        short=short,
        MOST_LINES=_MOST_LINES,
    )


def _suspects(stored: StoredBisection, found: Culprit) -> Iterator[str]:
    """The commits that a change may be by, and why they could not be told apart."""
    titles = {place.candidate.id: place.candidate.title for place in stored.commits}
    for name in found.suspects[:_MOST_SUSPECTS]:
        why = "could not be tested" if name in found.untested else "not measured"
        yield f"{code(short(name))} {code(titles.get(name, ''))}" + ("" if name == found.commit else f" ({why})")
    if len(found.suspects) > _MOST_SUSPECTS:
        yield f"and {len(found.suspects) - _MOST_SUSPECTS} more"


def _functions(proof: Proof) -> list[tuple[str, ...]]:
    rows = [(code(f.name), number(f.base), number(f.test)) for f in proof.functions]
    return [("function", "before", "with it"), *rows]


def _step(step: Step, *, counted: bool) -> tuple[str, ...]:
    why = f": {code(step.why)}" if step.why else ""
    change = percent(step.ratio) if step.ratio is not None else ""
    count = percent(step.instructions) if step.instructions is not None else ""
    shown = (code(short(step.commit)), code(step.title), f"{code(step.decision)}{why}", change)
    return (*shown, count) if counted else shown


def _effect(c: Comparison) -> str:
    unit = f"{c.name}, {c.unit}"
    return f"{percent(c.ratio)} {c.interval_text} {code(unit)} ({shown(c.base)} → {shown(c.test)})"


# ---- matrices


def matrix(stored: StoredMatrix) -> str:
    """Summary, kernels, a table for each grid, then every reason why a cell has no number."""
    result = stored.result

    def rows(grid: Grid, shown: Callable[[Cell], str]) -> list[list[str]]:
        heading = [code(word) for word in (grid.corner, *grid.columns)]
        named = zip(grid.rows, grid.cells, strict=True)
        return [heading, *([code(name), *map(shown, cells)] for name, cells in named)]

    return _text(
        "matrix",
        result=result,
        phrases=matrix_text,
        cells=lambda grid: rows(grid, lambda cell: _cell(cell, result)),
        counts=lambda grid: rows(grid, lambda cell: matrix_text.count(cell, result.state(cell))),
    )


def _cell(cell: Cell, result: MatrixResult) -> str:
    state = result.state(cell)
    text = " ".join(heatmap.texts(cell, state)).strip()
    return f"**{text}**" if state in ("regression", "improvement") and cell.holm is not False else text
