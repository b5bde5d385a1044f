"""The means of a command that keeps quiet and does one thing at a time."""

from typing import Any

from lab.core.executor import Work
from lab.core.progress import Progress


def quiet(**changes: Any) -> Work:
    return Work(**{"progress": Progress(quiet=True), "jobs": 1, **changes})
