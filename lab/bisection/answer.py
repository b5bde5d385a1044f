"""The answer of a bisection: one document, stored in its folder; `lab bisect` and `lab report` show it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from lab.bisection.history import Candidate
from lab.bisection.livedocument import Posterior
from lab.compare.results import ResultEnvironment
from lab.core import records
from lab.core.errors import HostFailed, UserError
from lab.core.records import Record
from lab.stats.verdict import Comparison, Outcome


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


class Found(Record, frozen=True, kw_only=True):
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
    among: list[str]
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
    def settled(self) -> bool:
        """Whether it is one commit."""
        return len(self.among) == 1


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
    words: tuple[str, str]
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
    changes: list[Found]
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
