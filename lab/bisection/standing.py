"""What `lab bisect status --json` prints."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from lab.bisection.livedocument import Suspicion
from lab.core.records import Record


class Open(Record, frozen=True, kw_only=True):
    """A change that is still searched: the commits among which it is."""

    candidates: int
    first: str
    last: str


class Status(Record, frozen=True, kw_only=True):
    """Where a bisection stands.

    changes: places that are still searched. left_s: about how long that takes. The rest is live mode's: where the
    culprit is how likely, likeliest first, how many bits are missing, and how many boots there were.
    """

    schema: str = "lab.bisect-status/1"
    result: str
    finished: bool
    old: str
    new: str
    candidates: int
    measured: int
    skipped: int
    changes: list[Open]
    next: str | None
    steps_left: int
    build_s: float
    run_s: float
    left_s: float | None
    posterior: list[Suspicion] = msgspec.field(default_factory=list)
    bits_left: float | None = None
    boots: int | None = None


class Label(NamedTuple):
    """What `git bisect` is told of a commit: good, bad, old, new or skip; and why, in words."""

    commit: str
    word: str
    words: str
