"""Add the tables `nights` and `acks`, by which the machines of a team share what `lab nightly` found.

Each machine copies its stored nights into `nights`, so that the others can show them and do not report the same
culprit again. `acks` has the acknowledged events of all machines. Both tables begin empty: each machine writes its own
rows with its next night or acknowledgement, or with `lab history rebuild`.

The next revision is another module like this one, with this one's number as `down_revision`. It spells out the tables
and columns that it adds, and imports nothing from `lab.history.schema`, which will go on changing. `schema.HEAD` then
names the new revision, and `tests/history/test_index.py` checks that all revisions together give the schema.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create both tables; the others stay as they are."""
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
    """Drop both tables. The nights and acknowledgements stay in the files of the machines that made them."""
    op.drop_table("acks")
    op.drop_table("nights")
