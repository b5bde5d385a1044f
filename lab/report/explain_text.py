"""An explanation as text for people: both arms, their costs, the functions that differ, and the counters."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from rich.console import Console, Group, RenderableType
from rich.text import Text

from lab.compare.counters import Mechanism
from lab.compare.explain import (
    CaseExplanation,
    CaseLint,
    Cost,
    Explanation,
    FunctionRow,
    Initcall,
    by_cost,
    differing,
    initcalls_by_level,
    largest_initcalls,
    total,
)
from lab.compare.lines import MetLine
from lab.core import text
from lab.core.text import aligned, columns, number, plural, visible, visible_record
from lab.kernels import architecture
from lab.kernels.alternatives import CpuChoices, FeatureChoice
from lab.report import wording
from lab.report.wording import cut
from lab.stats.verdict import Outcome, percent

_NAME_AT_LEAST = 16
_NAME_WELL = 24
_MEANING_BESIDE = 130

# A share of a difference that almost cancels out says nothing, nor does one of a case that is the same.
_SHARE_AT_MOST = 10

_FUNCTIONS_NAMED = 3
_MOST_ROWS = 20


def show(why: CaseExplanation, console: Console, *, everything: bool = False) -> None:
    """Print an explanation for people. everything: also the functions that do not differ."""
    text.show(lambda width: Group(why.case.name, render(why, width, everything=everything)), console)


def render(why: CaseExplanation, width: int, *, everything: bool = False) -> RenderableType:
    """The whole text: arms, total, functions, counters."""
    explanation, result = visible_record(why.explanation), why.result
    parts: list[RenderableType] = [
        Text.assemble(
            ("base  ", "bold"), visible(result.base.spec), "\n", ("test  ", "bold"), visible(result.test.spec)
        ),
        Text(),
        _totals(explanation, why),
        Text(),
        _functions(explanation, why, width, everything=everything),
    ]
    if why.lines:
        parts += [Text(), _lines(why.lines[:_MOST_ROWS], width)]
    if why.initcalls:
        parts += [Text(), _initcalls(why.initcalls)]
    if why.mechanisms:
        parts += [Text(), _counters(why.mechanisms, width)]
    return Group(*parts)


# ---- numbers


def unit_of(cost: Cost, machine: str = "") -> str:
    """The unit of a cost. machine: the machine of modelled cycles."""
    if cost == "instructions":
        return cost
    return f"modelled cycles ({architecture.experiment(machine)})" if machine else "modelled cycles"


def short(value: Fraction) -> str:
    """Four digits, or all those before the point."""
    return number(float(value))


def signed(value: Fraction) -> str:
    return ("+" if value > 0 else "") + short(value)


def change(base: Fraction, test: Fraction) -> str:
    if base == test:
        return "same"
    return percent(float(test / base)) if base else "only in test"


def _totals(explanation: Explanation, why: CaseExplanation) -> Text:
    """The figure of the verdict, the sums of the functions, and how the two differ."""
    cost, machine, primary = why.cost, why.machine, visible_record(why.case.primary)
    costs: tuple[Cost, ...] = (cost, "instructions") if cost == "cycles" else ("instructions",)
    totals = Text()
    totals.append(f"{primary.name}: ", style="bold")
    totals.append(f"{wording.shown(primary.base)} -> {wording.shown(primary.test)} ({wording.change(primary)}), ")
    totals.append(f"the verdict's figure, of {plural(len(primary.base), why.result.pairs)}\n")
    totals.append("By function, all operations of seed 1, the program's own code included:\n", style="dim")
    for each in costs:
        base, test = explanation.costs(total(explanation.rows), each)
        totals.append(f"{unit_of(each, machine)} per operation: ", style="bold")
        totals.append(f"{short(base)} -> {short(test)} ({change(base, test)})\n")
    totals.append(
        f"operations measured: base {explanation.base_operations:,}, test {explanation.test_operations:,}",
        style="dim",
    )
    return totals


# ---- functions


def _functions(explanation: Explanation, why: CaseExplanation, width: int, *, everything: bool) -> Text:
    """One line a function, then one line for all the others, so that the column of differences adds up."""
    cost, same = why.cost, why.case.verdict == Outcome.SAME
    if not explanation.movement(cost) and not everything:
        return Text(f"no function differs in {unit_of(cost)}")
    chosen = (by_cost(explanation, cost) if everything else differing(explanation, cost))[:_MOST_ROWS]
    shown = {(row.space, row.name) for row in chosen}
    left = [row for row in explanation.rows if (row.space, row.name) not in shown]
    rows = [heading(cost), *(cells(explanation, row, cost, same=same) for row in chosen)]
    if left:
        others = total(left, name=f"[{len(left)} others]")
        rows.append((*cells(explanation, others, cost, same=same)[:-2], "", ""))
    styles = ["bold", *(_style(explanation, row, cost) for row in chosen), "dim"]
    table = Text()
    for line, style in zip(_fitting(rows, width), styles, strict=False):
        table.append(f"{line}\n", style=style)
    table.rstrip()
    return table


def heading(cost: Cost) -> tuple[str, ...]:
    return ("function", "base", "test", f"{unit_of(cost)}/op", "share", "", "calls/op")


def cells(explanation: Explanation, row: FunctionRow, cost: Cost, *, same: bool) -> tuple[str, ...]:
    """A function as a row of cells. same: the case is, so its difference has no parts."""
    base, test = explanation.costs(row, cost)
    share = None if same else explanation.share(row, cost)
    return (
        row.name,
        short(base),
        short(test),
        signed(test - base),
        f"{round(100 * float(share), 1) or 0.0:.1f} %" if share is not None and abs(share) <= _SHARE_AT_MOST else "-",
        row.space,
        _calls(explanation, row),
    )


def _calls(explanation: Explanation, row: FunctionRow) -> str:
    """Calls per operation; one number if they are the same, `?` if no entry was seen."""
    calls = (explanation.calls_per_operation(row, "base"), explanation.calls_per_operation(row, "test"))
    base, test = ("?" if count is None else short(count) for count in calls)
    return base if base == test else f"{base} -> {test}"


def _style(explanation: Explanation, row: FunctionRow, cost: Cost) -> str:
    delta = explanation.delta(row, cost)
    return "red" if delta > 0 else "green" if delta < 0 else ""


def _fitting(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """Aligned lines. Names give way if the terminal is narrow, then space, share and calls do; costs never."""
    kept = _kept(rows, width, gives_way=(5, 4, 6))
    narrow = [[row[i] for i in kept] for row in rows]
    longest = max(width - _width(narrow, 1), _NAME_AT_LEAST)
    right = [place for place, i in enumerate(kept) if i in (1, 2, 3, 4)]
    return columns([(cut(name, longest), *cells) for name, *cells in narrow], right=right)


def _kept(rows: Sequence[Sequence[str]], width: int, gives_way: Sequence[int]) -> list[int]:
    """The columns that fit beside names of some length, without as many of those that give way as need be."""
    kept = list(range(len(rows[0])))
    for column in gives_way:
        if _width([[row[i] for i in kept] for row in rows], 1) + _NAME_WELL <= width:
            break
        kept.remove(column)
    return kept


def _width(rows: Sequence[Sequence[str]], first: int) -> int:
    """The width of the columns from one on, with the blanks before them."""
    return sum(max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[first:])


# ---- lines

LINE_HEADING = ("line", "functions", "CPUs r/w", "moved/op", "false/op", "atomics/op", "cycles lost/op", "held/op")


def _lines(lines: Sequence[MetLine], width: int) -> Text:
    """The places where vCPUs met: base -> test. On a narrow terminal some columns give way, then the names do."""
    rows = [LINE_HEADING, *line_cells(lines)]
    kept = _kept([("", *row[1:]) for row in rows], width, gives_way=(5, 7, 1, 2, 6))
    place = max((width - _width([[row[i] for i in kept if i > 1] for row in rows], 0)) // (2 if 1 in kept else 1), 16)
    shown = [[cut(row[i], place - 2) if i < 2 else row[i] for i in kept] for row in rows]
    return Text("\n".join(columns(shown, right=[place for place, i in enumerate(kept) if i > 2])))


def line_cells(lines: Sequence[MetLine]) -> list[tuple[str, ...]]:
    """The places where vCPUs met as cells of text: base -> test."""
    return [tuple(map(visible, _line_cells(line))) for line in lines]


def _line_cells(line: MetLine) -> tuple[str, ...]:
    base, test = line.base, line.test
    most = base if base.moved >= test.moved else test
    return (
        line.place,
        ", ".join(line.functions),
        f"{most.readers}/{most.writers}",
        _both(base.moved, test.moved),
        _both(base.false, test.false),
        _both(base.atomics, test.atomics),
        _both(base.lost, test.lost, digits=0),
        _both(base.held, test.held, digits=0),
    )


def _both(base: float, test: float, digits: int = 2) -> str:
    left, right = f"{base:.{digits}f}", f"{test:.{digits}f}"
    return left if left == right else f"{left} -> {right}"


def show_false_sharing(kernel: str, found: Sequence[CaseLint], console: Console) -> None:
    """Print the lines that a kernel's vCPUs move for nothing, case by case."""
    text.show(lambda width: _false_sharing(kernel, [visible_record(case) for case in found], width), console)


def _false_sharing(kernel: str, found: Sequence[CaseLint], width: int) -> Text:
    """One line a place, and below it the members there, with the functions that read and write it."""
    shown = Text(f"{kernel}: lines that vCPUs move for nothing\n", style="bold")
    for case in found:
        for line in case.lines:
            shown.append(f"\n{case.case}  ", style="bold")
            shown.append(f"{line.false:.2f} of {line.moved:.2f} moves an operation: {cut(line.place, width)}\n")
            for access in line.accesses:
                done = ((access.readers, "read by"), (access.writers, "written by"))
                words = "; ".join(f"{how} {', '.join(functions)}" for functions, how in done if functions)
                shown.append(f"    {access.member or 'no name'}: {words}\n")
    if clean := [case.case for case in found if not case.lines]:
        shown.append(f"\nnone in {', '.join(clean)}", style="dim")
    shown.rstrip()
    return shown


# ---- initcalls


def initcall_cells(rows: Sequence[Initcall]) -> list[tuple[str, str, str, str, str]]:
    """The initcalls that moved most with their levels and their times in ms, and the sum of all others.

    `-` stands for a time if there is no such initcall.
    """
    return [(visible(row.name), row.level, *_times(row)) for row in largest_initcalls(rows)]


def level_cells(rows: Sequence[Initcall]) -> list[tuple[str, str, str, str]]:
    """The sums of the levels that are named, in ms."""
    return [(row.name, *_times(row)) for row in initcalls_by_level(rows)]


def _times(row: Initcall) -> tuple[str, str, str]:
    return _milliseconds(row.base), _milliseconds(row.test), f"{row.delta / 1000:+,.1f}"


def _milliseconds(microseconds: int | None) -> str:
    return "-" if microseconds is None else f"{microseconds / 1000:,.1f}"


def _initcalls(rows: Sequence[Initcall]) -> Text:
    """One line an initcall, in guests in which the kernel logs them, and one a level."""
    table = Text("initcalls, ms of guest time\n", style="bold")
    heading = ("initcall", "level", "base", "test", "difference")
    table.append("\n".join(columns([heading, *initcall_cells(rows)], right=(2, 3, 4))))
    if levels := level_cells(rows):
        table.append("\n\nby level\n", style="bold")
        table.append("\n".join(columns([("level", "base", "test", "difference"), *levels], right=(1, 2, 3))))
    return table


# ---- counters


def _counters(mechanisms: Sequence[Mechanism], width: int) -> Text:
    """One line a counter, the largest change first; its meaning beside it, or below if the terminal is narrow."""
    rows = [(m.name, f"{number(m.base)} -> {number(m.test)}", moved(m)) for m in mechanisms]
    table = Text("the kernel's counters that moved, largest change first\n", style="bold")
    for mechanism, cells in zip(mechanisms, aligned(rows, right=(1, 2)), strict=True):
        table.append("  ".join(cells))
        if mechanism.meaning:
            beside = width >= _MEANING_BESIDE
            shown = f"  {mechanism.meaning}" if beside else "\n" + text.wrapped(f"    {mechanism.meaning}", 4, width)
            table.append(shown, style="dim")
        table.append("\n")
    table.rstrip()
    return table


def moved(counter: Mechanism) -> str:
    """The change of a counter in percent; from zero no percentage says it, nor from or to a number below zero."""
    if counter.ratio is not None:
        return percent(counter.ratio)
    return "" if counter.base else "from 0"


# ---- the kernels' choices by CPUID


def show_cpu(found: CpuChoices, console: Console, *, everything: bool = False) -> None:
    """Print the CPU of guests, and the kernels' choices by it. everything: also features that change nothing."""
    text.show(lambda width: render_cpu(visible_record(found), everything=everything), console)


def render_cpu(found: CpuChoices, *, everything: bool = False) -> RenderableType:
    """The features that the modelled machine has and the guest does not, with who looks for them; then the others."""
    parts: list[RenderableType] = [
        Text.assemble((f"guests of {found.machine}  ", "bold"), f"-cpu {found.cpu}, QEMU {found.qemu}")
    ]
    if found.refused:
        parts.append(Text(f"asked for, and not in this QEMU: {', '.join(found.refused)}", style="bold red"))
    parts += [Text(f"base  {found.base}")] if found.base else []
    parts += [Text(f"test  {found.test}")] if found.test else []
    parts += [Text(f"*     ran in {found.case}")] if found.case else []
    missing = [one for one in found.choices if one.modelled and not one.guest]
    taken = [one for one in found.choices if one.guest]
    others = [one for one in found.choices if not one.guest and not one.modelled]
    if missing:
        title = f"{found.machine} has these and the guest does not: the kernel takes its other path"
        parts += [Text(), _choices(title, missing, found)]
    named = {one.feature for one in missing}
    if unused := [name for name in (*found.lacks, *found.off) if name not in named]:
        why = "no kernel looks for it by alternatives" if found.choices else "not in the guest"
        parts += [Text(), Text(f"{why}: {', '.join(unused)}", style="dim")]
    if reasons := [f"{name}: {reason}" for name, reason in found.off.items() if name in named or not found.choices]:
        parts += [Text(), Text("left off\n", style="bold").append("\n".join(reasons), style="")]
    if taken:
        shown = taken if everything else [one for one in taken if one.differs]
        title = f"the guest has these, and the kernel uses them ({plural(len(taken), 'feature')}"
        title += ")" if everything else f", {len(shown)} looked for in different functions)"
        parts += [Text(), _choices(title, shown, found)]
    if others and everything:
        parts += [Text(), _choices("neither has these", others, found)]
    return Group(*parts)


def _choices(title: str, choices: Sequence[FeatureChoice], found: CpuChoices) -> Text:
    """One line a feature: its places in each kernel, and the functions, those of one kernel alone marked."""
    table = Text(f"{title}\n", style="bold")
    if not choices:
        return table
    head = ("feature", "base", "test") if found.test else ("feature", "places")
    rows = [head, *((one.feature, str(one.base), str(one.test))[: len(head)] for one in choices)]
    for line, one in zip(aligned(rows, right=(1, 2)), (None, *choices), strict=True):
        table.append("  ".join(line), style="bold" if one is None else "")
        table.append("  " + (_places(one) if one else "functions") + "\n", style="dim" if one else "bold")
    table.rstrip()
    return table


def _places(one: FeatureChoice) -> str:
    def named(functions: Sequence[str]) -> str:
        return ", ".join(f"{name}*" if name in one.ran else name for name in functions[:_FUNCTIONS_NAMED])

    kinds = (("", one.functions), ("only base: ", one.only_base), ("only test: ", one.only_test))
    return "; ".join(f"{kind}{named(functions)}" for kind, functions in kinds if functions)
