"""What somebody probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """A question that names the close matches of a word; None when nothing comes close."""
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else None
