"""Alembic's revisions of the history's schema: each module changes a database from one version to the next."""
