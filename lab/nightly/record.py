"""Stored nights: the baselines of each branch's tip, the results, and the events.

<data>/nightly/<plan>/nights/0006.json   a night, saved after every piece of work
<data>/nightly/acks.json                 acknowledged events
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from lab.compare.results import AbResult
from lab.core import paths, records
from lab.core.records import Record
from lab.guests.run import Mode
from lab.stats.verdict import Better, Outcome

EventKind = Literal["regression", "creep", "step", "fixed", "broken", "mended", "known", "unfounded"]
BranchState = Literal["pending", "measured", "nothing new", "broken", "failed"]
NightOutcome = Literal[
    "green", "no news", "regression", "undecided", "nothing new", "not measured", "partly measured", "interrupted"
]

MODES: tuple[Mode, ...] = ("exact", "live")
HARMFUL = ("regression", "creep", "step")
"""The kinds of events that report a change for the worse."""

BranchKey = tuple[str, str]
"""The tree and the branch; `packages` and the pattern of packages."""
CaseName = tuple[str, str]
CaseKey = tuple[str, str, Mode]


def short(tip: str) -> str:
    """A commit's abbreviated id, or the version of a package."""
    return tip.partition("=")[2] or tip[:12]


class CaseChange(Record, frozen=True, kw_only=True):
    """A comparison's verdict on the primary metric of a case, in one mode. counts: the change is beyond chance."""

    workload: str
    case: str
    metric: str
    better: Better
    verdict: Outcome
    ratio: float | None
    low: float | None
    high: float | None
    counts: bool
    mode: Mode = "exact"

    @property
    def name(self) -> CaseName:
        """The workload and the case, in either mode."""
        return self.workload, self.case

    @property
    def key(self) -> CaseKey:
        """The case in its mode: numbers of one mode do not compare with those of the other."""
        return self.workload, self.case, self.mode

    @property
    def shown(self) -> str:
        """The case for people; only live mode is named."""
        return f"{self.workload}:{self.case}{'' if self.mode == 'exact' else f' ({self.mode})'}"

    @property
    def is_worse(self) -> bool:
        """True for a regression beyond chance."""
        return self.verdict == Outcome.REGRESSION and self.counts

    @property
    def is_undecided(self) -> bool:
        """True if more measurements could make it a regression."""
        return self.verdict == Outcome.UNKNOWN or (self.verdict == Outcome.REGRESSION and not self.counts)


class TipComparison(Record, frozen=True, kw_only=True):
    """The tip against one commit, which may be several baselines at once. failed: cases without numbers, and why."""

    baselines: tuple[str, ...]
    commit: str
    result: str
    cases: list[CaseChange]
    mode: Mode = "exact"
    failed: dict[str, str] = msgspec.field(default_factory=dict)


def tip_comparison(result: AbResult, baselines: tuple[str, ...], commit: str) -> TipComparison:
    """The part of a comparison's result that a night keeps."""
    mode: Mode = "exact" if result.live is None else "live"
    cases = []
    for case in result.cases:
        if case.failed:
            continue
        primary = case.primary
        low, high = primary.interval or (None, None)
        cases.append(
            CaseChange(
                workload=case.workload, case=case.case, metric=primary.name, better=primary.better,
                verdict=case.verdict, ratio=primary.ratio, low=low, high=high, mode=mode,
                # Live mode's verdicts are already corrected for the number of cases.
                counts=case.holm is True if mode == "exact" else True,
            )
        )  # fmt: skip
    failed = {case.name: str(case.failed) for case in result.failed}
    return TipComparison(
        baselines=baselines, commit=commit, result=result.result, cases=cases, mode=mode, failed=failed
    )


class EventCulprit(Record, frozen=True, kw_only=True):
    """A commit that a bisection named. among: the number of commits that it is one of. ratio: its effect."""

    commit: str
    title: str
    author: str
    among: int
    outcome: str
    bisection: str
    proof: str | None = None
    ratio: float | None = None


class Event(Record, frozen=True, kw_only=True):
    """A piece of news. base: the last commit without the change. test: the first tip with it. also: more culprits.

    closes: the event that a `fixed` or `mended` one ends, or that a `known` one repeats on another branch. An
    `unfounded` event is a step in the history of live mode that its two commits do not show side by side: the host
    caused it.
    """

    id: str
    kind: EventKind
    tree: str
    branch: str
    night: int
    date: str
    base: str
    test: str
    cases: list[CaseChange] = msgspec.field(default_factory=list)
    result: str | None = None
    culprit: EventCulprit | None = None
    also: list[EventCulprit] = msgspec.field(default_factory=list)
    closes: str | None = None
    text: str = ""

    @property
    def branch_key(self) -> BranchKey:
        return self.tree, self.branch

    @property
    def culprits(self) -> list[EventCulprit]:
        """The commits that are known to have caused a part of it."""
        return [culprit for culprit in (self.culprit, *self.also) if culprit is not None and culprit.among == 1]

    @property
    def largest(self) -> list[CaseChange]:
        """The cases that it is about, the largest change first."""
        return sorted(self.cases, key=lambda case: -abs(math.log(case.ratio)) if case.ratio else 0.0)

    @property
    def modes(self) -> tuple[Mode, ...]:
        return tuple(mode for mode in MODES if any(case.mode == mode for case in self.cases))

    @property
    def names(self) -> set[CaseName]:
        return {case.name for case in self.cases}


class BranchNight(Record, frozen=True, kw_only=True):
    """One branch in one night.

    before: the tip that was measured last. forced: it is not an ancestor of this one. started: results by the commit
    that the tip is compared with; for live mode, by `live COMMIT`. missed: by mode, why it was not fully measured.
    """

    tree: str
    branch: str
    state: BranchState = "pending"
    tip: str = ""
    subject: str = ""
    before: str = ""
    forced: bool = False
    why: str = ""
    notes: list[str] = msgspec.field(default_factory=list)
    started: dict[str, str] = msgspec.field(default_factory=dict)
    measured: list[TipComparison] = msgspec.field(default_factory=list)
    missed: dict[Mode, str] = msgspec.field(default_factory=dict)
    bisections: dict[str, str] = msgspec.field(default_factory=dict)
    events: list[Event] = msgspec.field(default_factory=list)

    @property
    def key(self) -> BranchKey:
        return self.tree, self.branch

    @property
    def name(self) -> str:
        return "/".join(self.key)

    def started_in(self, mode: Mode) -> dict[str, str]:
        """The results of one mode by the commit that the tip is compared with, finished or not."""
        keys = [key for key in self.started if key.startswith("live ") == (mode == "live")]
        return {key.removeprefix("live "): self.started[key] for key in keys}

    def measured_in(self, mode: Mode) -> list[TipComparison]:
        return [comparison for comparison in self.measured if comparison.mode == mode]

    @property
    def undecided(self) -> list[CaseChange]:
        """The cases that the comparison with the tip before left undecided."""
        against_last = [comparison for comparison in self.measured if "yesterday" in comparison.baselines]
        return [case for comparison in against_last for case in comparison.cases if case.is_undecided]


def started_key(commit: str, mode: Mode) -> str:
    """The key of a comparison in `BranchNight.started`."""
    return commit if mode == "exact" else f"{mode} {commit}"


class Night(Record, frozen=True, kw_only=True):
    """One night. Nights are numbered, so a clock that jumps changes their dates and never their order."""

    schema: int = 1
    plan: str
    number: int
    date: str
    started: str
    finished: str = ""
    outcome: NightOutcome | None = None
    notes: list[str] = msgspec.field(default_factory=list)
    branches: list[BranchNight]

    @property
    def events(self) -> list[Event]:
        return [event for branch in self.branches for event in branch.events]


class Ack(Record, frozen=True, kw_only=True):
    """An event that a user accepts. host: of one in a file of 0.1.0 that another machine reported; it is ignored."""

    event: str
    note: str
    at: str
    host: str = ""


# ---- files


def save(night: Night) -> None:
    records.save(paths.data_dir("nightly", night.plan, "nights") / _file_name(night.number), night)


def load_all(plan: str) -> list[Night]:
    """All nights of a plan in order; an unreadable one is named, and passed over."""
    return [night for _, night in records.load_each(files(plan), Night)]


def unread(plan: str, nights: Sequence[Night]) -> list[str]:
    """The names of the files of a plan's nights that were not read."""
    known = {_file_name(night.number) for night in nights}
    return [path.name for path in files(plan) if path.name not in known]


def _file_name(number: int) -> str:
    return f"{number:04d}.json"


def files(plan: str) -> list[Path]:
    """The files of a plan's nights in order."""
    return paths.entries(paths.data_dir("nightly", plan, "nights"), "[0-9]*.json")


def plans() -> list[str]:
    """The names of all plans that have nights."""
    return sorted(path.parent.name for path in paths.data_dir("nightly").glob("*/nights") if path.is_dir())


def load_acks() -> dict[str, Ack]:
    return {ack.event: ack for ack in records.find(_acks_file(), list[Ack]) or [] if not ack.host}


def acknowledge(ack: Ack) -> None:
    """Store an acknowledgement; a second one of the same event replaces the first."""
    kept = records.load(_acks_file(), list[Ack]) if _acks_file().exists() else []
    acks = {(known.host, known.event): known for known in [*kept, ack]}
    records.save(_acks_file(), [acks[key] for key in sorted(acks)])


def _acks_file() -> Path:
    return paths.data_dir("nightly") / "acks.json"
