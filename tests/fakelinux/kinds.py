"""The kinds of commits, and which patch makes each of them.

Planted patches are in `patches/`, those of the THP-alignment story where the default tree has them. A kind that
takes another back (`mends-build`, `speedup`) is the same patch in reverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.core.paths import data_folder

NEUTRAL = "neutral"
MERGE = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A planted change. `effect` is what is so from then on, or no longer if it is taken back."""

    effect: str
    reverse: bool = False
    needs: str | None = None
    """Another effect that has to be there already."""


#: Everything but `neutral` changes what is measured, or whether anything can be.
KINDS: Mapping[str, Kind | None] = {
    NEUTRAL: None,
    "culprit": Kind(effect="culprit"),
    "fix": Kind(effect="fix", needs="culprit"),
    "follow-up": Kind(effect="follow-up", needs="fix"),
    "slowdown": Kind(effect="slow"),
    "speedup": Kind(effect="slow", reverse=True),
    "breaks-build": Kind(effect="unbuildable"),
    "mends-build": Kind(effect="unbuildable", reverse=True),
    "breaks-boot": Kind(effect="unbootable"),
    "mends-boot": Kind(effect="unbootable", reverse=True),
    "breaks-workload": Kind(effect="panicking"),
    "mends-workload": Kind(effect="panicking", reverse=True),
}


def patches() -> dict[str, Path]:
    """The patch of each effect."""
    story = sorted((data_folder("kernels") / "patches" / "thp-alignment").glob("*.patch"))
    planted = {path.stem: path for path in (Path(__file__).parent / "patches").glob("*.patch")}
    return {**planted, **dict(zip(("culprit", "fix", "follow-up"), story[1:], strict=True))}


def sources() -> list[str]:
    """Files that the guest's kernel compiles, spread over the source, for the neutral commits."""
    return (Path(__file__).parent / "sources.txt").read_text().splitlines()
