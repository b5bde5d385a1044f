"""The patches that come with the lab, known by the name of their folder in `kernels/patches`."""

from __future__ import annotations

import difflib
from pathlib import Path

from lab.core.paths import room


def names() -> list[str]:
    """The names of all patch sets."""
    return sorted({path.parent.name for path in (room("kernels") / "patches").glob("[!.]*/*.patch")})


def patches(name: str) -> list[Path]:
    """The patches of one set, in the order in which they are applied."""
    return sorted((room("kernels") / "patches" / name).glob("*.patch"))


def close_to(word: str) -> str | None:
    """The name that somebody who typed something else may have meant."""
    return next(iter(difflib.get_close_matches(word, names(), n=1)), None)
