"""The tables of the history. What is in them follows from stored results and nights, so it can be made again.

A series is what may be compared over time: one metric of one case, of one branch, under one set of conditions. A
point is one arm of one result in it, a sample one seed of a point.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, Table, Text, UniqueConstraint

HEAD = "0002"
"""The newest step in `lab/history/versions`. Kept here so that opening a database that has it runs no migration."""

metadata = MetaData()

# origin: the machine that has the result's folder; only that one may take its rows out. stamp: of its result.json.
results = Table(
    "results",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("origin", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("started", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("base", Text, nullable=False),
    Column("test", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("night", Integer, nullable=False),
    Column("stamp", Text, nullable=False),
    UniqueConstraint("origin", "id", name="results_by_id"),
)

# branch: empty but for what `lab nightly` measured. conditions: a digest of everything around the kernel's commit
# that decides numbers; setup: the part of it that a user chose.
series = Table(
    "series",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("tree", Text, nullable=False),
    Column("branch", Text, nullable=False),
    Column("workload", Text, nullable=False),
    Column("case_name", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("better", Text, nullable=False),
    Column("is_primary", Boolean, nullable=False),
    Column("mode", Text, nullable=False),
    Column("setup", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("conditions", Text, nullable=False),
    UniqueConstraint("workload", "case_name", "metric", "tree", "branch", "conditions", name="series_by_name"),
)

# first3, first6: means over the seeds that every result has (three always, six unless three were enough), so that
# points stand side by side whatever else was measured. night: 0 but for what `lab nightly` measured.
points = Table(
    "points",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("series", Integer, ForeignKey("series.key"), nullable=False),
    Column("result", Integer, ForeignKey("results.key", ondelete="CASCADE"), nullable=False),
    Column("arm", Text, nullable=False),
    Column("commit", Text, nullable=False),
    Column("release", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("night", Integer, nullable=False),
    Column("started", Text, nullable=False),
    Column("seeds", Integer, nullable=False),
    Column("first3", Float),
    Column("first6", Float),
    Column("low", Float),
    Column("high", Float),
    UniqueConstraint("result", "series", "arm", name="points_by_result"),
)
Index("points_in_order", points.c.series, points.c.night, points.c.started)

samples = Table(
    "samples",
    metadata,
    Column("point", Integer, ForeignKey("points.key", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("value", Float),
    sqlite_with_rowid=False,
)

# What a result said of a case; series is that of the test arm.
comparisons = Table(
    "comparisons",
    metadata,
    Column("result", Integer, ForeignKey("results.key", ondelete="CASCADE"), primary_key=True),
    Column("series", Integer, ForeignKey("series.key"), primary_key=True),
    Column("arm", Text, primary_key=True),
    Column("ratio", Float),
    Column("low", Float),
    Column("high", Float),
    Column("verdict", Text),
    Column("counts", Boolean, nullable=False),
)
Index("comparisons_in_series", comparisons.c.series)

# Nights as they are stored, for machines that did not do them. origin, stamp: as of results, of the night's file.
nights = Table(
    "nights",
    metadata,
    Column("origin", Text, primary_key=True),
    Column("plan", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("stamp", Text, nullable=False),
    Column("document", Text, nullable=False),
)

# What somebody acknowledged, wherever; host: the machine whose night told of the event. Nothing ever deletes these.
acks = Table(
    "acks",
    metadata,
    Column("host", Text, primary_key=True),
    Column("event", Text, primary_key=True),
    Column("note", Text, nullable=False),
    Column("at", Text, nullable=False),
)
