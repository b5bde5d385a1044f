"""Trends: the series of the history, and one of them over time with its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lab.core.errors import UserError, suggestion
from lab.core.records import Record
from lab.guests.run import Mode
from lab.history.database import points, results, series
from lab.stats.verdict import Better

if TYPE_CHECKING:
    from lab.stats.changepoints import Step


class SeriesFilter(Record, frozen=True, kw_only=True):
    """The series to find; None matches any.

    metric: None matches the primary metric, `*` any. conditions: the beginning of the id is enough.
    """

    tree: str | None = None
    branch: str | None = None
    workload: str | None = None
    case: str | None = None
    metric: str | None = None
    mode: str | None = None
    conditions: str | None = None


class Summary(Record, frozen=True, kw_only=True):
    """A series, the number of its points, and the date and night of the last."""

    key: int
    tree: str
    branch: str
    workload: str
    case: str
    metric: str
    unit: str
    better: Better
    primary: bool
    mode: Mode
    setup: str
    fingerprint: str
    conditions: str
    points: int
    last: str
    night: int

    @property
    def name(self) -> str:
        where = f"{self.tree}/{self.branch}" if self.branch else self.tree
        return f"{where} {self.workload}:{self.case} {self.metric}{'' if self.mode == 'exact' else f' ({self.mode})'}"


class Dot(Record, frozen=True, kw_only=True):
    """One point of a trend."""

    commit: str
    release: str
    subject: str
    night: int
    started: str
    result: str
    seeds: int
    value: float | None
    low: float | None
    high: float | None


class Change(Record, frozen=True, kw_only=True):
    """A step of a trend. at, earliest, latest: indices of its points. after: the last commit before the step."""

    at: int
    earliest: int
    latest: int
    after: str
    commit: str
    ratio: float
    p_value: float


class Trend(Record, frozen=True, kw_only=True):
    """`lab history trend --json`. also: the conditions of other series of that name."""

    schema: str = "lab.trend/1"
    series: Summary
    seeds: int
    points: list[Dot]
    changes: list[Change]
    outliers: list[int]
    also: list[str]


# ---- series


_RENAMED = {"case_name": "case", "is_primary": "primary"}
"""The columns that a `Summary` has by another name."""


def list_series(connection: Connection, wanted: SeriesFilter) -> list[Summary]:
    """The series that match, sorted by name; series of one name by age, the newest last."""
    counted = (
        sa.select(
            points.c.series,
            sa.func.count().label("points"),
            sa.func.max(points.c.started).label("last"),
            sa.func.max(points.c.night).label("night"),
        )
        .where(points.c.series.in_(sa.select(series.c.key).where(_where(wanted))))
        .group_by(points.c.series)
        .subquery()
    )
    statement = (
        sa.select(
            *(column.label(_RENAMED.get(column.name, column.name)) for column in series.c),
            counted.c.points, counted.c.last, counted.c.night,
        )
        .join(counted, counted.c.series == series.c.key)
        .order_by(
            series.c.tree, series.c.branch, series.c.workload, series.c.case_name, series.c.metric, counted.c.last,
            series.c.conditions,
        )
    )  # fmt: skip
    return [Summary(**row) for row in connection.execute(statement).mappings()]


def _where(wanted: SeriesFilter) -> sa.ColumnElement[bool]:
    values = {
        series.c.tree: wanted.tree, series.c.branch: wanted.branch, series.c.workload: wanted.workload,
        series.c.case_name: wanted.case, series.c.mode: wanted.mode,
    }  # fmt: skip
    clauses = [column == value for column, value in values.items() if value is not None]
    if wanted.metric is None:
        clauses.append(series.c.is_primary)
    elif wanted.metric != "*":
        clauses.append(series.c.metric == wanted.metric)
    if wanted.conditions is not None:
        clauses.append(series.c.conditions.startswith(wanted.conditions, autoescape=True))
    return sa.and_(sa.true(), *clauses)


def choose(summaries: Sequence[Summary]) -> tuple[Summary, list[str]]:
    """The newest of series that have one name, and the conditions of the others. `UserError` for several names."""
    if not summaries:
        raise UserError("the history has no such series", hint="`lab history show` lists them")
    names = list(dict.fromkeys(summary.name for summary in summaries))
    if len(names) > 1:
        raise UserError(
            f"{len(names)} series match, {names[0]} and {names[1]} among them",
            hint="narrow it down with --workload NAME:CASE, --metric, --mode, --tree or --branch",
        )
    latest = max(summaries, key=lambda summary: (summary.night, summary.last[:10], summary.points))
    return latest, [summary.conditions for summary in summaries if summary is not latest]


def check_names(connection: Connection, wanted: SeriesFilter) -> None:
    """Raise `UserError` for a name that no series has."""
    for kind, column in (
        ("tree", series.c.tree), ("branch", series.c.branch), ("workload", series.c.workload),
        ("case", series.c.case_name), ("metric", series.c.metric),
    ):  # fmt: skip
        name = getattr(wanted, kind)
        if name is None or name == "*":
            continue
        names = connection.execute(sa.select(column).distinct()).scalars().all()
        if name not in names:
            raise UserError(
                f"the history has no {kind} {name!r}",
                hint=suggestion(name, names) or "`lab history show` lists all",
            )


# ---- over time


def branch_trends(connection: Connection, tree: str, branch: str, *, least: float = 0.01) -> list[Trend]:
    """The primary metrics of a branch over time, each under its newest conditions."""
    newest: dict[str, Summary] = {}
    for summary in list_series(connection, SeriesFilter(tree=tree, branch=branch)):
        last = newest.get(summary.name)
        if last is None or (summary.night, summary.last) > (last.night, last.last):
            newest[summary.name] = summary
    return [trend(connection, summary, least=least) for summary in newest.values()]


def trend(connection: Connection, summary: Summary, *, also: Sequence[str] = (), least: float = 0.01) -> Trend:
    """A series over time, with its steps of at least that size."""
    from lab.stats import changepoints  # imports numpy and scipy: only when steps are searched for

    dots, seeds = _dots(connection, summary)
    numbers = [(i, dot.value) for i, dot in enumerate(dots) if dot.value is not None]
    values = [value for _, value in numbers]
    # Steps are found in logarithms, so a series that contains a zero has none.
    positive = bool(values) and min(values) > 0
    return Trend(
        series=summary,
        seeds=seeds,
        points=dots,
        changes=[_change(step, numbers, dots) for step in changepoints.steps(values, least=least)] if positive else [],
        outliers=[numbers[i][0] for i in changepoints.outlying(values)] if positive else [],
        also=list(also),
    )


def _change(step: Step, numbers: Sequence[tuple[int, float]], dots: Sequence[Dot]) -> Change:
    at, earliest, latest = (numbers[i][0] for i in (step.index, step.earliest, step.latest))
    before = numbers[step.earliest - 1][0]
    return Change(
        at=at, earliest=earliest, latest=latest, after=dots[before].commit, commit=dots[latest].commit,
        ratio=step.ratio, p_value=step.p_value,
    )  # fmt: skip


def _dots(connection: Connection, summary: Summary) -> tuple[list[Dot], int]:
    """The points in order, their values over the seeds that all of them have, and the number of these seeds."""
    rows = connection.execute(dots_of(summary.key)).all()
    six = bool(rows) and all(row.first6 is not None for row in rows)
    dots = [
        Dot(
            commit=row.commit, release=row.release, subject=row.subject, night=row.night, started=row.started,
            result=row.id, seeds=row.seeds, value=row.first6 if six else row.first3, low=row.low, high=row.high,
        )
        for row in rows
    ]  # fmt: skip
    return dots, 6 if six else min((3, *(row.seeds for row in rows)))


def dots_of(key: int) -> sa.Select[Any]:
    """The points of a series in order: by night, which does not depend on the clock, then by time."""
    return (
        sa.select(points, results.c.id)
        .join(results, results.c.key == points.c.result)
        .where(points.c.series == key)
        .order_by(points.c.night, points.c.started, results.c.id, points.c.arm)
    )
