"""`md`: for an issue or a merge request. Text from elsewhere is in code spans, in which no markup or mention counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lab.bisection.answer import Culprit, Step
from lab.compare import counters
from lab.compare.explain import CaseExplanation, differing
from lab.compare.matrix_results import Cell, MatrixResult
from lab.compare.results import AbResult, CaseResult, ResultEnvironment, mean
from lab.core.git import short
from lab.core.text import number, plural, visible_record
from lab.report import explain_text, heatmap, matrix_text, text, wording
from lab.report.curves import sweeps_of
from lab.report.inputs import Comparisons, StoredBisection, StoredMatrix
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


def _fold(summary: str, rows: Sequence[Sequence[str]], right: Sequence[int]) -> Iterator[str]:
    """A table behind a fold."""
    yield f"<details><summary>{summary}</summary>"
    yield ""
    yield from table(rows, right)
    yield "</details>"
    yield ""


def _around(around: ResultEnvironment) -> str:
    return f"QEMU {code(around.qemu)}, {code(around.machine)}, fingerprint {code(around.fingerprint)}"


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


# ---- comparisons


def comparison(comparisons: Comparisons) -> str:
    """Verdict, arms and a table of the cases; counters that moved behind a fold."""
    lines: list[str] = []
    if comparisons.mark:
        lines += [f"> **{comparisons.mark}**", ""]
    if comparisons.several:
        lines += _side_by_side(comparisons)
    for item in comparisons.items:
        lines += _result(item.result)
    return _joined(lines)


def _side_by_side(comparisons: Comparisons) -> Iterator[str]:
    for letter, item in zip(comparisons.letters, comparisons.items, strict=True):
        yield f"- {letter}: {code(item.result.result)} {code(wording.sentence(item.result))}"
    yield ""
    rows = [(code(name), code(metric), *cells) for name, metric, *cells in text.side_by_side(comparisons)]
    yield from table([("case", "metric", *comparisons.letters), *rows])


def _result(result: AbResult) -> Iterator[str]:
    yield f"### Kernel comparison: {wording.word(result)}"
    yield ""
    yield code(wording.sentence(result))
    yield ""
    yield from [f"Why: {code(why)}", ""] if (why := wording.cause(result)) else []
    yield from [f"- tree: {code(trees)}"] if (trees := wording.trees(result)) else []
    yield f"- base: {code(str(result.base))}"
    yield f"- test: {code(str(result.test))}"
    yield from (f"- note: {code(note)}" for note in result.notes)
    yield ""
    if summary := wording.summary(result):
        yield from _summary(summary, result)
    else:
        yield from _cases(result, result.cases)
    curves = [f"- {code(sweep.line)}" for sweep in sweeps_of(result)]
    yield from [*curves, ""] if curves else []
    costs, robust = wording.robustness(result)
    yield from _list(f"Verdicts {costs}", robust)
    heading, checks = wording.model_checks(result)
    yield from _list(heading.capitalize(), checks)
    yield from _movers(result, summary.largest if summary else result.cases)
    yield f"{_around(result.environment)}. "
    yield f"Repeat with {code(result.repeat)}."
    yield ""


def _list(heading: str, cases: Sequence[tuple[str, str]]) -> list[str]:
    """A heading and its lines about some cases; nothing without any."""
    lines = [f"- {code(name)}: {how}" for name, how in cases]
    return [heading, "", *lines, ""] if lines else []


def _cases(result: AbResult, cases: Sequence[CaseResult]) -> Iterator[str]:
    """A table of some cases, and their notes."""
    beside, whole = result.beside, wording.whole_columns(cases)
    heading = ("case", "metric", "base", "test", "change", "interval", *whole, *beside, "verdict")
    rows = [_case(case, result, beside, whole) for case in cases]
    yield from table([heading, *rows], right=(2, 3, 4))
    noted = [f"- {code(case.name)}: {code(note)}" for case in cases for note in case.notes]
    yield from [*noted, ""] if noted else []


def _summary(summary: wording.Summary, result: AbResult) -> Iterator[str]:
    """Counts by group, the largest changes, and the others by name."""
    heading, *rows = summary.counts
    yield from table([heading, *((code(name), *counts) for name, *counts in rows)], right=range(1, len(heading)))
    yield f"{summary.changes.capitalize()}{':' if summary.largest else '.'}"
    yield ""
    yield from _cases(result, summary.largest) if summary.largest else []
    if summary.smaller:
        smaller = [f"{code(case.name)} {wording.change(case.primary)}" for case in summary.smaller]
        yield f"Smaller: {', '.join(smaller)}."
        yield ""
    if summary.open:
        yield from ["No verdict:", ""]
        yield from (
            f"- {code(case.name)} {wording.change(case.primary)}: {code(result.why(case))}" for case in summary.open
        )
        yield ""
    yield f"Same: {plural(summary.same, 'case')}, not shown."
    yield ""


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


def _movers(result: AbResult, cases: Sequence[CaseResult]) -> Iterator[str]:
    changed = [case for case in cases if case.verdict in ("regression", "improvement")]
    if not changed:
        return
    rows = [("case", "metric", "base", "test", "change")]
    for case in changed:
        for c in counters.changed(case)[:_MOST_MOVERS]:
            metric = f"{c.name}, {wording.unit(c, result, versions=False)}"
            rows.append((code(case.name), code(metric), shown(c.base), shown(c.test), wording.change(c)))
    if len(rows) > 1:
        yield from _fold("Movements in the cases that changed", rows, right=(2, 3, 4))


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
    lines = [f"### Kernel bisection: {answer.outcome}", "", code(wording.answer_sentence(answer)), ""]
    for word, end in zip(answer.terms, (answer.old, answer.new), strict=True):
        lines.append(f"- {word}: {code(end.id)} {code(end.title)}")
    if answer.ends is not None:
        count = wording.beside(answer.instructions)
        lines.append(f"- ends: {_effect(answer.ends)}{count}: {answer.ends.verdict} ({wording.threshold(answer)})")
        lines += [f"- whole cost: {three}"] if (three := wording.three(answer.whole)) else []
    lines += [f"- searched: {answer.candidates:,} {answer.kind}, {code(f'{answer.workload}:{answer.case}')}", ""]
    for found in answer.changes:
        lines += _change(stored, found)
    if answer.path:
        counted = answer.instructions is not None
        rows = [("step", stored.answer.one, "subject", "state", "change", *(["instructions"] if counted else []))]
        rows += [(str(i), *_step(step, counted=counted)) for i, step in enumerate(answer.path, start=1)]
        lines += _fold(f"Path taken: {answer.measured} measured, {len(answer.skipped)} not testable", rows, (0, 4, 5))
    if answer.environment is not None:
        lines.append(f"{_around(answer.environment)}. ")
    lines.append(f"Repeat with {code(answer.repeat)}; result {code(answer.result)}.")
    return _joined(lines)


def _change(stored: StoredBisection, found: Culprit) -> Iterator[str]:
    kind = f"**{found.direction or 'change'}**"
    if found.hunks is not None:
        hunks = found.hunks
        yield f"{kind}: {100 * hunks.share:.0f} % of it by {plural(hunks.hunks, 'hunk')} of {code(found.title)}"
        yield from ["", "```diff", *hunks.diff[:_MOST_LINES], "```", ""]
        if len(hunks.diff) > _MOST_LINES:
            yield f"- and {len(hunks.diff) - _MOST_LINES} more lines"
    elif found.is_single:
        yield f"{kind}: {code(found.commit)} {code(found.title)}"
        yield ""
        yield from [f"- author: {code(found.author)}, {found.date}"] if found.author else []
    else:
        yield f"{kind}: one of {len(found.suspects)} {stored.answer.kind}, which could not be told apart:"
        yield ""
        titles = {place.candidate.id: place.candidate.title for place in stored.commits}
        for name in found.suspects[:_MOST_SUSPECTS]:
            why = "could not be tested" if name in found.untested else "not measured"
            yield f"- {code(short(name))} {code(titles.get(name, ''))}" + ("" if name == found.commit else f" ({why})")
        if len(found.suspects) > _MOST_SUSPECTS:
            yield f"- and {len(found.suspects) - _MOST_SUSPECTS} more"
    if (effect := wording.effect_of(found)) is not None:
        yield f"- effect: {_effect(effect)}{wording.beside(found.instructions)}"
        yield from [f"- whole cost: {three}"] if (three := wording.three(found.whole)) else []
        yield from [f"- no word: {code(why)}"] if (why := wording.against(found)) else []
    yield f"- confidence: {wording.share(found.confidence)} sure"
    yield from _proof(found)
    yield ""
    if found.proof and found.proof.functions:
        rows = [("function", "before", "with it")]
        rows += [(code(f.name), number(f.base), number(f.test)) for f in found.proof.functions]
        unit = explain_text.unit_of(found.proof.functions[0].cost)
        yield from _fold(f"Functions that changed, {unit} an operation", rows, right=(1, 2))


def _proof(found: Culprit) -> Iterator[str]:
    proof = found.proof
    if proof is None:
        return
    if proof.same_image:
        yield "- proof: its kernel is its parent's, byte for byte: it cannot be the culprit"
    else:
        verdict = "say the same" if proof.confirmed else "do NOT confirm it"
        yield f"- proof: {proof.fresh_runs} against its parent {verdict}"
    if proof.applied is not None:
        hunks, effect = f"them{proof.applied_beside}", _effect(proof.applied)
        yield f"- the other way, the older end with {hunks}: {effect}: {proof.applied.verdict}"
    elif proof.not_applied:
        yield f"- the other way cannot be tested: {code(proof.not_applied)}"
    if proof.reverted is not None:
        yield f"- reverted on the newer end: {_effect(proof.reverted)}: {proof.reverted.verdict}"
    elif proof.not_reverted:
        yield f"- not reverted on the newer end: {code(proof.not_reverted)}"


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
    result, around = stored.result, stored.result.environment
    lines = ["### Kernel matrix", "", code(matrix_text.heading(result)), "", code(result.summary), ""]
    lines += [f"- {code(name)}: {code(kernel)}" for name, kernel in matrix_text.kernels(result)]
    lines.append("")
    for grid in matrix_text.grids(result):
        lines += [f"**{code(grid.title)}**", ""] if grid.title else []
        heading = (code(grid.corner), *map(code, grid.columns))
        rows = [
            (code(name), *(_cell(cell, result) for cell in cells))
            for name, cells in zip(grid.rows, grid.cells, strict=True)
        ]
        lines += table([heading, *rows], right=range(1, len(heading)))
        if counts := matrix_text.counts_heading(result):
            rows = [
                (code(name), *(matrix_text.count(cell, result.state(cell)) for cell in cells))
                for name, cells in zip(grid.rows, grid.cells, strict=True)
            ]
            lines += [f"{code(counts)}:", "", *table([heading, *rows], right=range(1, len(heading)))]
    for cell in result.cells:
        if cell.reasons:
            lines.append(f"- {code(cell.name)} {code(cell.arm)}: {code('; '.join(cell.reasons))}")
    lines += ["", f"{code(matrix_text.clocks(result))}, QEMU {code(around.qemu)}, {code(around.machine)}, fingerprint "]
    lines.append(f"{code(around.fingerprint)}, {wording.threshold(result)}. Repeat with {code(result.repeat)}.")
    return _joined(lines)


def _cell(cell: Cell, result: MatrixResult) -> str:
    state = result.state(cell)
    text = " ".join(heatmap.texts(cell, state)).strip()
    return f"**{text}**" if state in ("regression", "improvement") and cell.holm is not False else text
