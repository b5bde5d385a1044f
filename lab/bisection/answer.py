"""The documents of a bisection: its answer, as stored and as `lab bisect --json` prints it, and its status."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

import msgspec

from lab.bisection.commit_range import SPLIT, Candidate, counted, one_of
from lab.compare.explain import Cost
from lab.compare.lines import MetLine
from lab.compare.results import ResultEnvironment
from lab.core import records
from lab.core.errors import HostFailed, UserError
from lab.core.records import Record
from lab.core.text import plural
from lab.stats.verdict import Comparison, Outcome
from lab.stats.whole import Whole


class Suspicion(Record, frozen=True, kw_only=True):
    """The probability that the culprit is one of the commits from `after`, which is excluded, to `up_to`."""

    after: str
    up_to: str
    commits: int
    probability: float


class Posterior(Record, frozen=True, kw_only=True):
    """The end of a search in live mode, see docs/live-search.md.

    outcome: `confirmed` by fresh boots, `found`, `undecided` or `no culprit`.
    probability: that of the answer. effect: the change as a ratio.
    noise: the standard deviation of one boot, as a share.
    layouts: the same of images that differ in their layout alone, as far as the boots tell.
    suspicions: the likeliest places of the culprit, likeliest first.
    """

    outcome: str
    probability: float
    boots: int
    kernels: int
    effect: float
    noise: float | None
    layouts: float | None = None
    suspicions: list[Suspicion]


class Function(Record, frozen=True, kw_only=True):
    """A function whose cost of an operation changed. cost: its unit, modelled cycles or instructions.

    base_calls, test_calls: for one operation; None if they are not known.
    """

    name: str
    space: str
    base: float
    test: float
    cost: Cost = "cycles"
    base_calls: float | None = None
    test_calls: float | None = None

    @property
    def own(self) -> float:
        """The change of its cost that more or fewer calls do not explain: these are its callers' doing."""
        calls = self.test_calls / self.base_calls if self.base_calls and self.test_calls else 1.0
        return abs(self.test - self.base * calls)


class HunkSet(Record, frozen=True, kw_only=True):
    """The hunks that carry a change, or a part of it.

    share: of the difference between the ends. diff: its lines, from the old end to the new one, without context.
    functions: the functions that the hunks are in, as git names them. smallest: False if fewer may do, too. commits:
    the commits that touched the lines, each as its id and subject, if the tree has the history. lent: the functions and
    macros of the older end's headers that the old lines use and the newer end lacks; the kernel has them beside these.
    """

    files: list[str]
    hunks: int
    share: float
    diff: list[str]
    functions: list[str] = msgspec.field(default_factory=list)
    smallest: bool = True
    commits: list[str] = msgspec.field(default_factory=list)
    lent: list[str] = msgspec.field(default_factory=list)


class Proof(Record, frozen=True, kw_only=True):
    """The comparisons that confirm or deny one culprit.

    confirmed: fresh seeds, or boots, show the same change against its parent.
    same_image: its kernel is its parent's, so it cannot be the culprit.
    fresh: the comparison with the parent, stored as `result`.
    layout: of both images in that; 0 for the images that the search booted.
    reverted: the new end without the culprit against the new end, stored as `revert_result`.
    not_reverted: the reason why there is no such comparison.
    functions: the functions whose cost changed most, by `lab explain`. lines: of vCPUs that contend, the lines whose
    moves did.
    applied: of hunks: the old end with them against the old end, stored as `applied_result`; else the reason why not
    in `not_applied`. applied_more: further hunks of the new end in it, without which it does not build. contradicted:
    fresh seeds show the change, and the old end with the hunks does not.
    """

    confirmed: bool
    same_image: bool
    fresh: Comparison | None = None
    layout: int = 0
    result: str | None = None
    reverted: Comparison | None = None
    revert_result: str | None = None
    not_reverted: str | None = None
    functions: list[Function] = msgspec.field(default_factory=list)
    lines: list[MetLine] = msgspec.field(default_factory=list)
    note: str | None = None
    applied: Comparison | None = None
    applied_result: str | None = None
    not_applied: str | None = None
    applied_more: int = 0
    contradicted: bool = False

    @property
    def fresh_confirms(self) -> bool:
        """True if fresh seeds, or boots, show the same change."""
        return self.confirmed or self.contradicted

    @property
    def applied_beside(self) -> str:
        """The further hunks behind `applied`, for people: they follow "with them"."""
        return f" and {plural(self.applied_more, 'more hunk')} that they need" if self.applied_more else ""

    @property
    def fresh_runs(self) -> str:
        """The runs behind `fresh`, for people."""
        if self.result:
            return "fresh seeds"
        return "fresh boots with another layout" if self.layout else "fresh boots of the same images"


FILE = "result.json"
OutcomeWord = Literal["found", "range", "no culprit", "undecided"]


class Step(Record, frozen=True, kw_only=True):
    """A measured or untestable commit on the path of the search.

    ratio: of its metric to the old end's. instructions: the same of the count beside modelled cycles.
    """

    commit: str
    title: str
    decision: str
    ratio: float | None = None
    instructions: float | None = None
    values: list[float] = msgspec.field(default_factory=list)
    build: str = ""
    same_as: str | None = None
    why: str = ""
    log: str | None = None
    build_s: float = 0.0
    run_s: float = 0.0


class Culprit(Record, frozen=True, kw_only=True):
    """The culprit of one change: a commit, or several suspects.

    untested: the suspects that could not be tested; the others, except the last, were not tried.
    before: the commit to compare with.
    effect: by the search's own seeds. instructions: the same of the count beside modelled cycles.
    whole: its whole cost. direction: `regression` or `improvement`; None for a metric without a better side.
    confidence: the probability that the culprit is among the suspects.
    inside: for a package, the result of a search among the commits between the two sources, or the way to one.
    inside_result: the name of that search's result.
    hunks: of a search among files or hunks; `commit` is then the new end with these hunks of the old one.
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
    instructions: Comparison | None = None
    whole: Whole | None = None
    hunks: HunkSet | None = None

    @property
    def is_single(self) -> bool:
        return len(self.suspects) == 1

    @property
    def needs_proof(self) -> bool:
        """True for one commit with a known effect that no proof confirms or denies yet."""
        return self.is_single and self.effect is not None and self.proof is None


class Answer(Record, frozen=True, kw_only=True):
    """`lab bisect --json`.

    outcome: `found` (every change is one commit), `range` (some are not, the rest cannot be tested), `no culprit`,
    or `undecided` (the budget ran out, or the seeds disagree).
    measured: the number of commits with values, without the ends.
    live: in live mode only.
    chosen: the metric as the user chose it: `cycles`, `instructions` or a name; None for the primary one.
    instructions, whole: of the ends, beside modelled cycles.
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
    chosen: str | None = None
    instructions: Comparison | None = None
    whole: Whole | None = None

    @property
    def contradiction(self) -> str:
        """The first thing in which the answer contradicts itself; empty if it does not."""
        if (seed := records.repeated(self.seeds)) is not None:
            return f"the seed {seed} counts twice"
        if commit := records.repeated(change.commit for change in self.changes):
            return f"{commit} changed it twice"
        for change in self.changes:
            if change.commit not in change.suspects:
                return f"{change.commit} is not among its own suspects"
            if change.effect and (found := change.effect.contradiction):
                return f"{change.commit}: {found}"
        if self.outcome == "no culprit" and self.changes:
            return f"it is called {self.outcome}, and names {self.changes[0].commit}"
        if self.outcome == "found" and not self.changes:
            return f"it is called found, and names no {self.one}"
        return self.ends.contradiction if self.ends else ""

    @property
    def repeat(self) -> str:
        """The command that repeats it, with the tree in which its revisions were looked up.

        `lab atlas bisect` finds the tree by the kernels.
        """
        words = list(self.reproduce)
        if self.tree and words[1:2] != ["atlas"] and not any(word.partition("=")[0] == "--tree" for word in words):
            end = words.index("--") if "--" in words else len(words)
            words[end:end] = ["--tree", self.tree]
        return shlex.join(words)

    @property
    def is_split(self) -> bool:
        return self.kind in SPLIT

    @property
    def one(self) -> str:
        """The word for one candidate: a commit, a package, a patch, an option, or a mix of both ends."""
        return one_of(self.kind)

    def counted(self, number: int) -> str:
        """A number of its steps."""
        return counted(number, self.kind)

    @property
    def named(self) -> bool:
        """True if there is a culprit, or a range that holds it."""
        return self.outcome in ("found", "range")

    def proof_result(self) -> str:
        """The name of the comparison that proves the culprit. `UserError` if there is not exactly one."""
        proofs = [change.proof.result for change in self.changes if change.proof and change.proof.result]
        if len(proofs) == 1:
            return proofs[0]
        if proofs:
            raise UserError(f"{self.result} found {len(proofs)} changes", hint=f"name one: {', '.join(proofs)}")
        raise UserError(f"{self.result} has no culprit that was proved, so there is no comparison to repeat")


def load(folder: Path) -> Answer:
    """The finished answer of a session."""
    if not (folder / FILE).exists():
        raise HostFailed(f"{folder.name} has no answer yet", hint=f"go on with it by `lab bisect resume {folder.name}`")
    return records.load(folder / FILE, Answer)


class OpenRange(Record, frozen=True, kw_only=True):
    """A range of commits that holds a change."""

    candidates: int
    first: str
    last: str


class Status(Record, frozen=True, kw_only=True):
    """`lab bisect status --json`.

    left_s: an estimate of the seconds that are left.
    posterior: live mode's places of the culprit, likeliest first.
    bits_left: of information still missing, in live mode.
    boots: made so far, in live mode.
    """

    schema: str = "lab.bisect-status/1"
    result: str
    finished: bool
    old: str
    new: str
    candidates: int
    measured: int
    skipped: int
    changes: list[OpenRange]
    next: str | None
    steps_left: int
    build_s: float
    run_s: float
    left_s: float | None
    posterior: list[Suspicion] = msgspec.field(default_factory=list)
    bits_left: float | None = None
    boots: int | None = None


def certainty(probability: float) -> str:
    """A probability as a percentage, never rounded up to 100."""
    return f"{100 * probability:.1f} %" if probability < 0.9995 else "over 99.9 %"
