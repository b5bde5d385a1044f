"""Nights and acknowledgements, for a team."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Two tables more; nothing of the others changes."""
    op.create_table(
        "nights",
        sa.Column("origin", sa.Text, primary_key=True),
        sa.Column("plan", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("stamp", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "acks",
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("event", sa.Text, primary_key=True),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("at", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Acknowledgements are in the files of the machines that made them."""
    op.drop_table("acks")
    op.drop_table("nights")
