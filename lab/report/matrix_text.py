"""`text` of a matrix: the grid, its signs, the reasons of empty cells; and the phrases that all formats share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace
from rich.console import Console, Group
from rich.text import Text

from lab.compare import matrix_results
from lab.compare.matrix_results import Cell, MatrixResult
from lab.compare.results import clock
from lab.core import text
from lab.core.text import aligned, number, plural, visible_record
from lab.guests import costs
from lab.report import wording
from lab.report.inputs import StoredMatrix
from lab.stats.verdict import percent

# Signs, so that a row fits and no colour is needed.
SIGNS = {"regression": "▼", "improvement": "▲", "same": "=", "unknown": "?", "failed": "✗"}
STYLES = {"regression": "bold red", "improvement": "bold green", "unknown": "yellow", "failed": "bold magenta"}
_MOST_NOTES = 12
_CASES = "case \\ arm"


def matrix(stored: StoredMatrix) -> str:
    """The terminal's table, without colour."""
    return text.plain(lambda width: _table(stored.result, width))


def show(result: MatrixResult, console: Console) -> None:
    """Print a matrix as a table."""
    text.show(lambda width: _table(visible_record(result), width), console)


# ---- layout


class Grid(NamedTuple):
    """Cells in rows and columns. corner: `rows \\ columns`. title: the case, if the grid is of one."""

    corner: str
    rows: list[str]
    columns: list[str]
    cells: list[list[Cell]]
    title: str = ""

    def turned(self) -> Grid:
        corner = " \\ ".join(reversed(self.corner.split(" \\ ")))
        cells = [list(column) for column in zip(*self.cells, strict=True)]
        return Grid(corner, self.columns, self.rows, cells, self.title)


def lay_out(result: MatrixResult) -> Grid:
    """One case and two axes that vary: a row for each value of the first. Else cases are rows, arms columns."""
    cells = {(cell.name, cell.arm): cell for cell in result.cells}
    cases = {cell.name: cell for cell in result.cells}
    varying = matrix_results.varying(result.axes)
    if len(cases) == 1 and len(varying) == 2:
        first, second = varying
        down, across = result.axes[first], result.axes[second]
        arms = {(arm.at[first], arm.at[second]): arm.label for arm in result.arms}
        (case,) = cases
        return Grid(
            f"{down.name} \\ {across.name}",
            list(down.values),
            list(across.values),
            [[cells[case, arms[row, column]] for column in across.values] for row in down.values],
        )
    labels = [arm.label for arm in result.arms]
    several = len({cell.workload for cell in result.cells}) > 1
    rows = [(name if several else cell.case) + (" (control)" if cell.control else "") for name, cell in cases.items()]
    return Grid(_CASES, rows, labels, [[cells[name, label] for label in labels] for name in cases])


def grids(result: MatrixResult) -> list[Grid]:
    """A grid for each case if two axes vary; else one grid of cases and arms."""
    single = []
    for name in dict.fromkeys(cell.name for cell in result.cells):
        alone = replace(result, cells=[cell for cell in result.cells if cell.name == name])
        single.append(lay_out(alone)._replace(title=name))
    return single if all(grid.corner != _CASES for grid in single) else [lay_out(result)]


# ---- phrases


def heading(result: MatrixResult) -> str:
    """The heading of the numbers: the case if there is one, metric, unit, and the better side."""
    metrics = {(cell.metric, cell.unit, cell.better) for cell in result.cells}
    cases = {cell.name for cell in result.cells}
    where = cases.pop() if len(cases) == 1 else ", ".join(sorted({cell.workload for cell in result.cells}))
    chosen = f"; --metric {result.metric}" if result.metric in costs.BASES else ""
    return f"{where}: " + "; ".join(
        f"{metric}, {unit}" + (f" ({better} is better{chosen})" if better != "neither" else "")
        for metric, unit, better in sorted(metrics)
    )


def counts_heading(result: MatrixResult) -> str:
    """The heading of the changes of the instructions, which stand beside modelled cycles; empty without any."""
    names = sorted({cell.instructions.name for cell in result.cells if cell.instructions})
    return f"instructions ({', '.join(names)}) against {result.baseline}" if names else ""


def count(cell: Cell, state: str) -> str:
    """The change of a cell's instructions."""
    if cell.instructions is None:
        return state if state == "baseline" else ""
    return percent(cell.instructions.ratio)


def clocks(result: MatrixResult) -> str:
    """The unit of the numbers; a modelled unit says so, and names the machine."""
    modelled = {metric.name for metric in costs.METRICS}
    models = {
        result.environment.guests[cell.workload].model if cell.metric in modelled else "none" for cell in result.cells
    }
    return " and ".join(clock(model) for model in sorted(models))


def kernels(result: MatrixResult) -> list[tuple[str, str]]:
    """Each kernel of the first axis: its name, and its spec, release, commit and subject."""
    return [
        (name, _kernel(result, name, spec)) for name, spec in zip(result.axes[0].values, result.kernels, strict=True)
    ]


def _kernel(result: MatrixResult, name: str, spec: str) -> str:
    """A kernel without its kconfig: that changes a build, not a kernel."""
    arm = next(arm.arm for arm in result.arms if arm.at[0] == name)
    parts = [spec] if spec != name else []
    parts += [f"of {arm.tree}"] if arm.tree else []
    parts += [f"Linux {arm.release}", *([arm.commit[:12]] if arm.commit else [])]
    parts += [f'("{arm.subject}")'] if arm.subject else []
    return " ".join(parts)


def parts(cell: Cell, state: str) -> tuple[str, str, str]:
    """A cell's value, its change, and its sign."""
    if state in ("failed", "unsupported", "not measured"):
        return state, "", SIGNS.get(state, "")
    value = number(cell.mean) if cell.mean is not None else "n/a"
    if state == "baseline":
        return value, state, ""
    change = percent(cell.ratio) if cell.comparison else ""
    return value, change, SIGNS.get(state, "") if cell.holm is not False else "?"


# ---- the table


def _table(result: MatrixResult, width: int) -> Group:
    """Grid, notes, signs, kernels, and how to see it again."""
    return Group(
        Text(heading(result), style="bold"),
        Text(),
        *_fitting(result, width),
        Text(),
        Text(result.summary),
        *(Text(f"  {note}") for note in notes(result)),
        Text(_legend(result), style="dim"),
        Text(),
        *(Text(f"{name}: {text}", style="dim") for name, text in kernels(result)),
        *(Text(f"  {note}", style="dim") for note in result.notes),
        Text(_footer(result), style="dim"),
    )


def _fitting(result: MatrixResult, width: int) -> list[Text]:
    """The grid, turned if only that fits: many arms are better below one another. The instructions are below it."""
    grid = lay_out(result)
    upright, turned = (_drawn(one, result, _cell) for one in (grid, grid.turned()))
    is_turned = _width(upright) > width >= _width(turned)
    shown = [turned if is_turned else upright]
    if heading := counts_heading(result):
        counts = _drawn(grid.turned() if is_turned else grid, result, lambda cell, state: (count(cell, state),))
        shown += [Text(), Text(heading, style="bold"), counts]
    return shown


def _width(text: Text) -> int:
    return max(len(line) for line in text.plain.splitlines())


def _cell(cell: Cell, state: str) -> tuple[str, ...]:
    return ("-", "", "") if state == "not measured" else parts(cell, state)


def _drawn(grid: Grid, result: MatrixResult, show: Callable[[Cell, str], Sequence[str]]) -> Text:
    """The grid's columns, in each the texts of its cells: values, changes and signs below one another."""
    columns = []
    for name, cells in zip(grid.columns, zip(*grid.cells, strict=True), strict=True):
        shown = [show(cell, result.state(cell)) for cell in cells]
        columns.append([name, *map(" ".join, aligned(shown, right=range(len(shown[0]))))])
    lines = aligned([*zip([grid.corner, *grid.rows], *columns, strict=True)], right=range(1, len(columns) + 1))
    text = Text("   ".join(lines[0]), style="bold")
    for line, row in zip(lines[1:], grid.cells, strict=True):
        text.append("\n" + line[0], style="bold")
        for value, cell in zip(line[1:], row, strict=True):
            text.append("   ").append(value, style=STYLES.get(result.state(cell), ""))
    return text


def notes(result: MatrixResult) -> list[str]:
    """The reasons of failed and open cells, a line each; arms and cases with the same reason share it."""
    cells: dict[str, list[str]] = {}
    several = len({cell.workload for cell in result.cells}) > 1
    for cell in result.cells:
        for reason in (*cell.reasons, *cell.notes):
            cells.setdefault(reason, []).append(f"{cell.name if several else cell.case} {cell.arm}")
    lines = [f"{_some(names)}: {reason}" for reason, names in cells.items()]
    more = len(lines) - _MOST_NOTES
    return [*lines[:_MOST_NOTES], *([f"and {more} more; --json has all"] if more > 0 else [])]


def _some(names: Sequence[str]) -> str:
    return "; ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _legend(result: MatrixResult) -> str:
    signs = "  ".join(f"{sign} {word}" for word, sign in SIGNS.items())
    return f"{signs}   ({wording.threshold(result)}, {_seeds(result)})"


def _seeds(result: MatrixResult) -> str:
    counts = sorted({len(cell.seeds) for cell in result.cells if cell.seeds})
    if not counts:
        return "no seeds"
    most = plural(counts[-1], "seed")
    return most if counts[0] == counts[-1] else f"{counts[0]} to {most}"


def _footer(result: MatrixResult) -> str:
    around = result.environment
    return (
        f"{result.mode} mode, {clocks(result)}: QEMU {around.qemu}, {around.machine}, "
        f"{around.guest_size}, fingerprint {around.fingerprint}\n"
        f"result {result.result}   page: lab report {result.result} -f html -o {result.result}.html   "
        f"repeat: {result.repeat}"
    )
