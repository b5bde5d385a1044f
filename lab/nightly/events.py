"""What of a night's outcome is news, all pure: everything that was not known before, each once.

What is known from all nights so far: which changes are open, which branches are broken, what was measured when.

It is computed from the stored nights each time, so there is nothing beside them that could be lost or disagree.

The decisions of a night, all pure: which night it is, what a tip is measured against, what the night is called.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

import msgspec
from msgspec.structs import replace

from lab.nightly.plan import BranchPlan
from lab.nightly.record import MODES, Ack, BranchNight, CaseMoved, CaseName, Event, Kind, Measured, Mode, Night, Word
from lab.stats.verdict import Better, Outcome

Branch = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """A commit that a branch was at, and was measured."""

    night: int
    date: str
    commit: str


@dataclass(kw_only=True)
class Memory:
    """The sum of all nights. open: regressions, steps and creeps that are there yet, acknowledged ones too.

    last_good: per branch and mode, the last tip that was measured in it, and had no open change that somebody would
    mind and no undecided case there.
    """

    open: dict[str, Event] = field(default_factory=dict)
    closed: dict[str, Event] = field(default_factory=dict)
    acks: Mapping[str, Ack] = field(default_factory=dict)
    broken: dict[Branch, Event] = field(default_factory=dict)
    tips: dict[Branch, list[Tip]] = field(default_factory=dict)
    last_good: dict[tuple[Branch, Mode], Tip] = field(default_factory=dict)

    def open_on(self, branch: Branch) -> list[Event]:
        """What is open on a branch, the oldest first."""
        return [event for event in self.open.values() if (event.tree, event.branch) == branch]

    def before(self, branch: Branch) -> Tip | None:
        """The tip that was measured last."""
        tips = self.tips.get(branch)
        return tips[-1] if tips else None

    def known(self, branch: Branch) -> list[Event]:
        """Every change there ever was on a branch."""
        every = [*self.open.values(), *self.closed.values()]
        return [event for event in every if (event.tree, event.branch) == branch]

    def culprits(self, tree: str) -> dict[str, Event]:
        """The commits of a tree that are known to have done something, open or not."""
        every = [*self.open.values(), *self.closed.values()]
        return {culprit.commit: event for event in every if event.tree == tree for culprit in event.culprits}

    @property
    def minded(self) -> list[Event]:
        """What is open and not acknowledged."""
        return [event for event in self.open.values() if event.id not in self.acks]


def remember(nights: Iterable[Night], acks: Mapping[str, Ack]) -> Memory:
    """Everything that the nights say together."""
    memory = Memory(acks=acks)
    for night in nights:
        for one in night.branches:
            branch = one.tree, one.branch
            for event in one.events:
                _take(memory, branch, event)
            if one.state != "measured":
                continue
            tip = Tip(night=night.number, date=night.date, commit=one.tip)
            memory.tips.setdefault(branch, []).append(tip)
            for mode in MODES:
                if _is_good(memory, one, branch, mode):
                    memory.last_good[branch, mode] = tip
    return memory


def _is_good(memory: Memory, one: BranchNight, branch: Branch, mode: Mode) -> bool:
    """Whether nothing is wrong with a tip, as far as one mode can tell."""
    if mode != "exact" and not one.measured_in(mode):
        return False
    minded = [event for event in memory.open_on(branch) if event.id not in memory.acks and mode in event.modes]
    return not minded and all(case.mode != mode for case in one.undecided)


def _take(memory: Memory, branch: Branch, event: Event) -> None:
    match event.kind:
        case "regression" | "creep" | "step" | "known":
            memory.open[event.id] = event
        case "fixed":
            if event.closes in memory.open:
                memory.closed[event.closes] = memory.open.pop(event.closes)
        case "unfounded":
            memory.closed[event.id] = event
        case "broken":
            memory.broken[branch] = event
        case "mended":
            memory.broken.pop(branch, None)


_NEAR_NIGHTS = 5
"""A step of the history is that of an event that lies this near: its date is uncertain by some points."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when news are. first: the number of this night's next event."""

    plan: str
    night: int
    date: str
    branch: Branch
    tip: str
    threshold: float
    first: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesStep:
    """A step that the history shows in one case of the branch; nights, and the commits around it."""

    workload: str
    case: str
    metric: str
    better: Better
    earliest: int
    latest: int
    after: str
    commit: str
    ratio: float
    mode: Mode = "exact"


def news(where: Setting, memory: Memory, measured: Sequence[Measured], steps: Sequence[SeriesStep] = ()) -> list[Event]:
    """Everything that was not known before this night, each once, whichever mode saw it."""
    found = one_story(_regressions(where, memory, measured))
    taken = _names(found)
    found += _fixed(where, memory, measured)
    found += one_story(_creeps(where, memory, measured, taken))
    taken |= _names(found)
    found += _steps(where, memory, steps, taken)
    return _numbered(found, where)


def one_story(found: Sequence[Event]) -> list[Event]:
    """Events of one tip: where both modes tell of a case, it is one piece of news, exact mode's."""
    told = [event for event in found if event.modes == ("exact",)]
    for event in found:
        if event.modes == ("exact",):
            continue
        alone = []
        for case in event.cases:
            place = next((i for i, other in enumerate(told) if case.name in other.names), None)
            if place is None:
                alone.append(case)
            else:
                told[place] = replace(told[place], cases=[*told[place].cases, case])
        if alone:
            told.append(replace(event, cases=alone))
    return told


def _names(found: Iterable[Event]) -> set[CaseName]:
    return {name for event in found for name in event.names}


def _numbered(found: Iterable[Event], where: Setting) -> list[Event]:
    numbers = enumerate(found, start=where.first)
    return [replace(event, id=f"{where.plan}.{where.night}.{number}") for number, event in numbers]


def _event(where: Setting, kind: Kind, base: str, cases: Iterable[CaseMoved], **more: str | None) -> Event:
    return Event(
        id="", kind=kind, tree=where.branch[0], branch=where.branch[1], night=where.night, date=where.date,
        base=base, test=more.get("test") or where.tip, cases=list(cases), result=more.get("result"),
        closes=more.get("closes"), text=more.get("text") or "",
    )  # fmt: skip


def _by(measured: Sequence[Measured], name: str) -> list[Measured]:
    """The comparisons with a baseline, exact mode's first."""
    return [one for mode in MODES for one in measured if one.mode == mode and name in one.baselines]


# ---- worse at once


def _regressions(where: Setting, memory: Memory, measured: Sequence[Measured]) -> list[Event]:
    """Worse than yesterday; than the last good tip in what is not open yet; the first time, than the release.

    What is open in one mode is no news in the other, either.
    """
    openly = _names(memory.open_on(where.branch))
    first_time = memory.before(where.branch) is None
    seen = set()
    found = []
    for name in ("yesterday", "last-good", *(["release"] if first_time else [])):
        for one in _by(measured, name):
            worse = [case for case in one.cases if case.worse and case.key not in seen]
            if name == "last-good":
                worse = [case for case in worse if case.name not in openly]
            found += [_event(where, "regression", one.commit, cases, result=one.result) for cases in _grouped(worse)]
            seen |= {case.key for case in worse}
    return found


def _grouped(cases: Sequence[CaseMoved]) -> list[list[CaseMoved]]:
    """By workload."""
    workloads = dict.fromkeys(case.workload for case in cases)
    return [[case for case in cases if case.workload == workload] for workload in workloads]


# ---- no longer worse


def _fixed(where: Setting, memory: Memory, measured: Sequence[Measured]) -> list[Event]:
    """What is open and no longer there: every case of it is as good as before."""
    found = []
    for event in memory.open_on(where.branch):
        against = _by(measured, f"before {event.id}")
        now = {case.key: case for one in against for case in one.cases}
        if against and all(_gone(case, now.get(case.key), event) for case in event.cases):
            cases = [now[case.key] for case in event.cases if case.key in now]
            result = against[0].result
            found.append(_event(where, "fixed", against[0].commit, cases, result=result, closes=event.id))
    return found


def _gone(lost: CaseMoved, now: CaseMoved | None, event: Event) -> bool:
    """Whether a loss is gone. Where both modes saw it exact mode says so, unless live mode still sees it."""
    if lost.mode == "live" and "exact" in event.modes:
        return now is None or now.verdict != Outcome.REGRESSION
    return now is not None and _as_good(now, lost)


def _as_good(case: CaseMoved, lost: CaseMoved) -> bool:
    """Whether a loss is gone. One below the threshold is `same` all the time: most of it has to be made good."""
    if case.verdict not in (Outcome.SAME, Outcome.IMPROVEMENT):
        return False
    if not case.ratio or not lost.ratio:
        return True
    now, then = math.log(case.ratio), math.log(lost.ratio)
    return now / then < 0.5 if then else True


# ---- worse little by little


def _creeps(where: Setting, memory: Memory, measured: Sequence[Measured], taken: set[CaseName]) -> list[Event]:
    """Worse than long ago, by more than the changes explain that are known since."""
    found = []
    for one in _by(measured, "creep"):
        tips = reversed(memory.tips.get(where.branch, []))
        since = next((tip.night for tip in tips if tip.commit == one.commit), 0)
        worse = [
            case
            for case in one.cases
            if case.worse and case.name not in taken and _unexplained(case, where, _since(memory, where, since, case))
        ]
        found += [_event(where, "creep", one.commit, cases, result=one.result) for cases in _grouped(worse)]
    return found


def _since(memory: Memory, where: Setting, night: int, case: CaseMoved) -> list[float]:
    """By what ratios open changes moved a case after a night."""
    moved = [_ratio_of(event, case) for event in memory.open_on(where.branch) if event.night > night]
    return [ratio for ratio in moved if ratio is not None]


def _ratio_of(event: Event, case: CaseMoved) -> float | None:
    """What an event did to a case; what live mode did not see itself is taken to be as large as in exact mode."""
    own = [known.ratio for known in event.cases if known.key == case.key and known.ratio]
    if own or case.mode == "exact":
        return math.prod(own) if own else None
    exact = [known for known in event.cases if known.name == case.name and known.ratio]
    turned = [known.ratio if known.better == case.better else 1 / known.ratio for known in exact if known.ratio]
    return math.prod(turned) if turned else None


def _unexplained(case: CaseMoved, where: Setting, known: Sequence[float]) -> bool:
    """Whether a loss is beyond the threshold even without the known ones."""
    if case.ratio is None or case.low is None or case.high is None:
        return not known
    nearest = (case.low if case.better == "lower" else case.high) / math.prod(known)
    limit = 1 + where.threshold
    return nearest > limit if case.better == "lower" else nearest < 1 / limit


def _steps(where: Setting, memory: Memory, steps: Sequence[SeriesStep], taken: set[CaseName]) -> list[Event]:
    """Steps of the history, for the worse, that no event is about, in whichever mode."""
    found: list[Event] = []
    for step in sorted(steps, key=lambda step: MODES.index(step.mode)):
        name = (step.workload, step.case)
        seen_by_exact = step.mode != "exact" and name in _names(found)
        if (step.ratio > 1) != (step.better == "lower") or name in taken or seen_by_exact:
            continue
        near = range(step.earliest - _NEAR_NIGHTS, step.latest + _NEAR_NIGHTS + 1)
        about = [event for event in memory.known(where.branch) if name in event.names]
        if any(event.night in near or (event.kind == "creep" and event.night >= step.earliest) for event in about):
            continue
        case = CaseMoved(
            workload=step.workload, case=step.case, metric=step.metric, better=step.better, mode=step.mode,
            verdict=Outcome.REGRESSION, ratio=step.ratio, low=None, high=None, counts=True,
        )  # fmt: skip
        text = f"the history shows it between night {step.earliest - 1} and night {step.latest}"
        found.append(_event(where, "step", step.after, [case], test=step.commit, text=text))
    return found


# ---- broken branches


def broken(where: Setting, memory: Memory, why: str) -> list[Event]:
    """A tip that cannot be measured is news once, until one can be again."""
    if where.branch in memory.broken:
        return []
    before = memory.before(where.branch)
    event = _event(where, "broken", before.commit if before else "", [], text=why)
    return _numbered([event], where)


def mended(where: Setting, memory: Memory) -> list[Event]:
    """A tip that can be measured, after one that could not."""
    old = memory.broken.get(where.branch)
    if old is None:
        return []
    return _numbered([_event(where, "mended", old.test, [], closes=old.id)], where)


_LIVE = {"yesterday", "last-good", "creep"}
"""Live mode's baselines. A release is news the first night alone, and exact mode measures it; its rounds are better
spent on what changes. Live mode needs no history of its own for these: it boots both commits afresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A commit to compare the tip with, and all that it stands for."""

    commit: str
    names: tuple[str, ...]


def night_to_do(numbers_and_dates: Sequence[tuple[int, str, bool]], today: str) -> tuple[int, bool] | None:
    """The number of the night to do, and whether it was begun before; None when tonight is done.

    An unfinished night of another date is left: its tips are old news. A date that was done once is done, however
    often the clock comes by it again.
    """
    if any(when == today and finished for _, when, finished in numbers_and_dates):
        return None
    last = numbers_and_dates[-1] if numbers_and_dates else None
    if last is not None and last[1] == today:
        return last[0], True
    return (last[0] + 1 if last else 1), False


def baselines(
    plan: BranchPlan,
    memory: Memory,
    tip: str,
    release: str | None,
    today: str,
    days: int,
    mode: Mode = "exact",
) -> list[Baseline]:
    """What a tip is compared with; each commit once. The first is the one that the night's points are taken from."""
    branch = plan.tree, plan.branch
    before, good = memory.before(branch), memory.last_good.get((branch, mode))
    wanted: list[tuple[str, str | None]] = [("yesterday", before.commit if before else None)]
    wanted += [("last-good", good.commit if good else None), ("release", release)]
    old = creep_tip(memory.tips.get(branch, ()), today, days)
    wanted.append(("creep", old.commit if old else None))
    allowed: set[str] = {name for name in plan.baselines if mode == "exact" or name in _LIVE}
    chosen = [(name, commit) for name, commit in wanted if name in allowed]
    # Whatever the plan says: what is open has to be seen going away.
    chosen += [(f"before {event.id}", event.base) for event in memory.open_on(branch) if mode in event.modes]
    names: dict[str, list[str]] = {}
    for name, commit in chosen:
        if commit and commit != tip:
            names.setdefault(commit, []).append(name)
    return [Baseline(commit=commit, names=tuple(words)) for commit, words in names.items()]


def creep_tip(tips: Sequence[Tip], today: str, days: int) -> Tip | None:
    """The newest tip that is at least so many days old."""
    limit = (date.fromisoformat(today) - timedelta(days=days)).isoformat()
    return next((tip for tip in reversed(tips) if tip.date <= limit), None)


def outcome(branches: Sequence[BranchNight], *, still_open: int = 0) -> Word:
    """What a night is called. Only one in which tips were measured, each of them, and nothing is open, is green."""
    states = {one.state for one in branches}
    if any(event.kind in ("regression", "creep", "step") for one in branches for event in one.events):
        return "regression"
    if states <= {"failed", "broken"}:
        return "not measured"
    if states & {"failed", "broken", "pending"} or any(one.missed for one in branches):
        return "partly measured"
    if states == {"nothing new"}:
        return "nothing new"
    if any(one.undecided for one in branches):
        return "undecided"
    return "no news" if still_open else "green"
