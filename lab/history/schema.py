"""The tables of the history. All rows follow from stored results, so they can be written again.

A series is one metric of one case, of one branch, under one set of conditions: its numbers may be compared over time.
A point is one arm of one result in a series, a sample is one seed of a point.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, Table, Text, UniqueConstraint

VERSION = 3
"""The version of the tables, raised with every change of one. A database with an older one gets new tables."""

metadata = MetaData()

# One row. The first labs had it from Alembic: by this name they know newer tables, and leave them alone.
version = Table("alembic_version", metadata, Column("version_num", Text, primary_key=True))

# stamp: of the result's result.json.
results = Table(
    "results",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
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
)

# branch: empty except for results of `lab nightly`. conditions: a digest of everything beside the kernel's commit that
# decides numbers; setup: the part of it that a user chose.
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
# points with more seeds stay comparable. night: 0 except for results of `lab nightly`.
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

# The verdict of a result on a case; series: of the test arm.
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

OLD_TABLES = ("nights", "acks")
"""The tables that the lab no longer has."""
