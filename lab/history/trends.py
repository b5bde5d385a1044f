"""What the history says: which series there are, what one did over time, and two kernels of it side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lab.core.errors import UserError, suggestion
from lab.core.records import Record
from lab.history.schema import points, results, series

if TYPE_CHECKING:
    from lab.stats.changepoints import Step


class Wanted(Record, frozen=True, kw_only=True):
    """Which series are meant; None is any. metric: None is the primary one, `*` any. conditions: a beginning of it.

    mode: `exact` or `live`.
    """

    tree: str | None = None
    branch: str | None = None
    workload: str | None = None
    case: str | None = None
    metric: str | None = None
    mode: str | None = None
    conditions: str | None = None


class Summary(Record, frozen=True, kw_only=True):
    """A series, how many points it has, and when it got the last."""

    key: int
    tree: str
    branch: str
    workload: str
    case: str
    metric: str
    unit: str
    better: str
    primary: bool
    mode: str
    setup: str
    fingerprint: str
    conditions: str
    points: int
    last: str
    night: int

    @property
    def name(self) -> str:
        """The series for people."""
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
    """A step of a trend: its numbers are points of the trend. after: the last commit that is surely not it."""

    at: int
    earliest: int
    latest: int
    after: str
    commit: str
    ratio: float
    p_value: float


class Trend(Record, frozen=True, kw_only=True):
    """`lab history trend --json`."""

    schema: str = "lab.trend/1"
    series: Summary
    seeds: int
    points: list[Dot]
    changes: list[Change]
    outliers: list[int]
    also: list[str]


def list_series(connection: Connection, wanted: Wanted) -> list[Summary]:
    """The series that are meant, by name; those of a name by age, the newest last."""
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
        sa.select(series, counted.c.points, counted.c.last, counted.c.night)
        .join(counted, counted.c.series == series.c.key)
        .order_by(
            series.c.tree, series.c.branch, series.c.workload, series.c.case_name, series.c.metric, counted.c.last,
            series.c.conditions,
        )
    )  # fmt: skip
    return [_summary(row) for row in connection.execute(statement)]


def _where(wanted: Wanted) -> sa.ColumnElement[bool]:
    exact = {
        series.c.tree: wanted.tree, series.c.branch: wanted.branch, series.c.workload: wanted.workload,
        series.c.case_name: wanted.case,
    }  # fmt: skip
    clauses = [column == value for column, value in exact.items() if value is not None]
    if wanted.metric is None:
        clauses.append(series.c.is_primary)
    elif wanted.metric != "*":
        clauses.append(series.c.metric == wanted.metric)
    if wanted.mode is not None:
        clauses.append(series.c.mode == wanted.mode)
    if wanted.conditions is not None:
        clauses.append(series.c.conditions.startswith(wanted.conditions, autoescape=True))
    return sa.and_(sa.true(), *clauses)


def _summary(row: Any) -> Summary:
    return Summary(
        key=row.key, tree=row.tree, branch=row.branch, workload=row.workload, case=row.case_name, metric=row.metric,
        unit=row.unit, better=row.better, primary=row.is_primary, mode=row.mode, setup=row.setup,
        fingerprint=row.fingerprint, conditions=row.conditions, points=row.points, last=row.last, night=row.night,
    )  # fmt: skip


def newest(found: Sequence[Summary]) -> list[Summary]:
    """Of each name the series that goes on: the one under the newest conditions."""
    last: dict[str, Summary] = {}
    for one in found:
        if one.name not in last or (one.night, one.last) > (last[one.name].night, last[one.name].last):
            last[one.name] = one
    return list(last.values())


def choose(found: Sequence[Summary]) -> tuple[Summary, list[str]]:
    """The one series to show, and the conditions of others of that name; `UserError` where several are meant."""
    names = list(dict.fromkeys(one.name for one in found))
    if not found:
        raise UserError("the history has no such series", hint="`lab history show` lists them")
    if len(names) > 1:
        raise UserError(
            f"{len(names)} series are meant, {names[0]} and {names[1]} among them",
            hint="narrow it down with --workload NAME:CASE, --metric, --mode, --tree or --branch",
        )
    latest = max(found, key=lambda one: (one.night, one.last[:10], one.points))
    return latest, [one.conditions for one in found if one is not latest]


def check_names(connection: Connection, wanted: Wanted) -> None:
    """`UserError` for a name that no series has."""
    for word, column in (
        ("tree", series.c.tree), ("branch", series.c.branch), ("workload", series.c.workload),
        ("case", series.c.case_name), ("metric", series.c.metric),
    ):  # fmt: skip
        value = getattr(wanted, word)
        if value is None or value == "*":
            continue
        known = connection.execute(sa.select(column).distinct()).scalars().all()
        if value not in known:
            raise UserError(
                f"the history knows no {word} {value!r}",
                hint=suggestion(value, known) or "`lab history show` lists what there is",
            )


def trend(connection: Connection, one: Summary, *, also: Sequence[str] = (), least: float = 0.01) -> Trend:
    """A series over time, with its steps of at least that size."""
    from lab.stats import changepoints  # brings numpy and scipy along: only when steps are looked for

    dots, seeds = _dots(connection, one)
    known = [(i, dot.value) for i, dot in enumerate(dots) if dot.value is not None]
    values = [value for _, value in known]
    # Steps are found over logarithms: a series that has a zero in it has none.
    positive = bool(values) and min(values) > 0
    found = changepoints.steps(values, least=least) if positive else []
    return Trend(
        series=one,
        seeds=seeds,
        points=dots,
        changes=[_change(step, known, dots) for step in found],
        outliers=[known[i][0] for i in changepoints.outlying(values)] if positive else [],
        also=list(also),
    )


def _change(step: Step, known: Sequence[tuple[int, float]], dots: Sequence[Dot]) -> Change:
    at, earliest, latest = (known[i][0] for i in (step.index, step.earliest, step.latest))
    before = known[step.earliest - 1][0]
    return Change(
        at=at, earliest=earliest, latest=latest, after=dots[before].commit, commit=dots[latest].commit,
        ratio=step.ratio, p_value=step.p_value,
    )  # fmt: skip


def _dots(connection: Connection, one: Summary) -> tuple[list[Dot], int]:
    """The points in order, their values over the seeds that all of them have; and how many those are."""
    rows = connection.execute(dots_of(one.key)).all()
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
    """The points of a series in order: by night, which no clock that jumps can change, then by time."""
    return (
        sa.select(points, results.c.id)
        .join(results, results.c.key == points.c.result)
        .where(points.c.series == key)
        .order_by(points.c.night, points.c.started, results.c.id, points.c.arm)
    )


# ---- two kernels


class Side(Record, frozen=True, kw_only=True):
    """A series that has both kernels: the newest point of each."""

    series: Summary
    base: Dot
    test: Dot
    ratio: float | None


def compare(connection: Connection, base: str, test: str, wanted: Wanted) -> list[Side]:
    """Two commits (or beginnings of their ids), in each series that has both."""
    first, second = (_commit(connection, word) for word in (base, test))
    both = [
        sa.select(points.c.series).where(points.c.commit == commit) for commit in (first, second)
    ]  # fmt: skip
    shared = set(connection.execute(sa.intersect(*both)).scalars())
    made = []
    for one in list_series(connection, wanted):
        if one.key in shared:
            dots, _ = _dots(connection, one)
            left, right = (next(dot for dot in reversed(dots) if dot.commit == commit) for commit in (first, second))
            ratio = right.value / left.value if left.value and right.value is not None else None
            made.append(Side(series=one, base=left, test=right, ratio=ratio))
    if not made:
        raise UserError(
            f"no series has both {first[:12]} and {second[:12]} under the same conditions",
            hint="`lab ab` compares them; --metric '*' takes all metrics",
        )
    return made


def _commit(connection: Connection, word: str) -> str:
    matching = sa.select(points.c.commit).where(points.c.commit.startswith(word, autoescape=True)).distinct().limit(3)
    found = connection.execute(matching).scalars().all()
    if len(found) == 1 or word in found:
        return word if word in found else str(found[0])
    if found:
        raise UserError(f"{word!r} is ambiguous in the history: {', '.join(one[:16] for one in found)}")
    raise UserError(f"the history has no commit {word!r}", hint="give a full id, or its beginning, that was measured")
