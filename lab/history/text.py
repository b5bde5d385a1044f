"""The history as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.compare.results import number
from lab.core.text import visible
from lab.history.trends import Change, Dot, Side, Summary, Trend
from lab.stats.verdict import percent


def listed(found: Sequence[Summary]) -> Iterator[str]:
    """One line a series."""
    for one in found:
        setup = f"  [{one.setup}]" if one.setup else ""
        yield visible(f"{one.points:5} points  {one.last[:10]}  {one.conditions}  {one.name} ({one.unit}){setup}")


def trend(found: Trend) -> Iterator[str]:
    """A series over time, and its steps."""
    one = found.series
    yield visible(f"{one.name} ({one.unit}, {one.better} is better), {one.mode} mode, {one.setup or 'nothing set'}")
    pairs = "seeds" if one.mode == "exact" else "rounds"
    yield f"conditions {one.conditions}, {len(found.points)} points, mean over {found.seeds} {pairs} each"
    if found.also:
        yield f"not comparable with it, and not shown: {', '.join(found.also)} (--conditions ID)"
    yield ""
    steps = {change.at: change for change in found.changes}
    before: float | None = None
    for place, dot in enumerate(found.points):
        marks = [_step(steps[place])] if place in steps else []
        marks += ["outlier"] if place in found.outliers else []
        yield visible("  ".join([_dot(dot, before), *marks]).rstrip())
        before = dot.value
    yield ""
    yield f"{_many(len(found.changes), 'step')}, {_many(len(found.outliers), 'outlier')}"


def _dot(dot: Dot, before: float | None) -> str:
    night = f"night {dot.night:<4}" if dot.night else f"{dot.started[11:16]:10}"
    change = percent(dot.value / before) if before and dot.value is not None else ""
    value = "n/a" if dot.value is None else number(dot.value)
    return f'{dot.started[:10]} {night} {_short(dot.commit):20} {value:>12} {change:>9}  "{dot.subject[:50]}"'


def _step(change: Change) -> str:
    return f"<- step of {percent(change.ratio)}, after {_short(change.after)} and not after {_short(change.commit)}"


def compared(found: Sequence[Side]) -> Iterator[str]:
    """Two kernels, a line a series."""
    for side in found:
        base, test = ("n/a" if dot.value is None else number(dot.value) for dot in (side.base, side.test))
        yield visible(f"{percent(side.ratio):>9}  {base:>12} -> {test:<12} {side.series.name} ({side.series.unit})")


def _short(commit: str) -> str:
    return commit[:12] if len(commit) == 40 else commit


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
