"""The answer of a bisection: one document, stored in its folder; `lab bisect` and `lab report` show it.

What live mode's posterior looks like in documents.

What `lab bisect status --json` prints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from lab.bisection.commit_range import Candidate
from lab.compare.results import ResultEnvironment
from lab.core import records
from lab.core.errors import HostFailed, UserError
from lab.core.records import Record
from lab.stats.verdict import Comparison, Outcome


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


class Function(Record, frozen=True, kw_only=True):
    """A function that costs something else than before, in modelled cycles an operation."""

    name: str
    space: str
    base: float
    test: float


class Proof(Record, frozen=True, kw_only=True):
    """What was tried on one culprit.

    confirmed: fresh seeds show the same change against its parent. same_image: its kernel is its parent's, so it
    cannot be the culprit. fresh: that comparison; result: where it is stored. reverted: the new end without the
    culprit against the new end; not_reverted: why there is none. functions: what `lab explain` says changed.
    """

    confirmed: bool
    same_image: bool
    fresh: Comparison | None = None
    result: str | None = None
    reverted: Comparison | None = None
    revert_result: str | None = None
    not_reverted: str | None = None
    functions: list[Function] = msgspec.field(default_factory=list)
    note: str | None = None


FILE = "result.json"
OutcomeWord = Literal["found", "range", "no culprit", "undecided"]


class Step(Record, frozen=True, kw_only=True):
    """One commit of the path taken, in the order of measuring."""

    commit: str
    title: str
    decision: str
    ratio: float | None = None
    values: list[float] = msgspec.field(default_factory=list)
    build: str = ""
    same_as: str | None = None
    why: str = ""
    log: str | None = None
    build_s: float = 0.0
    run_s: float = 0.0


class Culprit(Record, frozen=True, kw_only=True):
    """A change: the commit that did it, or the commits among which that one is.

    untested: those of them that were tried in vain; the others, but the last, were not tried. before: the commit it
    was measured against. effect: from the search's own seeds. direction: of the change,
    `regression` or `improvement`; None for metrics without a better side. confidence: of the commit being the
    culprit, or of the culprit being in the range. inside: of a package, what a search of the commits that it was made
    from found (inside_result: where that is), or how to get there.
    """

    commit: str
    title: str
    author: str
    date: str
    suspects: list[str] = msgspec.field(name="among")
    untested: list[str]
    before: str
    effect: Comparison | None
    direction: Outcome | None
    confidence: float
    merge: bool = False
    outside_paths: bool = False
    inside: str | None = None
    inside_result: str | None = None
    proof: Proof | None = None

    @property
    def is_single(self) -> bool:
        """Whether it is one commit."""
        return len(self.suspects) == 1

    @property
    def needs_proof(self) -> bool:
        """Whether it is one commit with a known effect that no proof confirms or denies yet."""
        return self.is_single and self.effect is not None and self.proof is None


class Answer(Record, frozen=True, kw_only=True):
    """`lab bisect --json`.

    outcome: `found` (every change is one commit), `range` (some are not, the rest cannot be tested), `no culprit`,
    or `undecided` (the budget ran out, or the seeds do not agree). measured: commits with numbers, the ends not
    counted. live: in live mode only.
    """

    schema: str = "lab.bisect/1"
    outcome: OutcomeWord
    reason: str
    mode: str
    terms: tuple[str, str] = msgspec.field(name="words")
    old: Candidate
    new: Candidate
    kind: str
    tree: str | None
    first_parent: bool
    paths: tuple[str, ...]
    candidates: int
    workload: str
    case: str
    metric: str
    unit: str
    threshold: float
    seeds: list[int]
    ends: Comparison | None
    changes: list[Culprit]
    path: list[Step]
    skipped: list[Step]
    measured: int
    environment: ResultEnvironment | None
    started: str
    build_s: float
    run_s: float
    result: str
    reproduce: list[str]
    live: Posterior | None = None

    @property
    def named(self) -> bool:
        """Whether there is a culprit, or a range that it is in."""
        return self.outcome in ("found", "range")


def save(folder: Path, answer: Answer) -> None:
    """Keep an answer in its session's folder."""
    records.save(folder / FILE, answer)


def load(folder: Path) -> Answer:
    """The finished answer of a session."""
    if not (folder / FILE).is_file():
        raise HostFailed(f"{folder.name} has no answer yet", hint=f"go on with it by `lab bisect resume {folder.name}`")
    return records.load(folder / FILE, Answer)


def proving(found: Answer) -> str:
    """What names the comparison that proves a bisection's culprit; `UserError` where there is not one."""
    proved = [one.proof.result for one in found.changes if one.proof and one.proof.result]
    if len(proved) == 1:
        return proved[0]
    if proved:
        raise UserError(f"{found.result} found {len(proved)} changes", hint=f"name one: {', '.join(proved)}")
    raise UserError(f"{found.result} has no culprit that was proved, so there is no comparison to repeat")


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


def certainty(probability: float) -> str:
    """A probability as a percentage that never says 100 where it is not."""
    return f"{100 * probability:.1f} %" if probability < 0.9995 else "over 99.9 %"
