"""`text`: comparisons for people. One is the terminal's table, several are columns side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console, Group
from rich.text import Text

from lab.compare import counters
from lab.compare.results import BESIDE, AbResult, CaseResult
from lab.core import text
from lab.core.text import aligned, visible_record
from lab.kernels import architecture
from lab.report import wording
from lab.report.curves import sweeps_of
from lab.report.wording import cut, shown
from lab.stats.verdict import Outcome, percent

if TYPE_CHECKING:
    from lab.report.inputs import Comparisons, StoredComparison

_STYLES = {
    "failed": "bold magenta",
    "unsupported": "magenta",
    Outcome.REGRESSION: "bold red",
    Outcome.IMPROVEMENT: "bold green",
    Outcome.SAME: "",
    Outcome.UNKNOWN: "yellow",
}


def show(result: AbResult, console: Console) -> None:
    """Print a result as a table."""
    text.show(lambda width: _table(result, width), console)


def comparison(comparisons: Comparisons) -> str:
    """One result as its table, several as one table with a column each."""
    if not comparisons.several:
        return text.plain(lambda width: _table(comparisons.items[0].result, width))
    lines = [*_legend(comparisons), ""]
    lines += text.columns([("case", "metric", *comparisons.letters), *side_by_side(comparisons)])
    if opposite := _opposite(comparisons):
        lines += ["", f"opposite directions: {', '.join(opposite)}"]
    if comparisons.mark:
        lines += ["", comparisons.mark]
    return "\n".join(lines) + "\n"


# ---- one result


def _table(result: AbResult, width: int) -> Group:
    """Arms, one row a case, the verdict, and how to see it again."""
    result = visible_record(result)
    summary = wording.summary(result)
    return Group(
        _arms(result, width),
        Text(),
        *(_summary(summary, result, width) if summary else [_cases(result, result.cases, width)]),
        Text(),
        *_sweeps(result),
        *_list(*wording.robustness(result)),
        *_list(*wording.model_checks(result)),
        _verdict(result),
        *([Text(text.wrapped(f"why: {wording.cause(result)}", 2, width))] if result.cause else []),
        *_remedies(result, width),
        Text(_footer(result, width), style="dim"),
    )


def _arms(result: AbResult, width: int) -> Text:
    arms = Text()
    if trees := wording.trees(result):
        arms.append("tree  ", style="bold").append(f"{trees}\n")
    for name, arm in (("base", result.base), ("test", result.test)):
        arms.append(f"{name}  ", style="bold").append(text.wrapped(f"{name}  {arm}", 6, width)[6:] + "\n")
    for note in result.notes:
        arms.append(text.wrapped(f"      {note}", 6, width) + "\n", style="dim")
    arms.rstrip()
    return arms


_NAME = 12
"""A name is cut to no less."""

_PROSE = 120
"""Notes are wrapped here, if nothing narrower is there to read them."""


def _cases(result: AbResult, cases: Sequence[CaseResult], width: int) -> Text:
    """The unit, one line a case, and below them the notes of the cases that have some."""
    lines = _lines(result, cases, width)
    headings = [cell.strip() for cell in lines[0]]
    table = Text()
    table.append(f"{text.wrapped(unit, 0, width)}\n" if (unit := _unit(cases)) else "", style="dim")
    for line, case in zip(lines, [None, *cases], strict=True):
        table.append("  ".join(line[:-1]) + "  ", style="bold" if case is None else "")
        table.append(f"{line[-1].rstrip()}\n", style="bold" if case is None else _STYLES[case.word])
    notes = [(wording.label(case, result), _note(case, result, headings)) for case in cases]
    said = [text.wrapped(f"{name}: {note}", 4, min(width, _PROSE)) for name, note in notes if note]
    table.append("\n" + "\n".join(said) if said else "", style="dim")
    table.rstrip()
    return table


def _lines(result: AbResult, cases: Sequence[CaseResult], width: int) -> list[list[str]]:
    """The heading and the cases in cells; on a narrow terminal without the shares of the change, then with less."""
    columns = [column for column in _columns(result) if column.of is None or any(map(column.of, cases))]
    lines = _aligned(columns, cases)
    if not _fits(lines, width):
        columns = [_narrow(column) for column in columns if column.heading not in BESIDE]
        lines = _aligned(columns, cases)
    if not _fits(lines, width):
        lines = _aligned([column for column in columns if column.of is None], cases)
    if not _fits(lines, width):
        most = max(len(lines[0][0]) - (_width(lines) - width), _NAME)
        lines = [[cut(line[0].rstrip(), most).ljust(most), *line[1:]] for line in lines]
    return lines


def _aligned(columns: Sequence[_Column], cases: Sequence[CaseResult]) -> list[list[str]]:
    cells = [[column.cell(case) for column in columns] for case in cases]
    return aligned(
        [[column.heading for column in columns], *cells], [i for i, column in enumerate(columns) if column.right]
    )


def _width(lines: Sequence[Sequence[str]]) -> int:
    return max(len("  ".join(line).rstrip()) for line in lines)


def _fits(lines: Sequence[Sequence[str]], width: int) -> bool:
    return width >= text.UNBOUND or _width(lines) <= width


def _narrow(column: _Column) -> _Column:
    """A column as narrow as it can be: the interval has the unit of the change beside it."""
    if column.heading != "interval":
        return column
    return column._replace(cell=lambda case: column.cell(case).replace(" %", ""))


class _Column(NamedTuple):
    """A column of the table. of: the cases that have it; None for all."""

    heading: str
    cell: Callable[[CaseResult], str]
    right: bool = False
    of: Callable[[CaseResult], object] | None = None


def _columns(result: AbResult) -> list[_Column]:
    def name(case: CaseResult) -> str:
        return wording.label(case, result) + (" (control)" if case.control else "")

    return [
        _Column("case", name),
        _Column("base", lambda case: shown(case.primary.base), right=True),
        _Column("test", lambda case: shown(case.primary.test), right=True),
        _Column("change", lambda case: percent(case.primary.ratio), right=True),
        _Column("interval", lambda case: case.primary.interval_text),
        *map(_whole, wording.WHOLE),
        *map(_beside, BESIDE),
        _Column("verdict", lambda case: case.word),
    ]


def _whole(name: str) -> _Column:
    def ratio(case: CaseResult) -> float | None:
        return wording.whole(case.whole).get(name)

    return _Column(name, lambda case: "" if ratio(case) is None else percent(ratio(case)), right=True, of=ratio)


def _beside(name: str) -> _Column:
    def change(case: CaseResult) -> str:
        return percent(case.beside[name].ratio) if name in case.beside else ""

    return _Column(name, change, right=True, of=change)


def _unit(cases: Sequence[CaseResult]) -> str:
    """The metric, if all cases share one, and the count of instructions beside it."""
    units = {f"{case.primary.name}, {case.primary.unit}" for case in cases}
    counts = {case.instructions.name for case in cases if case.instructions}
    count = f"; instructions: {counts.pop()}" if len(counts) == 1 else ""
    return f"{units.pop()}{count}" if len(units) == 1 else ""


def _note(case: CaseResult, result: AbResult, headings: Sequence[str]) -> str:
    """The reason of an open verdict, the host's certificate, and the counters that moved most.

    headings: of the columns; the parts of the whole cost that have none there are in the note.
    """
    certificate = result.live.certificates.get(case.name) if result.live else None
    dropped = {name: ratio for name, ratio in wording.whole(case.whole).items() if name not in headings}
    parts = ", ".join(f"{name} {percent(ratio)}" for name, ratio in dropped.items())
    moved = [f"{c.name} {shown(c.base)} -> {shown(c.test)}" for c in counters.movers(case, result.threshold)]
    return "; ".join(filter(None, [result.why(case), certificate, parts, *case.notes, ", ".join(moved)]))


def _summary(summary: wording.Summary, result: AbResult, width: int) -> list[Text]:
    """Counts by group, the largest changes with all of their numbers, and a line for each case that is open."""
    heading, *rows = text.columns(summary.counts, range(1, len(summary.counts[0])))
    parts = [Text(heading, style="bold"), *map(Text, rows), Text()]
    parts += [Text(f"{summary.changes}{':' if summary.largest else ''}", style="bold")]
    parts += [_cases(result, summary.largest, width)] if summary.largest else []
    if summary.smaller:
        smaller = [f"{wording.label(case, result)} {wording.change(case.primary)}" for case in summary.smaller]
        parts.append(Text(text.wrapped(f"smaller: {', '.join(smaller)}", 2, width)))
    if summary.open:
        cells = [
            (f"  {wording.label(case, result)}", wording.change(case.primary), result.why(case))
            for case in summary.open
        ]
        parts += [Text(), Text("no verdict:", style="bold")]
        parts += [
            Text(text.wrapped(line, 4, width), style=_STYLES[case.word])
            for line, case in zip(text.columns(cells, [1]), summary.open, strict=True)
        ]
    same = f"same: {text.plural(summary.same, 'case')}, not shown (`lab report {result.result} --format csv` has all)"
    return [*parts, *([Text(), Text(same)] if summary.same else [])]


def _sweeps(result: AbResult) -> list[Text]:
    lines = [Text(sweep.line) for sweep in sweeps_of(result)]
    return [*lines, Text()] if lines else []


def _list(heading: str, cases: Sequence[tuple[str, str]]) -> list[Text]:
    """A heading and its lines about some cases; nothing without any."""
    lines = [Text(line) for line in text.columns([(f"  {name}", how) for name, how in cases])]
    return [Text(heading, style="bold"), *lines, Text()] if lines else []


def _verdict(result: AbResult) -> Text:
    verdict = Text("verdict: ", style="bold")
    verdict.append(wording.word(result), style=_STYLES[result.verdict])
    verdict.append(
        f": {wording.reason(result)} ({wording.threshold(result)}, {text.plural(len(result.seeds), result.pairs)})"
    )
    return verdict


_NAMED = 3
"""Cases that a remedy names."""


def _remedies(result: AbResult, width: int) -> list[Text]:
    """One line for each way to settle cases that are open."""
    lines = []
    for remedy, cases in wording.remedies(result).items():
        names = [wording.label(case, result) for case in cases]
        more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
        named = text.listed([*names[:_NAMED], *more], "and")
        lines.append(Text(text.wrapped(f"to settle {named}: {remedy}", 2, width), style="yellow"))
    return lines


def _footer(result: AbResult, width: int) -> str:
    around = result.environment
    lines = [
        f"{result.mode} mode, {result.counted_in}: QEMU {around.qemu}, {around.machine}, "
        f"{around.guest_size}, fingerprint {around.fingerprint}"
    ]
    if live := result.live:
        lines.append(str(live))
        lines += [f"perf stat: {live.perf}"] if live.perf else []
        lines += [f"perf record, {case}: {profile}" for case, profile in live.profiles.items()]
    steps = [f"{word}: {command}" for word, command in wording.next_steps(result).items()]
    lines += [f"result {result.result}", *(["   ".join(steps)] if _fits([[*steps, ""]], width) else steps)]
    return "\n".join(text.wrapped(line, 2, width) for line in lines)


# ---- several results


def side_by_side(comparisons: Comparisons) -> list[tuple[str, ...]]:
    """One row per case and primary metric that any of the results has: its change in each of them."""
    rows = []
    for name in dict.fromkeys(case.name for item in comparisons.items for case in item.result.cases):
        cases = [next((case for case in item.result.cases if case.name == name), None) for item in comparisons.items]
        metrics = [_metric(item, case) if case else None for item, case in zip(comparisons.items, cases, strict=True)]
        for metric in dict.fromkeys(filter(None, metrics)):
            cells = [_cell(case) if case and own == metric else "-" for case, own in zip(cases, metrics, strict=True)]
            rows.append((name, metric, *cells))
    return rows


def _opposite(comparisons: Comparisons) -> list[str]:
    """The cases that some of the results call better, and others worse."""
    verdicts: dict[str, set[str]] = {}
    for item in comparisons.items:
        for case in item.result.cases:
            if case.verdict.is_change:
                verdicts.setdefault(case.name, set()).add(case.verdict)
    return [name for name, found in verdicts.items() if len(found) > 1]


def _metric(item: StoredComparison, case: CaseResult) -> str:
    primary = case.primary
    return f"{primary.name}, {wording.unit(primary, item.result)}"


def _cell(case: CaseResult) -> str:
    primary, count = case.primary, case.instructions
    beside = f" (instructions {wording.change(count)})" if count else ""
    return f"{wording.change(primary)} {primary.interval_text} {case.word}{beside}".replace("  ", " ")


def _guests(result: AbResult) -> str:
    found = architecture.of_machine(result.environment.machine).name
    return "" if found == architecture.DEFAULT else f", {found}"


def _legend(comparisons: Comparisons) -> list[str]:
    lines = []
    for letter, item in zip(comparisons.letters, comparisons.items, strict=True):
        result = item.result
        lines += [
            f"{letter}  {result.result}  {wording.sentence(result)}",
            f"   base  {result.base}",
            f"   test  {result.test}",
            f"   fingerprint {result.environment.fingerprint}, QEMU {result.environment.qemu}{_guests(result)}",
        ]
    return lines
