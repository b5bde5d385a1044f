"""What a command does when it has finished a result: it tells the history, which must never cost the result.

The history: every finished result in a database, and what its numbers did over time.
"""

from __future__ import annotations

from pathlib import Path

from lab.compare import results
from lab.core.errors import LabError
from lab.core.progress import Meter


def remember(folder: Path, meter: Meter, database: str | None = None) -> None:
    """Index a finished result. A database that does not work costs a warning, never the result."""
    if folder.parent != results.results_dir() or not (folder / "result.json").is_file():
        return  # somewhere of the user's own, where a rebuild would not find it; or the budget was used up
    # SQLAlchemy takes a moment to load: only now that something is to be written.
    from lab.history import database as history_database
    from lab.history import index

    try:
        with history_database.opened(database) as base:
            index.index(base, [folder], meter)
    except LabError as error:
        meter.say(f"{folder.name} is not in the history yet: {error.message}; the next `lab history` adds it")
