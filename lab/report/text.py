"""A result as text for people: arms, cases, verdicts, and the counters that moved most.

`text`: the terminal's table without colour; several results as columns side by side.
"""

from __future__ import annotations

import io
import string
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from lab.compare import rounds
from lab.compare.results import AbResult, ArmResult, CaseResult
from lab.core import text
from lab.core.text import number, visible_record
from lab.report import wording
from lab.report.inputs import Report, Reports
from lab.stats import verdict
from lab.stats.verdict import Comparison, Outcome, percent

_STYLES = {
    Outcome.REGRESSION: "bold red",
    Outcome.IMPROVEMENT: "bold green",
    Outcome.SAME: "",
    Outcome.UNKNOWN: "yellow",
}


def show(result: AbResult, console: Console) -> None:
    """Print a result as a table."""
    text.show(lambda width: comparison_table(result, width), console)


def comparison_table(result: AbResult, width: int) -> RenderableType:
    """The whole text: arms, one row a case, the verdict, and how to see it again."""
    result = visible_record(result)
    return Group(
        _arms(result),
        Text(),
        _cases(result, width),
        Text(),
        _verdict(result),
        Text(_footer(result), style="dim"),
    )


def _arms(result: AbResult) -> Text:
    text = Text()
    for name, arm in (("base", result.base), ("test", result.test)):
        text.append(f"{name}  ", style="bold").append(_describe(arm) + "\n")
    for note in dict.fromkeys(arm.note for arm in (result.base, result.test) if arm.note):
        text.append(f"      {note}\n", style="dim")
    text.rstrip()
    return text


def _describe(arm: ArmResult) -> str:
    words = [arm.spec]
    if arm.commit and arm.commit != arm.spec:
        words.append(arm.commit[:12])
    if arm.subject:
        words.append(f'("{arm.subject}")')
    return " ".join([*words, f"Linux {arm.release}"])


_HEADINGS = ("case", "base", "test", "change", "interval", "clock", "verdict")
_RIGHT = ("base", "test", "change", "clock")
_WIDE = 130


def _cases(result: AbResult, width: int) -> Text:
    """One line a case; what moved most goes behind it, or below it where the terminal is narrow."""
    several = len({case.workload for case in result.cases}) > 1
    rows = [_HEADINGS, *(_cells(case, several=several) for case in result.cases)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    if not any(case.guest_clock for case in result.cases):
        rows, widths = [(*row[:5], *row[6:]) for row in rows], widths[:5] + widths[6:]
    text = Text()
    for row, case in zip(rows, [None, *result.cases], strict=True):
        cells = [
            cell.rjust(size) if heading in _RIGHT else cell.ljust(size)
            for heading, cell, size in zip(rows[0], row, widths, strict=True)
        ]
        text.append("  ".join(cells[:-1]) + "  ", style="bold" if case is None else "")
        text.append(cells[-1], style="bold" if case is None else _STYLES[case.verdict])
        notes = _heading_note(result.cases) if case is None else "; ".join(_notes(case, result))
        if notes:
            text.append("  " if width >= _WIDE else "\n    ").append(notes, style="dim")
        text.append("\n")
    text.rstrip()
    return text


def _cells(case: CaseResult, *, several: bool) -> tuple[str, ...]:
    primary = case.primary
    return (
        (f"{case.workload}:{case.case}" if several else case.case) + (" (control)" if case.control else ""),
        _mean(primary.base),
        _mean(primary.test),
        percent(primary.ratio),
        primary.interval_text,
        _clock_change(case),
        str(case.verdict),
    )


def _clock_change(case: CaseResult) -> str:
    """What the guest clock says beside modelled cycles: the change of the workload's own cost metric."""
    return next((percent(c.ratio) for c in case.metrics if c.name == case.guest_clock), "")


def _heading_note(cases: Sequence[CaseResult]) -> str:
    units = {f"{case.primary.name}, {case.primary.unit}" for case in cases}
    clocks = {case.guest_clock for case in cases if case.guest_clock}
    clock = f"; clock: {clocks.pop()} by the guest clock" if len(clocks) == 1 else ""
    return f"({units.pop()}{clock}; then what moved most)" if len(units) == 1 else ""


def _notes(case: CaseResult, result: AbResult) -> list[str]:
    """Why a verdict is not plainer, and the counters that moved most."""
    primary = case.primary
    notes = []
    if case.verdict == Outcome.UNKNOWN:
        notes.append(result.undecided(primary))
        notes += [beside] if (beside := rounds.beside(case.metrics)) and result.live else []
    elif case.verdict == Outcome.SAME and "below threshold" in primary.reason:
        notes.append(primary.reason)
    elif case.holm is False:
        notes.append("not beyond chance over all cases")
    if result.live and (told := result.live.certificates.get(f"{case.workload}:{case.case}")):
        notes.append(told)
    moved = ", ".join(_moved(c) for c in verdict.movers(_counters(case)))
    return [*notes, moved] if moved else notes


def _counters(case: CaseResult) -> list[Comparison]:
    """The case's counters: percentiles and the other clock follow the cost, and say nothing of why."""
    same = ("latency_p", "cycles_p")
    return [c for c in case.metrics if not c.primary and c.name != case.guest_clock and not c.name.startswith(same)]


def _moved(c: Comparison) -> str:
    base, test = _average(c.base), _average(c.test)
    return f"{c.name} {number(base)} -> {number(test)}"


def _average(values: Sequence[float | None]) -> float:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else float("nan")


def _mean(values: Sequence[float | None]) -> str:
    return number(_average(values))


def _verdict(result: AbResult) -> Text:
    words = Text("verdict: ", style="bold")
    words.append(str(result.verdict), style=_STYLES[result.verdict])
    words.append(f": {result.reason} (threshold {100 * result.threshold:g} %, {len(result.seeds)} {result.pairs}s)")
    return words


def _footer(result: AbResult) -> str:
    around = result.environment
    guest = next(iter(around.guests.values()))
    live = result.live
    host = f"{live}\n" if live else ""
    perf = f"perf stat: {live.perf}\n" if live and live.perf else ""
    profiles = live.profiles if live else {}
    perf += "".join(f"perf record, {case}: {found}\n" for case, found in profiles.items())
    return (
        f"{result.mode} mode, {result.counted_in}: QEMU {around.qemu}, {around.machine}, "
        f"{guest.vcpus} vCPU, {guest.memory_mb} MiB, fingerprint {around.fingerprint}\n{host}{perf}"
        f"result {result.result}   again: lab report {result.result}   repeat: {result.reproduce}"
    )


_WIDTH = 1000


def render(reports: Reports) -> str:
    """One result as its table, several as one table with a column each."""
    if not reports.several:
        stream = io.StringIO()
        show(reports.items[0].result, Console(file=stream, width=_WIDTH, no_color=True))
        return stream.getvalue()
    lines = [*_legend(reports), ""]
    lines += aligned([("case", "metric", *letters(reports)), *rows(reports)])
    if reports.mark:
        lines += ["", reports.mark]
    return "\n".join(lines) + "\n"


def letters(reports: Reports) -> list[str]:
    """A, B, C: short names of the results."""
    return [string.ascii_uppercase[i] if i < 26 else str(i + 1) for i in range(len(reports.items))]


def rows(reports: Reports) -> list[tuple[str, ...]]:
    """One row per case and primary metric that any of the results has: its change in each of them."""
    found = []
    for workload, case in dict.fromkeys((c.workload, c.case) for item in reports.items for c in item.result.cases):
        chosen = [_find(item, workload, case) for item in reports.items]
        metrics = [_metric(item, one) if one else None for item, one in zip(reports.items, chosen, strict=True)]
        for metric in dict.fromkeys(filter(None, metrics)):
            cells = [_cell(one) if one and mine == metric else "-" for one, mine in zip(chosen, metrics, strict=True)]
            found.append((f"{workload}:{case}", metric, *cells))
    return found


def aligned(cells: Sequence[Sequence[str]]) -> Iterable[str]:
    """Rows of equal columns, two blanks apart."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in cells]


def _find(item: Report, workload: str, case: str) -> CaseResult | None:
    return next((c for c in item.result.cases if (c.workload, c.case) == (workload, case)), None)


def _metric(item: Report, case: CaseResult) -> str:
    primary = case.primary
    return f"{primary.name}, {wording.unit(primary, item.result)}"


def _cell(case: CaseResult) -> str:
    primary = case.primary
    return f"{wording.change(primary)} {primary.interval_text} {case.verdict}".replace("  ", " ")


def _legend(reports: Reports) -> list[str]:
    lines = []
    for letter, item in zip(letters(reports), reports.items, strict=True):
        result = item.result
        lines += [
            f"{letter}  {result.result}  {wording.sentence(result)}",
            f"   base  {wording.arm_words(result.base)}",
            f"   test  {wording.arm_words(result.test)}",
            f"   fingerprint {result.environment.fingerprint}, QEMU {result.environment.qemu}",
        ]
    return lines
