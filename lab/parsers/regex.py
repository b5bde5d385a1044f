"""Regular expressions: the one group of the last place where a pattern matches is the number."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from lab.parsers.document import Unreadable


def number(lines: Sequence[str], pattern: str) -> float | None:
    """The number that a pattern finds; None when it matches nowhere. `^` and `$` are those of a line."""
    matches = list(re.finditer(pattern, "\n".join(lines), re.MULTILINE))
    if not matches:
        return None
    text = matches[-1][1]
    try:
        value = float(text)
    except (ValueError, TypeError):
        value = math.nan
    if not math.isfinite(value):
        raise Unreadable(f"the pattern {pattern!r} found {text!r}, which is not a number")
    return value
