"""A result as text for people: arms, cases, verdicts, and the counters that moved most."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lab import verdict
from lab.results import AbResult, ArmResult, CaseResult
from lab.verdict import Comparison, Outcome, percent

_STYLES = {
    Outcome.REGRESSION: "bold red",
    Outcome.IMPROVEMENT: "bold green",
    Outcome.SAME: "",
    Outcome.UNKNOWN: "yellow",
}


def show(result: AbResult, console: Console) -> None:
    """Print a result as a table."""
    console.print(render(result))


def render(result: AbResult) -> RenderableType:
    """The whole text: arms, one row a case, the verdict, and how to see it again."""
    return Group(
        _arms(result),
        Text(),
        _cases(result),
        Text(),
        _verdict(result),
        Text(_footer(result), style="dim"),
    )


def _arms(result: AbResult) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, arm in (("base", result.base), ("test", result.test)):
        table.add_row(Text(name, style="bold"), Text(_describe(arm)))
        if arm.note:
            table.add_row("", Text(arm.note, style="dim"))
    return table


def _describe(arm: ArmResult) -> str:
    words = [arm.spec]
    if arm.commit and arm.commit != arm.spec:
        words.append(arm.commit[:12])
    if arm.subject:
        words.append(f'("{arm.subject}")')
    return " ".join([*words, f"Linux {arm.release}"])


def _cases(result: AbResult) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    unit = _units(result.cases)
    table.add_column("case", no_wrap=True)
    table.add_column(f"base {unit}".rstrip(), justify="right", no_wrap=True)
    table.add_column("test", justify="right", no_wrap=True)
    table.add_column("change", justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what moved most", overflow="fold")
    several = len({case.workload for case in result.cases}) > 1
    for case in result.cases:
        primary = primary_of(case)
        name = f"{case.workload}:{case.case}" if several else case.case
        table.add_row(
            Text(name + (" (control)" if case.control else "")),
            _mean(primary.base),
            _mean(primary.test),
            percent(primary.ratio),
            _interval(primary),
            _judged(case, primary),
            Text(", ".join(_moved(c) for c in verdict.movers(_counters(case)))),
        )
    return table


def primary_of(case: CaseResult) -> Comparison:
    """The comparison that a case's verdict is about."""
    return next(comparison for comparison in case.metrics if comparison.primary)


def _counters(case: CaseResult) -> list[Comparison]:
    """The case's counters: percentiles follow throughput, and say nothing of why."""
    return [c for c in case.metrics if not c.primary and not c.name.startswith("latency")]


def _units(cases: Sequence[CaseResult]) -> str:
    units = {primary_of(case).unit for case in cases}
    return f"({units.pop()})" if len(units) == 1 else ""


def _interval(c: Comparison) -> str:
    if c.interval is None:
        return ""
    low, high = (percent(edge) for edge in c.interval)
    return f"[{low}, {high}]" if low != high else "exact"


def _judged(case: CaseResult, primary: Comparison) -> Text:
    text = Text(str(case.verdict), style=_STYLES[case.verdict])
    if case.verdict == Outcome.UNKNOWN:
        more = f", about {primary.more_blocks} more seeds would settle it" if primary.more_blocks else ""
        text.append(f" ({primary.reason}{more})", style="dim")
    elif case.verdict == Outcome.SAME and "below threshold" in primary.reason:
        text.append(f" ({primary.reason})", style="dim")
    elif case.holm is False:
        text.append(" (not beyond chance over all cases)", style="dim")
    return text


def _moved(c: Comparison) -> str:
    base, test = _average(c.base), _average(c.test)
    return f"{c.name} {number(base)} -> {number(test)}"


def _average(values: Sequence[float | None]) -> float:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else float("nan")


def _mean(values: Sequence[float | None]) -> str:
    return number(_average(values))


def number(value: float) -> str:
    """Four digits are enough to read; the JSON has them all."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _verdict(result: AbResult) -> Text:
    words = Text("verdict: ", style="bold")
    words.append(str(result.verdict), style=_STYLES[result.verdict])
    words.append(f": {result.reason} (threshold {100 * result.threshold:g} %, {len(result.seeds)} seeds)")
    return words


def _footer(result: AbResult) -> str:
    around = result.environment
    guest = next(iter(around.guests.values()))
    return (
        f"{result.mode} mode, guest clock (instructions): QEMU {around.qemu}, {around.machine}, "
        f"{guest.vcpus} vCPU, {guest.memory_mb} MiB, fingerprint {around.fingerprint}\n"
        f"result {result.result}   again: lab report {result.result}   repeat: {result.reproduce}"
    )
