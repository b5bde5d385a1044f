"""Bringing a database up to date, by the steps in `lab/history/versions`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import Engine

from lab.core.errors import HostFailed
from lab.history.database import write_to

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

_HERE = Path(__file__).parent


def scripts() -> ScriptDirectory:
    """All steps."""
    # Alembic takes a moment to load, and is wanted only where a database has to be changed.
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_HERE))
    config.set_main_option("version_locations", str(_HERE / "versions"))
    config.set_main_option("path_separator", "newline")
    return ScriptDirectory.from_config(config)


def upgrade(engine: Engine, name: str) -> None:
    """Take every step that a database has not had yet, in one transaction."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.util import CommandError

    found = scripts()
    context = EnvironmentContext(Config(), found, fn=lambda revision, _: found._upgrade_revs("head", revision))
    try:
        with write_to(engine) as connection:
            context.configure(connection=connection)
            with context:
                context.run_migrations()
    except CommandError as error:
        raise HostFailed(
            f"the history's database {name} was written by another version of the lab: {error}",
            hint="use that one, or name another database with --database",
        ) from error
