"""Structured output: a number by its place in a document."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


class Unreadable(Exception):
    """The output is not what the program's documentation says; the message says which part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a program printed, and which version of it did."""

    values: Any
    program: str

    def number(self, place: str) -> float | None:
        """The number at a place such as `jobs.0.read.iops`; None where the document has no such place.

        Keys may have dots of their own (`percentile.99.000000`): every way to read the place is tried.
        `Unreadable` when something is there, and is not a finite number.
        """
        for value in _at(self.values, place.split(".")):
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise Unreadable(f"{self.program} printed {place} = {value!r:.60}, which is not a number")
            return float(value)
        return None


def _at(value: Any, parts: list[str]) -> Iterator[Any]:
    if not parts:
        yield value
    elif isinstance(value, list):
        if parts[0].isdigit() and int(parts[0]) < len(value):
            yield from _at(value[int(parts[0])], parts[1:])
    elif isinstance(value, dict):
        for cut in range(1, len(parts) + 1):
            key = ".".join(parts[:cut])
            if key in value:
                yield from _at(value[key], parts[cut:])
