"""An explanation as text for people: both arms, what they cost, the functions that differ, and the mechanisms."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from rich.console import Console, Group, RenderableType
from rich.text import Text

from lab.compare.counters import Mechanism
from lab.compare.explain import Arm, Cost, Explanation, FunctionRow, Why, by_cost, differing, total
from lab.core import text
from lab.core.text import number, visible, visible_record
from lab.report.svg import change, short, signed
from lab.stats.verdict import percent

_NAME_AT_LEAST = 16
_MEANING_BESIDE = 130

# A share of a difference that almost cancels out says nothing.
_SHARE_AT_MOST = 10


def show(why: Why, console: Console, *, everything: bool = False) -> None:
    """Print an explanation for people."""
    text.show(lambda width: _titled(why, width, everything), console)


def _titled(why: Why, width: int, everything: bool) -> Group:
    body = render_explain(
        why.explanation,
        why.mechanisms,
        base=why.result.base.spec,
        test=why.result.test.spec,
        machine=why.machine,
        width=width,
        cost=why.cost,
        everything=everything,
    )
    return Group(f"{why.case.workload}:{why.case.case}", body)


def render_explain(
    explanation: Explanation,
    mechanisms: Sequence[Mechanism] = (),
    *,
    base: str,
    test: str,
    machine: str,
    width: int,
    cost: Cost = "cycles",
    top: int | None = 20,
    everything: bool = False,
) -> RenderableType:
    """The whole text: arms, total, functions, counters.

    base, test: the arms in words. machine: the machine file's name. top: how many functions at most, None for
    all. everything: also what does not differ.
    """
    explanation = visible_record(explanation)
    parts: list[RenderableType] = [
        Text.assemble(("base  ", "bold"), visible(base), "\n", ("test  ", "bold"), visible(test)),
        Text(),
        _totals(explanation, cost, machine),
        Text(),
        _functions(explanation, cost, width, top, everything),
    ]
    if mechanisms:
        parts += [Text(), _counters(mechanisms, width)]
    return Group(*parts)


def unit_of(cost: Cost, machine: str) -> str:
    """What is counted, in words: cycles are never named without what they are modelled by."""
    return f"modelled cycles ({machine})" if cost == "cycles" else "instructions"


def _totals(explanation: Explanation, cost: Cost, machine: str) -> Text:
    costs: tuple[Cost, ...] = (cost, "instructions") if cost == "cycles" else ("instructions",)
    text = Text()
    for one in costs:
        base, test = _both(explanation, total(explanation.rows), one)
        text.append(f"{unit_of(one, machine)} per operation: ", style="bold")
        text.append(f"{short(base)} -> {short(test)} ({change(base, test)})\n")
    text.append(
        f"operations measured: base {explanation.base_operations:,}, test {explanation.test_operations:,}",
        style="dim",
    )
    return text


def _both(explanation: Explanation, row: FunctionRow, cost: Cost) -> tuple[Fraction, Fraction]:
    return explanation.per_operation(row, "base", cost), explanation.per_operation(row, "test", cost)


# --- functions


def _functions(explanation: Explanation, cost: Cost, width: int, top: int | None, everything: bool) -> Text:
    """One line a function, then one line for all the others, so that the column of differences adds up."""
    if not explanation.movement(cost) and not everything:
        return Text(f"no function differs in {_short_unit(cost)}")
    chosen = (by_cost(explanation, cost) if everything else differing(explanation, cost))[:top]
    shown = {(row.space, row.name) for row in chosen}
    left = [row for row in explanation.rows if (row.space, row.name) not in shown]
    cells = [_headings(cost), *(_cells(explanation, row, cost) for row in chosen)]
    if left:
        others = total(left, name=f"[{len(left)} others]")
        cells.append((*_cells(explanation, others, cost)[:-2], "", ""))
    return _aligned(cells, [None, *chosen], explanation, cost, width)


def _short_unit(cost: Cost) -> str:
    return "modelled cycles" if cost == "cycles" else "instructions"


def _headings(cost: Cost) -> tuple[str, ...]:
    return ("function", "base", "test", f"{_short_unit(cost)}/op", "share", "", "calls/op")


def _cells(explanation: Explanation, row: FunctionRow, cost: Cost) -> tuple[str, ...]:
    base, test = _both(explanation, row, cost)
    return (
        row.name,
        short(base),
        short(test),
        signed(test - base),
        _share(explanation.share(row, cost)),
        row.space,
        _calls(explanation, row),
    )


def _share(share: Fraction | None) -> str:
    return f"{100 * float(share):.1f} %" if share is not None and abs(share) <= _SHARE_AT_MOST else "-"


def _calls(explanation: Explanation, row: FunctionRow) -> str:
    """Calls per operation; one number where they are the same, `?` where no entry was seen."""
    arms: tuple[Arm, ...] = ("base", "test")
    words = []
    for arm in arms:
        calls = explanation.calls_per_operation(row, arm)
        words.append("?" if calls is None else short(calls))
    return words[0] if words[0] == words[1] else " -> ".join(words)


def _aligned(
    cells: Sequence[tuple[str, ...]],
    rows: Sequence[FunctionRow | None],
    explanation: Explanation,
    cost: Cost,
    width: int,
) -> Text:
    """Columns. Names give way where the terminal is narrow, then calls and shares do; numbers never."""
    columns = _columns(cells, width)
    sizes = {column: max(len(row[column]) for row in cells) for column in columns}
    rest = sum(sizes.values()) - sizes[0] + 2 * (len(columns) - 1)
    sizes[0] = min(sizes[0], max(width - rest, _NAME_AT_LEAST))
    text = Text()
    for number_, line in enumerate(cells):
        row = rows[number_] if number_ < len(rows) else None
        style = "bold" if number_ == 0 else _style(explanation, row, cost) if row else "dim"
        text.append("  ".join(_cell(line[c], c, sizes[c]) for c in columns).rstrip() + "\n", style=style)
    text.rstrip()
    return text


def _columns(cells: Sequence[tuple[str, ...]], width: int) -> list[int]:
    columns = list(range(len(cells[0])))
    for expendable in (6, 5, 4):
        needed = sum(max(len(row[c]) for row in cells) + 2 for c in columns[1:]) + _NAME_AT_LEAST
        if needed > width:
            columns.remove(expendable)
    return columns


def _cell(words: str, column: int, size: int) -> str:
    if len(words) > size:
        words = words[: size - 1] + "…"
    return words.rjust(size) if column in (1, 2, 3, 4) else words.ljust(size)


def _style(explanation: Explanation, row: FunctionRow, cost: Cost) -> str:
    delta = explanation.delta(row, cost)
    return "red" if delta > 0 else "green" if delta < 0 else ""


# --- counters


def _counters(mechanisms: Sequence[Mechanism], width: int) -> Text:
    """One line a counter, what moved most first; its meaning beside it, or below where the terminal is narrow."""
    text = Text("what the kernel did differently, what moved most first\n", style="bold")
    names = max(len(mechanism.name) for mechanism in mechanisms)
    moves = [f"{number(m.base)} -> {number(m.test)}" for m in mechanisms]
    changes = [percent(m.ratio) if m.ratio is not None else "from 0" for m in mechanisms]
    for mechanism, move, much in zip(mechanisms, moves, changes, strict=True):
        line = (
            f"{mechanism.name.ljust(names)}  {move.rjust(max(map(len, moves)))}  {much.rjust(max(map(len, changes)))}"
        )
        text.append(line, style="")
        if mechanism.meaning:
            text.append("  " if width >= _MEANING_BESIDE else "\n    ")
            text.append(mechanism.meaning, style="dim")
        text.append("\n")
    text.rstrip()
    return text
