"""`md`: for a merge request. Every word from elsewhere is in a code span, where no markup or mention counts.

`md` of a bisection: for an issue or a merge request. Every word from elsewhere is in a code span.

`md` of a matrix: a table for each grid, then every reason why a cell has no number.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from lab.bisection.answer import Answer, Found, Step
from lab.compare import matrix
from lab.compare.matrix_results import Cell, MatrixResult
from lab.compare.results import AbResult, CaseResult
from lab.core.text import number
from lab.report import heatmap, inputs, matrix_text, text, wording
from lab.report.inputs import Bisection, Matrix, Report, Reports, certainty, effect_of, short
from lab.stats.verdict import Comparison, percent

_MOVERS = 8


def render(reports: Reports) -> str:
    """Verdict, arms and a table of the cases; what moved behind a fold."""
    lines: list[str] = []
    if reports.mark:
        lines += [f"> **{reports.mark}**", ""]
    if reports.several:
        lines += _side_by_side(reports)
    for item in reports.items:
        lines += _one(item)
    return "\n".join(lines).rstrip() + "\n"


def code(text: str) -> str:
    """Text as a code span that ends where it should, in a table cell too."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """Rows as a table, the first of them its heading."""
    yield _row(rows[0])
    yield _row(["---:" if i in right else "---" for i in range(len(rows[0]))])
    yield from (_row(row) for row in rows[1:])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _side_by_side(reports: Reports) -> Iterator[str]:
    letters = text.letters(reports)
    for letter, item in zip(letters, reports.items, strict=True):
        yield f"- {letter}: {code(item.result.result)} {code(wording.sentence(item.result))}"
    yield ""
    rows = [(code(name), code(metric), *cells) for name, metric, *cells in text.rows(reports)]
    yield from table([("case", "metric", *letters), *rows])
    yield ""


def _one(item: Report) -> Iterator[str]:
    result = item.result
    yield f"### Kernel comparison: {result.verdict}"
    yield ""
    yield code(wording.sentence(result))
    yield ""
    for name, arm in (("base", result.base), ("test", result.test)):
        yield f"- {name}: {code(wording.arm_words(arm))}"
    for note in dict.fromkeys(arm.note for arm in (result.base, result.test) if arm.note):
        yield f"- note: {code(note)}"
    yield ""
    clocked = any(case.guest_clock for case in result.cases)
    heading = ("case", "metric", "base", "test", "change", "interval", *(["guest clock"] if clocked else []), "verdict")
    yield from table([heading, *(_case(case, result, clocked=clocked) for case in result.cases)], right=(2, 3, 4))
    yield ""
    yield from _details(result)
    around = result.environment
    yield f"QEMU {code(around.qemu)}, {code(around.machine)}, fingerprint {code(around.fingerprint)}. "
    yield f"Repeat with {code(result.reproduce)}."
    yield ""


def _case(case: CaseResult, result: AbResult, *, clocked: bool) -> tuple[str, ...]:
    primary = case.primary
    word = f"**{case.verdict}**" if case.verdict.is_change else str(case.verdict)
    if reason := wording.why(case, result):
        word += f" ({reason})"
    return (
        code(wording.case_name(case)) + (" (control)" if case.control else ""),
        code(f"{primary.name}, {wording.unit(primary, result)}"),
        wording.shown(primary.base),
        wording.shown(primary.test),
        wording.change(primary),
        primary.interval_text,
        *([wording.change(clock) if (clock := wording.clock(case)) else ""] if clocked else []),
        word,
    )


def _details(result: AbResult) -> Iterator[str]:
    changed = [case for case in result.cases if case.verdict.is_change]
    if not changed:
        return
    yield "<details><summary>What moved in the cases that changed</summary>"
    yield ""
    rows = [("case", "metric", "base", "test", "change")]
    for case in changed:
        for c in [c for c in wording.ranked(case.metrics) if c.base != c.test][:_MOVERS]:
            cells = (wording.shown(c.base), wording.shown(c.test), wording.change(c))
            rows.append((code(wording.case_name(case)), code(f"{c.name}, {wording.unit(c, result)}"), *cells))
    yield from table(rows, right=(2, 3, 4))
    yield ""
    yield "</details>"
    yield ""


_SUSPECTS = 20


def render_bisection(one: Bisection) -> str:
    """The answer, what was found, and the path behind a fold."""
    answer = one.answer
    lines = [f"### Kernel bisection: {answer.outcome}", "", code(inputs.sentence(answer)), ""]
    for word, end in zip(answer.words, (answer.old, answer.new), strict=True):
        lines.append(f"- {word}: {code(end.id)} {code(end.title)}")
    if answer.ends is not None:
        lines.append(f"- ends: {_comparison(answer.ends)}: {answer.ends.verdict}")
    lines += [f"- searched: {answer.candidates} {answer.kind}, {code(f'{answer.workload}:{answer.case}')}", ""]
    for change in answer.changes:
        lines += _change(one, change)
    lines += [*_path(answer), *_around(answer)]
    return "\n".join(lines).rstrip() + "\n"


def _change(one: Bisection, change: Found) -> Iterator[str]:
    word = f"**{change.direction or 'change'}**"
    if change.settled:
        yield f"{word}: {code(change.commit)} {code(change.title)}"
        yield ""
        yield from [f"- author: {code(change.author)}, {change.date}"] if change.author else []
    else:
        yield f"{word}: one of {len(change.among)}, which could not be told apart:"
        yield ""
        titles = {place.candidate.id: place.candidate.title for place in one.places}
        for name in change.among[:_SUSPECTS]:
            why = "could not be tested" if name in change.untested else "not measured"
            yield f"- {code(short(name))} {code(titles.get(name, ''))}" + ("" if name == change.commit else f" ({why})")
        if len(change.among) > _SUSPECTS:
            yield f"- and {len(change.among) - _SUSPECTS} more"
    if (effect := effect_of(change)) is not None:
        yield f"- effect: {_comparison(effect)}"
    yield f"- confidence: {certainty(change)}"
    yield from _proof(change, inputs.fresh_words(one.answer))
    yield ""
    yield from _functions(change)


def _proof(change: Found, fresh: str) -> Iterator[str]:
    proof = change.proof
    if proof is None:
        return
    if proof.same_image:
        yield "- proof: its kernel is its parent's, byte for byte: it cannot be the culprit"
    else:
        yield f"- proof: {fresh} against its parent {'say the same' if proof.confirmed else 'do NOT confirm it'}"
    if proof.reverted is not None:
        yield f"- reverted on the newer end: {_comparison(proof.reverted)}: {proof.reverted.verdict}"
    elif proof.not_reverted:
        yield f"- not reverted on the newer end: {code(proof.not_reverted)}"


def _functions(change: Found) -> Iterator[str]:
    if not change.proof or not change.proof.functions:
        return
    rows = [("function", "before", "with it")]
    rows += [(code(f.name), number(f.base), number(f.test)) for f in change.proof.functions]
    yield "<details><summary>Functions that changed, modelled cycles an operation</summary>"
    yield ""
    yield from table(rows, right=(1, 2))
    yield ""
    yield "</details>"
    yield ""


def _path(answer: Answer) -> Iterator[str]:
    if not answer.path:
        return
    yield f"<details><summary>Path taken: {answer.measured} measured, {len(answer.skipped)} not testable</summary>"
    yield ""
    rows = [("step", "commit", "subject", "state", "change")]
    rows += [(str(i), *_step(step)) for i, step in enumerate(answer.path, start=1)]
    yield from table(rows, right=(0, 4))
    yield ""
    yield "</details>"
    yield ""


def _step(step: Step) -> tuple[str, str, str, str]:
    why = f": {code(step.why)}" if step.why else ""
    change = percent(step.ratio) if step.ratio is not None else ""
    return code(short(step.commit)), code(step.title), f"{code(step.decision)}{why}", change


def _around(answer: Answer) -> Iterator[str]:
    if (around := answer.environment) is not None:
        yield f"QEMU {code(around.qemu)}, {code(around.machine)}, fingerprint {code(around.fingerprint)}. "
    yield f"Repeat with {code(shlex.join(answer.reproduce))}; result {code(answer.result)}."


def _comparison(c: Comparison) -> str:
    unit = f"{c.name}, {c.unit}"
    return f"{percent(c.ratio)} {c.interval_text} {code(unit)} ({wording.shown(c.base)} → {wording.shown(c.test)})"


def render_matrix(one: Matrix) -> str:
    """Summary, kernels, grids, reasons."""
    result = one.result
    lines = ["### Kernel matrix", "", code(matrix_text.heading(result)), "", code(result.summary), ""]
    lines += [f"- {code(name)}: {code(words)}" for name, words in matrix_text.kernels(result)]
    lines.append("")
    for titled in matrix_text.grids(result):
        lines += [f"**{code(titled.title)}**", ""] if titled.title else []
        shown = titled.grid
        rows = [
            (code(name), *(_cell(cell, result) for cell in cells))
            for name, cells in zip(shown.rows, shown.cells, strict=True)
        ]
        heading = (code(shown.corner), *map(code, shown.columns))
        lines += [*table([heading, *rows], right=range(1, len(heading))), ""]
    lines += [*_reasons(result), *_matrix_around(result)]
    return "\n".join(lines).rstrip() + "\n"


def _cell(cell: Cell, result: MatrixResult) -> str:
    state = matrix.state(cell, result.baseline)
    words = f"{heatmap.value_words(cell, state)} {heatmap.change_words(cell, state)}".strip()
    return f"**{words}**" if state in ("regression", "improvement") and cell.holm is not False else words


def _reasons(result: MatrixResult) -> Iterator[str]:
    for cell in result.cells:
        if why := matrix_text.why(cell):
            yield f"- {code(f'{cell.workload}:{cell.case}')} {code(cell.arm)}: {code(why)}"
    yield ""


def _matrix_around(result: MatrixResult) -> Iterator[str]:
    around = result.environment
    yield f"{code(matrix_text.clocks(result))}, QEMU {code(around.qemu)}, {code(around.machine)}, fingerprint "
    yield f"{code(around.fingerprint)}, threshold {100 * result.threshold:g} %. Repeat with {code(result.reproduce)}."
