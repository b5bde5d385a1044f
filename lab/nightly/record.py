"""A night as it is stored: what each branch's tip was measured against, what came out, and what is news.

<data>/nightly/<plan>/nights/0006.json   a night, saved after every piece of work
<data>/nightly/acks.json                 changes that somebody acknowledged
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from lab.compare.results import AbResult, primary_of
from lab.core import paths, records
from lab.core.records import Record
from lab.stats.verdict import Better, Outcome

Kind = Literal["regression", "creep", "step", "fixed", "broken", "mended", "known", "unfounded"]
State = Literal["pending", "measured", "nothing new", "broken", "failed"]
Word = Literal[
    "green", "no news", "regression", "undecided", "nothing new", "not measured", "partly measured", "interrupted"
]

Mode = Literal["exact", "live"]
MODES: tuple[Mode, ...] = ("exact", "live")

CaseName = tuple[str, str]
Key = tuple[str, str, Mode]


class CaseMoved(Record, frozen=True, kw_only=True):
    """What a comparison said of a case's primary metric, in one mode. counts: a change beyond chance."""

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
        """What the case is called, in both modes."""
        return self.workload, self.case

    @property
    def key(self) -> Key:
        """The case in its mode: numbers of one mode say nothing about those of the other."""
        return self.workload, self.case, self.mode

    @property
    def shown(self) -> str:
        """The case for people; exact mode goes without saying."""
        return f"{self.workload}:{self.case}{'' if self.mode == 'exact' else f' ({self.mode})'}"

    @property
    def worse(self) -> bool:
        """Whether it regressed beyond chance."""
        return self.verdict == Outcome.REGRESSION and self.counts

    @property
    def undecided(self) -> bool:
        """Whether it could be a regression yet."""
        return self.verdict == Outcome.UNKNOWN or (self.verdict == Outcome.REGRESSION and not self.counts)


class Measured(Record, frozen=True, kw_only=True):
    """The tip against one commit, which may be several baselines at once."""

    baselines: tuple[str, ...]
    commit: str
    result: str
    cases: list[CaseMoved]
    mode: Mode = "exact"


class Culprit(Record, frozen=True, kw_only=True):
    """What a bisection named: a commit, or several of which it is one. ratio: of what it did to the case."""

    commit: str
    title: str
    author: str
    among: int
    outcome: str
    bisection: str
    proof: str | None = None
    ratio: float | None = None


class Event(Record, frozen=True, kw_only=True):
    """News. `base` is the last commit without the change, `test` the first tip with it. also: further culprits.

    closes: the event that a `fixed` or `mended` one ends, and that a `known` one repeats on another branch. An
    `unfounded` one is a step of live mode's history that its two commits, side by side, do not show: the host's own.
    """

    id: str
    kind: Kind
    tree: str
    branch: str
    night: int
    date: str
    base: str
    test: str
    cases: list[CaseMoved] = msgspec.field(default_factory=list)
    result: str | None = None
    culprit: Culprit | None = None
    also: list[Culprit] = msgspec.field(default_factory=list)
    closes: str | None = None
    text: str = ""

    @property
    def culprits(self) -> list[Culprit]:
        """All commits that are known to have had a part in it."""
        return [one for one in (self.culprit, *self.also) if one is not None and one.among == 1]

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Those that saw it."""
        return tuple(mode for mode in MODES if any(case.mode == mode for case in self.cases))

    @property
    def names(self) -> set[CaseName]:
        """The cases that it is about."""
        return {case.name for case in self.cases}


class BranchNight(Record, frozen=True, kw_only=True):
    """One branch in one night. before: the tip that was measured last; forced: it is not behind this one.

    started: results by the commit that the tip is compared with, live mode's under `live COMMIT`. missed: by mode,
    why not all of it could be measured.
    """

    tree: str
    branch: str
    state: State = "pending"
    tip: str = ""
    subject: str = ""
    before: str = ""
    forced: bool = False
    why: str = ""
    notes: list[str] = msgspec.field(default_factory=list)
    started: dict[str, str] = msgspec.field(default_factory=dict)
    measured: list[Measured] = msgspec.field(default_factory=list)
    missed: dict[Mode, str] = msgspec.field(default_factory=dict)
    bisections: dict[str, str] = msgspec.field(default_factory=dict)
    events: list[Event] = msgspec.field(default_factory=list)

    @property
    def name(self) -> str:
        """The branch for people."""
        return f"{self.tree}/{self.branch}"

    def begun(self, mode: Mode) -> dict[str, str]:
        """The results of one mode by the commit that the tip is compared with, finished or not."""
        return {name.removeprefix("live "): ref for name, ref in self.started.items() if _mode_of(name) == mode}

    def measured_in(self, mode: Mode) -> list[Measured]:
        """What was measured in one mode."""
        return [one for one in self.measured if one.mode == mode]

    @property
    def undecided(self) -> list[CaseMoved]:
        """The cases that the comparison with the tip before could not tell."""
        return [case for one in self.measured if "yesterday" in one.baselines for case in one.cases if case.undecided]


def started_as(commit: str, mode: Mode) -> str:
    """A comparison's name in `BranchNight.started`."""
    return commit if mode == "exact" else f"{mode} {commit}"


def _mode_of(name: str) -> Mode:
    return "live" if name.startswith("live ") else "exact"


class Night(Record, frozen=True, kw_only=True):
    """One night. Nights are counted: a clock that jumps changes their dates, never their order."""

    schema: int = 1
    plan: str
    number: int
    date: str
    started: str
    finished: str = ""
    outcome: Word | None = None
    notes: list[str] = msgspec.field(default_factory=list)
    branches: list[BranchNight]

    @property
    def events(self) -> list[Event]:
        """All news of the night."""
        return [event for branch in self.branches for event in branch.events]


class Ack(Record, frozen=True, kw_only=True):
    """A change that somebody knows of and lives with. host: whose night told of it; this machine's own is empty."""

    event: str
    note: str
    at: str
    host: str = ""


# ---- where they are


def plan_dir(plan: str) -> Path:
    """What is kept of a plan."""
    return paths.data_dir("nightly", plan)


def save(night: Night) -> None:
    """Keep what is known of a night."""
    records.save(_folder(night.plan) / f"{night.number:04d}.json", night)


def load_all(plan: str) -> list[Night]:
    """All nights of a plan in order."""
    return [records.load(path, Night) for path in files(plan)]


def files(plan: str) -> list[Path]:
    """The nights of a plan in order, each a file."""
    return sorted(_folder(plan).glob("[0-9]*.json"))


def plans() -> list[str]:
    """The names of all plans that have nights."""
    return sorted(path.parent.name for path in paths.data_dir("nightly").glob("*/nights") if path.is_dir())


def _folder(plan: str) -> Path:
    return paths.data_dir("nightly", plan, "nights")


def load_acks() -> dict[str, Ack]:
    """What was acknowledged on this machine of its own nights' news, by the event."""
    return {one.event: one for one in all_acks() if not one.host}


def all_acks() -> list[Ack]:
    """What was acknowledged on this machine, of other machines' news too."""
    path = _acks()
    return records.load(path, list[Ack]) if path.is_file() else []


def acknowledge(ack: Ack) -> None:
    """Remember that an event is known; a second time changes the note."""
    known = {(one.host, one.event): one for one in [*all_acks(), ack]}
    records.save(_acks(), [known[name] for name in sorted(known)])


def _acks() -> Path:
    return paths.data_dir("nightly") / "acks.json"


# ---- from a result


def cases_of(result: AbResult) -> list[CaseMoved]:
    """What a comparison said, case by case."""
    mode: Mode = "exact" if result.live is None else "live"
    return [
        CaseMoved(
            workload=case.workload,
            case=case.case,
            metric=primary.name,
            better=primary.better,
            verdict=case.verdict,
            ratio=primary.ratio,
            low=primary.interval[0] if primary.interval else None,
            high=primary.interval[1] if primary.interval else None,
            # Live mode's verdicts are corrected for the number of cases already.
            counts=case.holm is True if mode == "exact" else True,
            mode=mode,
        )
        for case in result.cases
        for primary in [primary_of(case)]
    ]
