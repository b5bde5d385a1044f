"""A matrix as text for people: the grid, what its signs mean, and every reason why a cell has no number.

How a matrix lies on paper: what its rows and columns are, for the table and the heat map alike.

The words of a matrix that page and Markdown share: its grids, its kernels, and why a cell has no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace
from rich.console import Console, Group
from rich.text import Text

from lab.compare import matrix, matrix_results
from lab.compare.matrix_results import Cell, MatrixResult
from lab.compare.results import clock
from lab.core import text
from lab.core.text import number, visible_record
from lab.guests import costs
from lab.stats.verdict import percent


class Grid(NamedTuple):
    """Cells in rows and columns. corner: what the rows and the columns are, as `rows \\ columns`."""

    corner: str
    rows: list[str]
    columns: list[str]
    cells: list[list[Cell]]

    def turned(self) -> Grid:
        """Rows as columns and columns as rows."""
        corner = " \\ ".join(reversed(self.corner.split(" \\ ")))
        return Grid(corner, self.columns, self.rows, [list(column) for column in zip(*self.cells, strict=True)])


def lay_out(result: MatrixResult) -> Grid:
    """One case and two axes that vary: a row for each value of the first. Else cases are rows, arms columns."""
    cells = {(cell.workload, cell.case, cell.arm): cell for cell in result.cells}
    cases = list(dict.fromkeys((cell.workload, cell.case) for cell in result.cells))
    labels = [arm.label for arm in result.arms]
    varying = matrix_results.varying(result.axes)
    if len(cases) == 1 and len(varying) == 2:
        return _of_two_axes(result, varying[0], varying[1], cells)
    several = len({workload for workload, _ in cases}) > 1
    controls = {(cell.workload, cell.case) for cell in result.cells if cell.control}
    rows = [
        (f"{workload}:{case}" if several else case) + (" (control)" if (workload, case) in controls else "")
        for workload, case in cases
    ]
    return Grid("case \\ arm", rows, labels, [[cells[*case, label] for label in labels] for case in cases])


def _of_two_axes(result: MatrixResult, first: int, second: int, cells: dict[tuple[str, str, str], Cell]) -> Grid:
    down, across = result.axes[first], result.axes[second]
    arms = {(arm.at[first], arm.at[second]): arm.label for arm in result.arms}
    only = result.cells[0]
    return Grid(
        f"{down.name} \\ {across.name}",
        list(down.values),
        list(across.values),
        [[cells[only.workload, only.case, arms[row, column]] for column in across.values] for row in down.values],
    )


def clocks(result: MatrixResult) -> str:
    """What the numbers are counted in; whatever is modelled says so, and on which machine."""
    modelled = {metric.name for metric in costs.METRICS}
    models = {
        result.environment.guests[cell.workload].model if cell.metric in modelled else "none" for cell in result.cells
    }
    return " and ".join(clock(model) for model in sorted(models))


def heading(result: MatrixResult) -> str:
    """What the numbers are: the case where there is one, metric, unit, and which side is better."""
    what = {(cell.metric, cell.unit, cell.better) for cell in result.cells}
    cases = {f"{cell.workload}:{cell.case}" for cell in result.cells}
    which = {cell.workload for cell in result.cells}
    where = cases.pop() if len(cases) == 1 else ", ".join(sorted(which))
    return f"{where}: " + "; ".join(
        f"{metric}, {unit}" + (f" ({better} is better)" if better != "neither" else "")
        for metric, unit, better in sorted(what)
    )


# Signs, so that a row fits and no colour is needed.
SIGNS = {"regression": "▼", "improvement": "▲", "same": "=", "unknown": "?", "failed": "✗"}
_STYLES = {"regression": "bold red", "improvement": "bold green", "unknown": "yellow", "failed": "bold magenta"}
_MOST_NOTES = 12


def show(result: MatrixResult, console: Console) -> None:
    """Print a matrix as a table."""
    text.show(lambda width: render(result, width), console)


def render(result: MatrixResult, width: int) -> Group:
    """The whole text: grid, notes, signs, kernels, and how to see it again."""
    result = visible_record(result)
    return Group(
        Text(heading(result), style="bold"),
        Text(),
        _fitting(result, width),
        Text(),
        Text(result.summary),
        *_notes(result),
        Text(_legend(result), style="dim"),
        Text(),
        *_kernels(result),
        Text(_footer(result), style="dim"),
    )


def _fitting(result: MatrixResult, width: int) -> Text:
    """The grid, turned where only that fits: many arms are better below one another."""
    upright = _drawn(lay_out(result), result)
    turned = _drawn(lay_out(result).turned(), result)
    return turned if _width(upright) > width >= _width(turned) else upright


def _width(text: Text) -> int:
    return max(len(line) for line in text.plain.splitlines())


def _drawn(shown: Grid, result: MatrixResult) -> Text:
    """Three narrow columns for each of the grid's: value, change, sign."""
    body = [[_parts(cell, result.baseline) for cell in row] for row in shown.cells]
    first = max(len(name) for name in (shown.corner, *shown.rows))
    widths = [
        [max(len(row[column][part]) for row in body) for part in range(3)] for column in range(len(shown.columns))
    ]
    text = Text(shown.corner.ljust(first), style="bold")
    for name, parts in zip(shown.columns, widths, strict=True):
        parts[0] = max(parts[0], len(name) - parts[1] - parts[2] - 2)
        text.append("   " + name.rjust(sum(parts) + 2), style="bold")
    for name, row, cells in zip(shown.rows, body, shown.cells, strict=True):
        text.append("\n" + name.ljust(first), style="bold")
        for words, parts, cell in zip(row, widths, cells, strict=True):
            line = " ".join(word.rjust(size) for word, size in zip(words, parts, strict=True))
            text.append("   ").append(line, style=_STYLES.get(matrix.state(cell, result.baseline), ""))
    return text


def _parts(cell: Cell, baseline: str) -> tuple[str, str, str]:
    """A cell's value, its change, and its sign."""
    state = matrix.state(cell, baseline)
    if state in ("failed", "not measured"):
        return state if state == "failed" else "-", "", SIGNS.get(state, "")
    value = number(cell.mean) if cell.mean is not None else "n/a"
    if state == "baseline":
        return value, "baseline", ""
    change = percent(cell.comparison.ratio) if cell.comparison else ""
    return value, change, SIGNS.get(state, "") if cell.holm is not False else "?"


def _notes(result: MatrixResult) -> list[Text]:
    """Why cells failed or are open, one line each; arms and cases with the same reason share one."""
    reasons: dict[str, list[str]] = {}
    for cell in result.cells:
        for reason in reasons_of(cell):
            reasons.setdefault(reason, []).append(f"{cell.case} {cell.arm}")
    lines = [Text(f"  {_some(cells)}: {reason}") for reason, cells in reasons.items()]
    more = len(lines) - _MOST_NOTES
    return [*lines[:_MOST_NOTES], *([Text(f"  and {more} more; --json has all")] if more > 0 else [])]


def reasons_of(cell: Cell) -> list[str]:
    """Why a cell has no number, or no plain verdict."""
    if cell.failed:
        return [f"failed: {cell.failed}"]
    comparison = cell.comparison
    if comparison is None:
        return []
    if cell.verdict == "unknown":
        more = f", about {comparison.more_blocks} more seeds would settle it" if comparison.more_blocks else ""
        return [f"unknown: {comparison.reason}{more}"]
    return [f"{cell.verdict}, but not beyond chance over all cells"] if cell.holm is False else []


def _some(cells: Sequence[str]) -> str:
    return "; ".join(cells[:3]) + (f" and {len(cells) - 3} more" if len(cells) > 3 else "")


def _legend(result: MatrixResult) -> str:
    signs = "  ".join(f"{sign} {word}" for word, sign in SIGNS.items())
    return f"{signs}   (threshold {100 * result.threshold:g} %, {_seeds(result)})"


def _seeds(result: MatrixResult) -> str:
    counts = sorted({len(cell.seeds) for cell in result.cells if cell.seeds})
    if not counts:
        return "no seeds"
    most = matrix.plural(counts[-1], "seed")
    return most if counts[0] == counts[-1] else f"{counts[0]} to {most}"


def _kernels(result: MatrixResult) -> list[Text]:
    """What each kernel is; a kconfig axis changes its build, not this."""
    lines = []
    for name, spec in zip(result.axes[0].values, result.kernels, strict=True):
        lines.append(Text(f"{name}: {kernel_words(result, name, spec)}", style="dim"))
    notes = dict.fromkeys(arm.arm.note for arm in result.arms if arm.arm.note)
    return [*lines, *(Text(f"  {note}", style="dim") for note in notes)]


def kernel_words(result: MatrixResult, name: str, spec: str) -> str:
    """One kernel of the first axis: its spec, release, commit and subject."""
    arm = next(arm.arm for arm in result.arms if arm.at[0] == name)
    words = [spec] if spec != name else []
    words += [f"Linux {arm.release}", *([arm.commit[:12]] if arm.commit else [])]
    words += [f'("{arm.subject}")'] if arm.subject else []
    return " ".join(words)


def _footer(result: MatrixResult) -> str:
    around = result.environment
    guest = next(iter(around.guests.values()))
    return (
        f"{result.mode} mode, {clocks(result)}: QEMU {around.qemu}, {around.machine}, "
        f"{guest.vcpus} vCPU, {guest.memory_mb} MiB, fingerprint {around.fingerprint}\n"
        f"result {result.result}   again: lab report {result.result}   repeat: {result.reproduce}"
    )


class Titled(NamedTuple):
    """A grid and what it is of; empty where it is of everything."""

    title: str
    grid: Grid


def grids(result: MatrixResult) -> list[Titled]:
    """Where two axes vary, a grid of them for each case; else one of cases and arms."""
    cases = list(dict.fromkeys((cell.workload, cell.case) for cell in result.cells))
    single = [
        Titled(f"{workload}:{case}", lay_out(_only(result, workload, case)))
        for workload, case in cases
    ]  # fmt: skip
    of_axes = all(one.grid.corner != "case \\ arm" for one in single)
    return single if of_axes else [Titled("", lay_out(result))]


def _only(result: MatrixResult, workload: str, case: str) -> MatrixResult:
    return replace(result, cells=[cell for cell in result.cells if (cell.workload, cell.case) == (workload, case)])


def why(cell: Cell) -> str:
    """Why a cell has no number, or no plain verdict."""
    return "; ".join(reasons_of(cell))


def kernels(result: MatrixResult) -> Sequence[tuple[str, str]]:
    """What each kernel is."""
    return [(name, kernel_words(result, name, spec)) for name, spec in
            zip(result.axes[0].values, result.kernels, strict=True)]  # fmt: skip
