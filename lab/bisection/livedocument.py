"""What live mode's posterior looks like in documents."""

from __future__ import annotations

from lab.core.records import Record


class Suspicion(Record, frozen=True, kw_only=True):
    """How likely the culprit is one of the commits behind `up_to`, itself included, and not behind `after`."""

    after: str
    up_to: str
    commits: int
    probability: float


class Posterior(Record, frozen=True, kw_only=True):
    """What live mode's search ended with: see docs/live-search.md.

    outcome: `confirmed` by fresh boots, `found`, `undecided`, `no culprit`. probability: of the answer. effect: the
    change as a ratio. noise: one boot's sd, as a share. suspicions: the likeliest places, likeliest first.
    """

    outcome: str
    probability: float
    boots: int
    kernels: int
    effect: float
    noise: float | None
    suspicions: list[Suspicion]
