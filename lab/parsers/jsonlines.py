"""JSON lines: the last line that is an object with `metrics`; other lines are the program's talk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lab.parsers.document import Document, Unreadable


def read(lines: Sequence[str]) -> Document:
    """The table `metrics` of the last line that has one; an empty one when no line does."""
    for line in reversed(lines):
        if not line.startswith("{"):
            continue
        try:
            value: Any = msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if isinstance(value, dict) and "metrics" in value:
            if not isinstance(value["metrics"], dict):
                raise Unreadable("it printed metrics that are not a table of numbers")
            return Document(values=value["metrics"], program="it")
    return Document(values={}, program="it")
