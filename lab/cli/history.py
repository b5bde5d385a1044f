"""`lab history`: trends over all results, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from sqlalchemy.engine import Connection

from lab.cli import options
from lab.core.git import short
from lab.core.progress import Progress
from lab.core.text import number, plural
from lab.history import index, trends
from lab.history.database import anew, opened
from lab.history.trends import Change, Dot, SeriesFilter, Summary, Trend
from lab.nightly import status
from lab.stats.verdict import percent


def series_lines(series: Sequence[Summary]) -> Iterator[str]:
    """A line for each series."""
    for each in series:
        setup = f"  [{each.setup}]" if each.setup else ""
        many = plural(each.points, "point")
        yield f"{many:>11}  {each.last[:10]}  {each.conditions}  {each.name} ({each.unit}){setup}"


def render_trend(trend: Trend) -> Iterator[str]:
    """A series over time, and its steps."""
    series = trend.series
    setup = series.setup or "nothing set"
    yield f"{series.name} ({series.unit}, {series.better} is better), {series.mode} mode, {setup}"
    pairs = "seeds" if series.mode == "exact" else "rounds"
    yield f"conditions {series.conditions}, {plural(len(trend.points), 'point')}, mean over {trend.seeds} {pairs} each"
    if trend.also:
        yield f"not comparable with it, and not shown: {', '.join(trend.also)} (--conditions ID)"
    yield ""
    steps = {change.at: change for change in trend.changes}
    before: float | None = None
    for i, dot in enumerate(trend.points):
        marks = [_step(steps[i])] if i in steps else []
        marks += ["outlier"] if i in trend.outliers else []
        yield "  ".join([_dot(dot, before), *marks]).rstrip()
        before = dot.value
    yield ""
    yield f"{plural(len(trend.changes), 'step')}, {plural(len(trend.outliers), 'outlier')}"


def _dot(dot: Dot, before: float | None) -> str:
    night = f"night {dot.night:<4}" if dot.night else f"{dot.started[11:16]:10}"
    change = percent(dot.value / before) if before and dot.value is not None else ""
    return f'{dot.started[:10]} {night} {short(dot.commit):20} {_value(dot):>12} {change:>9}  "{dot.subject[:50]}"'


def _value(dot: Dot) -> str:
    return "n/a" if dot.value is None else number(dot.value)


def _step(change: Change) -> str:
    return f"<- step of {percent(change.ratio)}, after {short(change.after)} and not after {short(change.commit)}"


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
    """Show all results together: trends and their steps."""


@history.command()
@_which
def show(database: str | None, as_json: bool, **which: str | None) -> None:
    """List the series: numbers that may be compared over time.

    \b
    Example:
      lab history show -w alloc-burst --metric '*'
    """
    with _reading(database, **which) as (path, connection, wanted):
        series = trends.list_series(connection, wanted)
    if as_json:
        options.print_json({"schema": "lab.history/1", "database": str(path), "series": series})
        return
    options.print_lines(series_lines(series))
    click.echo(f"{len(series)} series in {path}")


@history.command()
@_which
def trend(database: str | None, as_json: bool, **which: str | None) -> None:
    """Show one metric of one case over time, with its steps.

    \b
    Example:
      lab history trend -w alloc-burst:layout-4632k --tree default
    """
    with _reading(database, **which) as (_, connection, wanted):
        series, also = trends.choose(trends.list_series(connection, wanted))
        chosen = trends.trend(connection, series, also=also)
    options.show(chosen, render_trend(chosen), as_json=as_json)


@history.command()
@options.database
def rebuild(database: str | None) -> None:
    """Rebuild the index from the stored results.

    \b
    Example:
      lab history rebuild
    """
    with Progress() as progress, anew(database, progress) as base:
        count = index.rebuild(base, progress)
    click.echo(f"{count} results are in {base.path}")


@history.command()
@click.argument("event", metavar="EVENT")
@click.option("--note", default="", help="Why it may stay.")
def ack(event: str, note: str) -> None:
    """Acknowledge a change that `lab nightly` reported: later nights compare with the new level.

    \b
    Example:
      lab history ack mainline.6.1 --note 'the price of the security fix'
    """
    status.acknowledge(event, note)
    click.echo(f"{event} is acknowledged")


@contextmanager
def _reading(
    database: str | None, workload: str | None = None, **which: str | None
) -> Iterator[tuple[Path, Connection, SeriesFilter]]:
    """The database's file, a connection to it with every finished result in it, and the series that are wanted."""
    name, _, case = (workload or "").partition(":")
    wanted = SeriesFilter(workload=name or None, case=case or None, **which)
    with Progress() as progress, opened(database) as base:
        index.catch_up(base, progress)
        with base.reading() as connection:
            trends.check_names(connection, wanted)
            yield base.path, connection, wanted
