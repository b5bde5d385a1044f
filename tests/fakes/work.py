"""The means of a command that keeps quiet and does one thing at a time."""

from __future__ import annotations

from typing import Any

from lab.core.executor import Work
from lab.core.progress import Meter


def quiet(**changes: Any) -> Work:
    return Work(**{"meter": Meter(quiet=True), "jobs": 1, **changes})
