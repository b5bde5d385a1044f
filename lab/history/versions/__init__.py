"""The steps by which a database of an older lab becomes one of this lab, each a module that Alembic runs."""
