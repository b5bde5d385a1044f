"""What the history shows of a branch: the steps in its primary metrics, for the night to judge."""

from __future__ import annotations

from collections.abc import Sequence

from lab.core.errors import LabError
from lab.core.progress import Meter
from lab.history import indexing, trends
from lab.history.database import opened
from lab.history.trends import Change, Dot, Trend, Wanted
from lab.nightly.memory import Branch
from lab.nightly.news import SeriesStep


def steps(branch: Branch, least: float, database: str | None, meter: Meter) -> tuple[list[SeriesStep], str]:
    """The steps of a branch of at least that size, and why there are none where the history does not work."""
    try:
        with opened(database) as base:
            indexing.catch_up(base, meter)
            with base.reading() as connection:
                found = trends.list_series(connection, Wanted(tree=branch[0], branch=branch[1]))
                seen = [trends.trend(connection, one, least=least) for one in trends.newest(found)]
    except LabError as error:
        return [], f"the history could not be looked at: {error.message}"
    return [step for one in seen for change in one.changes if (step := _step(one, change))], ""


def _step(one: Trend, change: Change) -> SeriesStep | None:
    series = one.series
    if series.better not in ("higher", "lower"):
        return None
    dots: Sequence[Dot] = one.points
    return SeriesStep(
        workload=series.workload, case=series.case, metric=series.metric,
        better="higher" if series.better == "higher" else "lower",
        earliest=dots[change.earliest].night, latest=dots[change.latest].night,
        after=change.after, commit=change.commit, ratio=change.ratio,
        mode="live" if series.mode == "live" else "exact",
    )  # fmt: skip
