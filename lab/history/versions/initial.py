"""Create the first tables: results, series, points, samples, comparisons."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables as they were then. Later changes of `lab.history.schema` are revisions of their own."""
    op.create_table(
        "results",
        sa.Column("key", sa.Integer, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("origin", "id", "kind", "started", "mode")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("base", "test", "verdict", "reason", "fingerprint")),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("night", sa.Integer, nullable=False),
        sa.Column("stamp", sa.Text, nullable=False),
        sa.UniqueConstraint("origin", "id", name="results_by_id"),
    )
    op.create_table(
        "series",
        sa.Column("key", sa.Integer, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("tree", "branch", "workload", "case_name", "metric")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("unit", "better")),
        sa.Column("is_primary", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("mode", "setup", "fingerprint", "conditions")),
        sa.UniqueConstraint(
            "workload", "case_name", "metric", "tree", "branch", "conditions", name="series_by_name"
        ),
    )  # fmt: skip
    op.create_table(
        "points",
        sa.Column("key", sa.Integer, primary_key=True),
        sa.Column("series", sa.Integer, sa.ForeignKey("series.key"), nullable=False),
        sa.Column("result", sa.Integer, sa.ForeignKey("results.key", ondelete="CASCADE"), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("arm", "commit", "release", "subject")),
        sa.Column("night", sa.Integer, nullable=False),
        sa.Column("started", sa.Text, nullable=False),
        sa.Column("seeds", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Float) for name in ("first3", "first6", "low", "high")),
        sa.UniqueConstraint("result", "series", "arm", name="points_by_result"),
    )
    op.create_index("points_in_order", "points", ["series", "night", "started"])
    op.create_table(
        "samples",
        sa.Column("point", sa.Integer, sa.ForeignKey("points.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("value", sa.Float),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "comparisons",
        sa.Column("result", sa.Integer, sa.ForeignKey("results.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("series", sa.Integer, sa.ForeignKey("series.key"), primary_key=True),
        sa.Column("arm", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Float) for name in ("ratio", "low", "high")),
        sa.Column("verdict", sa.Text),
        sa.Column("counts", sa.Boolean, nullable=False),
    )
    op.create_index("comparisons_in_series", "comparisons", ["series"])


def downgrade() -> None:
    """Refuse: nothing comes before the first revision. Delete the database and rebuild it instead."""
    raise NotImplementedError
