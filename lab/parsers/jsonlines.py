"""JSON lines: the last line that is an object with `metrics`; other lines are the program's talk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from lab.parsers.document import Document, Unreadable


def read(lines: Sequence[str]) -> Document:
    """The table `metrics` of the last line that has one; an empty one when no line does."""
    metrics = _last(lines).get("metrics", {})
    if not isinstance(metrics, dict):
        raise Unreadable("it printed metrics that are not a table of numbers")
    return Document(values=metrics, program="it")


def read_series(lines: Sequence[str]) -> dict[str, list[list[float]]]:
    """The curves beside the metrics, by name: each a list of points of equally many numbers."""
    series = _last(lines).get("series", {})
    if not isinstance(series, dict):
        raise Unreadable("it printed series that are not a table of curves")
    for name, points in series.items():
        if not isinstance(points, list) or not all(_is_point(point, points[0]) for point in points):
            raise Unreadable(f"it printed series {name}, which is not a list of points of equally many numbers")
    return {name: [[float(value) for value in point] for point in points] for name, points in series.items()}


def _last(lines: Sequence[str]) -> dict[str, Any]:
    for line in reversed(lines):
        if not line.startswith("{"):
            continue
        try:
            value: Any = msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if isinstance(value, dict) and "metrics" in value:
            return value
    return {}


def _is_point(point: object, first: object) -> bool:
    if not isinstance(point, list) or not isinstance(first, list) or len(point) != len(first):
        return False
    return bool(point) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in point
    )
