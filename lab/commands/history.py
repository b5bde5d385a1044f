"""`lab history`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from lab.commands import options
from lab.core import records
from lab.core.progress import Meter
from lab.history import indexing, text, trends
from lab.history.database import Database, is_shared, opened
from lab.history.trends import Wanted
from lab.nightly import acks, sharing

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
    _print(text.listed(found))
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
        _print(text.trend(found))


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
        _print(text.compared(found))


@history.command()
@options.database
def rebuild(database: str | None) -> None:
    """Make the index anew from the stored results of this machine.

    \b
    Example:
      lab history rebuild --database postgresql://lab@db.example.org/lab
    """
    with Meter() as meter, opened(database) as base:
        count = indexing.rebuild(base, meter)
        if is_shared(database):
            sharing.write(base)
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
    with Meter() as meter:
        acks.acknowledge(event, note, database, meter)
    click.echo(f"{event} is acknowledged")


@contextmanager
def _caught_up(asked: str | None) -> Iterator[Database]:
    """The database, with everything that is finished in it."""
    with Meter() as meter, opened(asked) as base:
        indexing.catch_up(base, meter)
        yield base


def _wanted(
    *,
    workload: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    tree: str | None = None,
    branch: str | None = None,
    conditions: str | None = None,
) -> Wanted:
    name, _, case = (workload or "").partition(":")
    return Wanted(
        tree=tree, branch=branch, workload=name or None, case=case or None, metric=metric, mode=mode,
        conditions=conditions,
    )  # fmt: skip


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
