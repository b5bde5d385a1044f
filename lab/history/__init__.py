"""The history: a database of all finished results, and the trends of their numbers."""

from __future__ import annotations

from pathlib import Path

from lab.compare import result_folders
from lab.core.errors import LabError
from lab.core.progress import Progress


def remember(folder: Path, progress: Progress, database: str | None = None) -> None:
    """Index a finished result. If the database does not work, warn: the result itself is stored."""
    if folder.parent != result_folders.results_dir() or not result_folders.is_finished(folder):
        return  # a folder that the user chose, in which no rebuild would find it, or an unfinished result
    # SQLAlchemy is slow to import: do so only when there is something to write.
    from lab.history import index
    from lab.history.database import opened

    try:
        with opened(database) as base:
            index.index(base, [folder], progress)
    except LabError as error:
        progress.log(f"{folder.name} is not in the history yet: {error.message}; the next `lab history` adds it")
