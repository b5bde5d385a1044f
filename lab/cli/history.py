"""`lab history`.

The history as text for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import click

from lab.cli import options
from lab.core import records
from lab.core.progress import Progress
from lab.core.text import number, visible
from lab.history import index, trends
from lab.history.database import Database, is_shared, opened
from lab.history.trends import Change, Dot, SeriesFilter, SideBySide, Summary, Trend
from lab.nightly import team
from lab.stats.verdict import percent


def listed(found: Sequence[Summary]) -> Iterator[str]:
    """One line a series."""
    for one in found:
        setup = f"  [{one.setup}]" if one.setup else ""
        yield visible(f"{one.points:5} points  {one.last[:10]}  {one.conditions}  {one.name} ({one.unit}){setup}")


def render_trend(found: Trend) -> Iterator[str]:
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


def compared(found: Sequence[SideBySide]) -> Iterator[str]:
    """Two kernels, a line a series."""
    for side in found:
        base, test = ("n/a" if dot.value is None else number(dot.value) for dot in (side.base, side.test))
        yield visible(f"{percent(side.ratio):>9}  {base:>12} -> {test:<12} {side.series.name} ({side.series.unit})")


def _short(commit: str) -> str:
    return commit[:12] if len(commit) == 40 else commit


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


_which = options.together(
    click.option("--workload", "-w", metavar="NAME[:CASE]", help="Of this workload, or this case of it."),
    click.option("--metric", metavar="NAME", help="This metric; '*' for all (default: the primary one)."),
    click.option("--mode", type=click.Choice(["exact", "live"]), help="As this mode measures it."),
    click.option("--tree", metavar="NAME", help="Of this tree."),
    click.option("--branch", metavar="NAME", help="Of this branch, as `lab nightly` measured it."),
    click.option("--conditions", metavar="ID", help="Under these conditions, as `lab history show` names them."),
    options.database,
    options.json_output,
)


@click.group()
def history() -> None:
    """What all results say together: trends, their steps, kernels side by side."""


@history.command()
@_which
def show(database: str | None, as_json: bool, **which: str | None) -> None:
    """List the series there are: what may be compared over time.

    \b
    Example:
      lab history show -w alloc-burst --metric '*'
    """
    with _caught_up(database) as base, base.reading() as connection:
        wanted = _wanted(**which)
        trends.check_names(connection, wanted)
        found = trends.list_series(connection, wanted)
    if as_json:
        click.echo(records.encode({"schema": "lab.history/1", "database": base.name, "series": found}), nl=False)
        return
    _print(listed(found))
    click.echo(f"{len(found)} series in {base.name}")


@history.command()
@_which
@click.option("--least", type=options.Share(), default=0.01, help="The smallest step to find (1%).")
def trend(database: str | None, as_json: bool, least: float, **which: str | None) -> None:
    """One metric of one case over time, with the steps that are in it.

    \b
    Example:
      lab history trend -w alloc-burst:layout-4632k --tree default
    """
    with _caught_up(database) as base, base.reading() as connection:
        wanted = _wanted(**which)
        trends.check_names(connection, wanted)
        one, also = trends.choose(trends.list_series(connection, wanted))
        found = trends.trend(connection, one, also=also, least=least)
    if as_json:
        click.echo(records.encode(found), nl=False)
    else:
        _print(render_trend(found))


@history.command()
@click.argument("base", metavar="COMMIT")
@click.argument("test", metavar="COMMIT")
@_which
def compare(base: str, test: str, database: str | None, as_json: bool, **which: str | None) -> None:
    """Two kernels that were both measured, without measuring again. It is no verdict: `lab ab` gives that.

    \b
    Example:
      lab history compare efa7df3e3bb5 d4148aeab412 -w alloc-burst
    """
    with _caught_up(database) as index, index.reading() as connection:
        wanted = _wanted(**which)
        trends.check_names(connection, wanted)
        found = trends.compare(connection, base, test, wanted)
    if as_json:
        click.echo(records.encode({"schema": "lab.sides/1", "sides": found}), nl=False)
    else:
        _print(compared(found))


@history.command()
@options.database
def rebuild(database: str | None) -> None:
    """Make the index anew from the stored results of this machine.

    \b
    Example:
      lab history rebuild --database postgresql://lab@db.example.org/lab
    """
    with Progress() as progress, opened(database) as base:
        count = index.rebuild(base, progress)
        if is_shared(database):
            team.write(base)
    click.echo(f"{count} results are in {base.name}")


@history.command()
@click.argument("event", metavar="EVENT")
@click.option("--note", default="", help="Why it may stay.")
@options.database
def ack(event: str, note: str, database: str | None) -> None:
    """Acknowledge a change that `lab nightly` told of: what comes after it is compared with the new level.

    With a database that a team shares, also one that another machine told of, as EVENT or HOST/EVENT.

    \b
    Example:
      lab history ack mainline.6.1 --note 'the price of the security fix'
    """
    with Progress() as progress:
        team.acknowledge(event, note, database, progress)
    click.echo(f"{event} is acknowledged")


@contextmanager
def _caught_up(asked: str | None) -> Iterator[Database]:
    """The database, with everything that is finished in it."""
    with Progress() as progress, opened(asked) as base:
        index.catch_up(base, progress)
        yield base


def _wanted(
    *,
    workload: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    tree: str | None = None,
    branch: str | None = None,
    conditions: str | None = None,
) -> SeriesFilter:
    name, _, case = (workload or "").partition(":")
    return SeriesFilter(
        tree=tree, branch=branch, workload=name or None, case=case or None, metric=metric, mode=mode,
        conditions=conditions,
    )  # fmt: skip


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
