"""A history with as many samples as one wants, written straight into the database."""

import sqlalchemy as sa

from lab.history import database, trends
from lab.history.database import opened
from lab.history.trends import SeriesFilter, Trend

SEEDS = 6
NIGHTS = 400
_ROWS = 20_000


def fill(path: str, *, samples: int) -> None:
    """Fill an empty database: one result a night, as many cases as it takes, a step of 5 % in the last third."""
    cases = -(-samples // (NIGHTS * SEEDS))
    with opened(path) as base, base.writing() as connection:
        connection.execute(sa.insert(database.results), [_result(night) for night in range(1, NIGHTS + 1)])
        connection.execute(sa.insert(database.series), [_series(number) for number in range(1, cases + 1)])
        nights = range(1, NIGHTS + 1)
        points = [_point(night, case, (case - 1) * NIGHTS + night) for case in range(1, cases + 1) for night in nights]
        for start in range(0, len(points), _ROWS):
            some = points[start : start + _ROWS]
            connection.execute(sa.insert(database.points), some)
            values = [{"point": one["key"], "number": n, "value": one["first6"]} for one in some for n in range(SEEDS)]
            connection.execute(sa.insert(database.samples), values)


def trend(path: str, case: str = "case-1") -> Trend:
    """What `lab history trend` reads."""
    with opened(path) as base, base.reading() as connection:
        one, also = trends.choose(trends.list_series(connection, SeriesFilter(workload="many", case=case)))
        return trends.trend(connection, one, also=also)


def _result(night: int) -> dict[str, object]:
    texts = dict.fromkeys(("kind", "mode", "base", "test", "verdict", "reason", "fingerprint", "plan", "stamp"), "")
    return {"key": night, "id": f"r{night}", "started": f"{night:04}", "night": night, **texts}


def _series(number: int) -> dict[str, object]:
    return {
        "key": number, "tree": "linux", "branch": "main", "workload": "many", "case_name": f"case-{number}",
        "metric": "cycles", "unit": "cycles", "better": "lower", "is_primary": True, "mode": "exact", "setup": "",
        "fingerprint": "f", "conditions": "c",
    }  # fmt: skip


def _point(night: int, case: int, key: int) -> dict[str, object]:
    value = (100.0 + (night * 7919 + case) % 13 / 20) * (1.05 if night > NIGHTS * 2 // 3 else 1.0)
    return {
        "key": key, "series": case, "result": night, "arm": "test", "commit": f"{night:040x}", "release": "6.99",
        "subject": "mm: change", "night": night, "started": f"{night:04}", "seeds": SEEDS, "first3": value,
        "first6": value, "low": value, "high": value,
    }  # fmt: skip
