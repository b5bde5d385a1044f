"""`md`: for a merge request. Every word from elsewhere is in a code span, where no markup or mention counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lab.reporting import figures, textual
from lab.reporting.stored import Report, Reports
from lab.results import AbResult, CaseResult, interval, primary_of

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
    letters = textual.letters(reports)
    for letter, item in zip(letters, reports.items, strict=True):
        yield f"- {letter}: {code(item.result.result)} {code(figures.sentence(item.result))}"
    yield ""
    rows = [(code(name), code(metric), *cells) for name, metric, *cells in textual.rows(reports)]
    yield from table([("case", "metric", *letters), *rows])
    yield ""


def _one(item: Report) -> Iterator[str]:
    result = item.result
    yield f"### Kernel comparison: {result.verdict}"
    yield ""
    yield code(figures.sentence(result))
    yield ""
    for name, arm in (("base", result.base), ("test", result.test)):
        yield f"- {name}: {code(figures.arm_words(arm))}"
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
    primary = primary_of(case)
    word = f"**{case.verdict}**" if case.verdict in figures.CHANGED else str(case.verdict)
    if reason := figures.why(case, result):
        word += f" ({reason})"
    return (
        code(figures.case_name(case)) + (" (control)" if case.control else ""),
        code(f"{primary.name}, {figures.unit(primary, result)}"),
        figures.shown(primary.base),
        figures.shown(primary.test),
        figures.change(primary),
        interval(primary),
        *([figures.change(clock) if (clock := figures.clock(case)) else ""] if clocked else []),
        word,
    )


def _details(result: AbResult) -> Iterator[str]:
    changed = [case for case in result.cases if case.verdict in figures.CHANGED]
    if not changed:
        return
    yield "<details><summary>What moved in the cases that changed</summary>"
    yield ""
    rows = [("case", "metric", "base", "test", "change")]
    for case in changed:
        for c in [c for c in figures.ranked(case.metrics) if c.base != c.test][:_MOVERS]:
            cells = (figures.shown(c.base), figures.shown(c.test), figures.change(c))
            rows.append((code(figures.case_name(case)), code(f"{c.name}, {figures.unit(c, result)}"), *cells))
    yield from table(rows, right=(2, 3, 4))
    yield ""
    yield "</details>"
    yield ""
