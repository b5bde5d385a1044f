"""Stored results into the database: each when it is finished, those that were missed later, or all of them anew."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lab.compare import results
from lab.core.errors import LabError
from lab.core.progress import Meter
from lab.history import entries
from lab.history.database import Database
from lab.history.entries import Entry, Point, SeriesName
from lab.history.schema import comparisons, points, samples, series
from lab.history.schema import results as indexed

_NAME = (series.c.workload, series.c.case_name, series.c.metric, series.c.tree, series.c.branch, series.c.conditions)


def origin() -> str:
    """This machine: its results are here, so only it may say that one of them is gone."""
    return platform.node() or "localhost"


def catch_up(base: Database, meter: Meter) -> int:
    """Index what is finished and not there, or was written again; how many results that were."""
    with base.reading() as connection:
        mine = sa.select(indexed.c.id, indexed.c.stamp).where(indexed.c.origin == origin())
        known = {row.id: row.stamp for row in connection.execute(mine)}
    missing = [folder for folder in stored() if known.get(folder.name) != entries.stamp(folder)]
    return index(base, missing, meter)


def rebuild(base: Database, meter: Meter) -> int:
    """Index all results of this machine anew, in one transaction; how many there are."""
    with meter.task("reading results", None) as task:
        found = list(_read(stored(), meter, task.advance))
    with base.writing() as connection:
        connection.execute(sa.delete(indexed).where(indexed.c.origin == origin()))
        writer = _Writer(connection)
        for entry in found:
            writer.add(entry)
        writer.drop_empty_series()
    return len(found)


def index(base: Database, folders: Iterable[Path], meter: Meter) -> int:
    """Index some results, each as if it had never been indexed; those that cannot be read are named."""
    found = list(_read(folders, meter))
    if not found:
        return 0
    with base.writing() as connection:
        writer = _Writer(connection)
        for entry in found:
            writer.add(entry)
    return len(found)


def stored() -> list[Path]:
    """The folders of all finished results, oldest first."""
    return sorted(path.parent for path in results.results_dir().glob("*/result.json"))


def _read(folders: Iterable[Path], meter: Meter, done: Any = lambda: None) -> Iterator[Entry]:
    for folder in folders:
        try:
            entry = entries.read(folder)
        except LabError as error:
            meter.say(entries.unreadable(folder, error))
            continue
        finally:
            done()
        if entry is not None:
            yield entry


class _Writer:
    """Writes entries; remembers the series that it has met."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._series: dict[tuple[str, ...], int] = {}

    def add(self, entry: Entry) -> None:
        """Put an entry in the place of whatever there was of that result."""
        mine = (indexed.c.origin == origin()) & (indexed.c.id == entry.id)
        self._connection.execute(sa.delete(indexed).where(mine))
        row = {name: value for name, value in _plain(entry).items() if name in indexed.c}
        added = self._connection.execute(sa.insert(indexed).values(origin=origin(), **row))
        assert added.inserted_primary_key is not None  # noqa: S101
        key = added.inserted_primary_key[0]
        self._meet([one.series for one in entry.points] + [one.series for one in entry.judged])
        self._points(key, entry.points)
        if entry.judged:
            self._connection.execute(
                sa.insert(comparisons),
                [
                    {
                        "result": key, "series": self._key(one.series), "arm": one.arm, "ratio": one.ratio,
                        "low": one.interval[0] if one.interval else None,
                        "high": one.interval[1] if one.interval else None,
                        "verdict": one.verdict, "counts": one.counts,
                    }
                    for one in entry.judged
                ],
            )  # fmt: skip

    def _points(self, result: int, found: list[Point]) -> None:
        if not found:
            return
        rows = [
            {
                "series": self._key(one.series), "result": result, "arm": one.arm, "commit": one.commit,
                "release": one.release, "subject": one.subject, "night": one.night, "started": one.started,
                "seeds": len(one.values), "first3": entries.first(one.values, min(3, len(one.values))),
                "first6": entries.first(one.values, 6), **_bounds(one),
            }
            for one in found
        ]  # fmt: skip
        statement = sa.insert(points).returning(points.c.key, sort_by_parameter_order=True)
        keys = self._connection.execute(statement, rows).scalars().all()
        values = [
            {"point": key, "number": number, "value": value}
            for key, one in zip(keys, found, strict=True)
            for number, value in enumerate(one.values)
        ]
        if values:
            self._connection.execute(sa.insert(samples), values)

    def _meet(self, names: Iterable[SeriesName]) -> None:
        """See to it that the keys of series are known; those that are new are added."""
        if not (unknown := dict.fromkeys(name for name in names if _identity(name) not in self._series)):
            return
        self._load({name.conditions for name in unknown})
        if new := [asdict(name) for name in unknown if _identity(name) not in self._series]:
            self._connection.execute(sa.insert(series), new)
            self._load({name.conditions for name in unknown})

    def _load(self, conditions: Iterable[str]) -> None:
        wanted = sa.select(series.c.key, *_NAME).where(series.c.conditions.in_(sorted(conditions)))
        self._series |= {tuple(name): key for key, *name in self._connection.execute(wanted)}

    def _key(self, name: SeriesName) -> int:
        return self._series[_identity(name)]

    def drop_empty_series(self) -> None:
        """Series that nothing refers to any more."""
        used = sa.union(sa.select(points.c.series), sa.select(comparisons.c.series))
        self._connection.execute(sa.delete(series).where(series.c.key.not_in(used)))


def _identity(name: SeriesName) -> tuple[str, ...]:
    return tuple(getattr(name, column.name) for column in _NAME)


def _plain(entry: Entry) -> Mapping[str, Any]:
    return {name: getattr(entry, name) for name in entry.__slots__ if name not in ("points", "judged")}


def _bounds(one: Point) -> Mapping[str, float | None]:
    known = [value for value in one.values if value is not None]
    return {"low": min(known, default=None), "high": max(known, default=None)}
