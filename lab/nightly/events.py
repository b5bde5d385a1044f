"""The decisions of a night: the baselines to measure, and the results that are events. Pure.

`PlanState` is computed from the stored nights each time, so there is no second copy that could be lost or disagree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

import msgspec
from msgspec.structs import replace

from lab.guests.run import Mode
from lab.nightly.plan import BranchPlan
from lab.nightly.record import (
    HARMFUL,
    MODES,
    Ack,
    BranchKey,
    BranchNight,
    CaseChange,
    CaseName,
    Event,
    EventKind,
    Night,
    NightOutcome,
    TipComparison,
    short,
)  # fmt: skip
from lab.stats.verdict import Better, Outcome

_LIVE_BASELINES = {"yesterday", "last-good", "creep"}
"""A release is news only in the first night, and exact mode measures it; live mode spends its rounds on changes. It
needs no history of its own for these baselines, because it boots both commits again."""

_NEAR_NIGHTS = 5
"""A step of the history belongs to an event that is this near: its date is uncertain by some points."""


# ---- the state of a plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """A commit that a branch was at in a night, and that was measured."""

    night: int
    date: str
    commit: str


@dataclass(kw_only=True)
class PlanState:
    """The sum of a plan's nights. open: regressions, steps and creeps that are not fixed, acknowledged ones too.

    last_good: by branch and mode, the last tip that was measured in this mode without an undecided case and without an
    open event that is not acknowledged.
    """

    open: dict[str, Event] = field(default_factory=dict)
    closed: dict[str, Event] = field(default_factory=dict)
    acks: Mapping[str, Ack] = field(default_factory=dict)
    broken: dict[BranchKey, Event] = field(default_factory=dict)
    tips: dict[BranchKey, list[Tip]] = field(default_factory=dict)
    last_good: dict[tuple[BranchKey, Mode], Tip] = field(default_factory=dict)

    @classmethod
    def after(cls, nights: Iterable[Night], acks: Mapping[str, Ack]) -> PlanState:
        state = cls(acks=acks)
        for night in nights:
            for branch in night.branches:
                for event in branch.events:
                    state._add(event)
                if branch.state != "measured":
                    continue
                tip = Tip(night=night.number, date=night.date, commit=branch.tip)
                state.tips.setdefault(branch.key, []).append(tip)
                for mode in MODES:
                    if state._is_good(branch, mode):
                        state.last_good[branch.key, mode] = tip
        return state

    def _add(self, event: Event) -> None:
        match event.kind:
            case "regression" | "creep" | "step" | "known":
                self.open[event.id] = event
            case "fixed":
                if event.closes in self.open:
                    self.closed[event.closes] = self.open.pop(event.closes)
            case "unfounded":
                self.closed[event.id] = event
            case "broken":
                self.broken[event.branch_key] = event
            case "mended":
                self.broken.pop(event.branch_key, None)

    def _is_good(self, branch: BranchNight, mode: Mode) -> bool:
        if mode != "exact" and not branch.measured_in(mode):
            return False
        if any(mode in event.modes and event.id not in self.acks for event in self.open_on(branch.key)):
            return False
        return all(case.mode != mode for case in branch.undecided)

    def open_on(self, branch: BranchKey) -> list[Event]:
        """The open events of a branch, the oldest first."""
        return [event for event in self.open.values() if event.branch_key == branch]

    def last_tip(self, branch: BranchKey) -> Tip | None:
        """The tip of a branch that was measured last."""
        tips = self.tips.get(branch)
        return tips[-1] if tips else None

    def culprits(self, tree: str) -> dict[str, Event]:
        """The known culprits in a tree, with the open or closed event of each."""
        events = [*self.open.values(), *self.closed.values()]
        return {culprit.commit: event for event in events if event.tree == tree for culprit in event.culprits}

    @property
    def unacknowledged(self) -> list[Event]:
        """The open events without an acknowledgement."""
        return [event for event in self.open.values() if event.id not in self.acks]


# ---- before measuring


def next_night(nights: Sequence[Night], today: str) -> tuple[int, bool] | None:
    """The number of the night to run, and True if it was begun before; None if today's is finished.

    An unfinished night of another date stays as it is, since its tips are outdated. A finished date stays finished
    if the clock comes by it again.
    """
    if any(night.date == today and night.finished for night in nights):
        return None
    if nights and nights[-1].date == today:
        return nights[-1].number, True
    return (nights[-1].number + 1 if nights else 1), False


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A commit to compare the tip with, and the names of the baselines that it is."""

    commit: str
    names: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The commit and the baselines for people."""
        return f"{short(self.commit)} ({', '.join(self.names)})"


def baselines(
    plan: BranchPlan, state: PlanState, tip: str, release: str | None, today: str, days: int, mode: Mode = "exact"
) -> list[Baseline]:
    """The commits to compare a tip with, each once. The comparison with the first gives the night's points."""
    branch = plan.key
    before, good = state.last_tip(branch), state.last_good.get((branch, mode))
    limit = (date.fromisoformat(today) - timedelta(days=days)).isoformat()
    old = next((tip for tip in reversed(state.tips.get(branch, ())) if tip.date <= limit), None)
    candidates = {
        "yesterday": before and before.commit,
        "last-good": good and good.commit,
        "release": release,
        "creep": old and old.commit,
    }
    allowed: set[str] = set(plan.baselines) if mode == "exact" else _LIVE_BASELINES.intersection(plan.baselines)
    chosen = [(name, commit) for name, commit in candidates.items() if name in allowed]
    # Under any plan, a comparison has to show that an open event is fixed.
    chosen += [(f"before {event.id}", event.base) for event in state.open_on(branch) if mode in event.modes]
    names: dict[str, list[str]] = {}
    for name, commit in chosen:
        if commit and commit != tip:
            names.setdefault(commit, []).append(name)
    return [Baseline(commit=commit, names=tuple(of_commit)) for commit, of_commit in names.items()]


# ---- after measuring


class EventSource(msgspec.Struct, frozen=True, kw_only=True):
    """The measured tip that events come from. first: the number of the night's next event."""

    plan: str
    night: int
    date: str
    branch: BranchKey
    tip: str
    threshold: float
    first: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesStep:
    """A step in the history of one case of the branch: its nights, and the commits around it."""

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


def find_events(
    source: EventSource, state: PlanState, measured: Sequence[TipComparison], steps: Sequence[SeriesStep] = ()
) -> list[Event]:
    """Everything that was not known before this night, each change once, in any mode."""
    regressions = merge_modes(_regressions(source, state, measured))
    creeps = merge_modes(_creeps(source, state, measured, _names(regressions)))
    events = [*regressions, *_fixed(source, state, measured), *creeps]
    events += _steps(source, state, steps, _names(events))
    return _numbered(events, source)


def broken(source: EventSource, state: PlanState, why: str) -> list[Event]:
    """The event of a tip that cannot be measured; none while the branch is already broken."""
    if source.branch in state.broken:
        return []
    before = state.last_tip(source.branch)
    return _numbered([_event(source, "broken", before.commit if before else "", text=why)], source)


def mended(source: EventSource, state: PlanState) -> list[Event]:
    """The event of the first tip that can be measured on a broken branch."""
    old = state.broken.get(source.branch)
    return _numbered([_event(source, "mended", old.test, closes=old.id)], source) if old else []


def night_outcome(branches: Sequence[BranchNight], *, still_open: int = 0) -> NightOutcome:
    """The night's overall status. Green only if every tip was measured and no event is open."""
    states = {branch.state for branch in branches}
    if any(event.kind in HARMFUL for branch in branches for event in branch.events):
        return "regression"
    if states <= {"failed", "broken"}:
        return "not measured"
    failed = any(comparison.failed for branch in branches for comparison in branch.measured)
    if failed or states & {"failed", "broken", "pending"} or any(branch.missed for branch in branches):
        return "partly measured"
    if states == {"nothing new"}:
        return "nothing new"
    if any(branch.undecided for branch in branches):
        return "undecided"
    return "no news" if still_open else "green"


def merge_modes(events: Sequence[Event]) -> list[Event]:
    """The events of one tip, with the cases of live mode that exact mode shows too in exact mode's event."""
    merged = [event for event in events if event.modes == ("exact",)]
    for event in events:
        if event.modes == ("exact",):
            continue
        alone = []
        for case in event.cases:
            index = next((i for i, other in enumerate(merged) if case.name in other.names), None)
            if index is None:
                alone.append(case)
            else:
                merged[index] = replace(merged[index], cases=[*merged[index].cases, case])
        if alone:
            merged.append(replace(event, cases=alone))
    return merged


def _names(events: Iterable[Event]) -> set[CaseName]:
    return {name for event in events for name in event.names}


def _numbered(events: Iterable[Event], source: EventSource) -> list[Event]:
    numbers = enumerate(events, start=source.first)
    return [replace(event, id=f"{source.plan}.{source.night}.{number}") for number, event in numbers]


def _event(
    source: EventSource, kind: EventKind, base: str, cases: Iterable[CaseChange] = (), *, test: str | None = None,
    result: str | None = None, closes: str | None = None, text: str = "",
) -> Event:  # fmt: skip
    return Event(
        id="", kind=kind, tree=source.branch[0], branch=source.branch[1], night=source.night, date=source.date,
        base=base, test=test or source.tip, cases=list(cases), result=result, closes=closes, text=text,
    )  # fmt: skip


def _against(measured: Sequence[TipComparison], name: str) -> list[TipComparison]:
    """The comparisons with a baseline, exact mode's first."""
    matching = [comparison for comparison in measured if name in comparison.baselines]
    return sorted(matching, key=lambda comparison: MODES.index(comparison.mode))


def _by_workload(cases: Sequence[CaseChange]) -> list[list[CaseChange]]:
    workloads = dict.fromkeys(case.workload for case in cases)
    return [[case for case in cases if case.workload == workload] for workload in workloads]


def _regressions(source: EventSource, state: PlanState, measured: Sequence[TipComparison]) -> list[Event]:
    """Cases that are worse than yesterday, or than the last good tip; in the first night, than the release.

    Against the last good tip, a case with an open event in either mode is not news.
    """
    openly = _names(state.open_on(source.branch))
    first_night = state.last_tip(source.branch) is None
    seen = set()
    events = []
    for name in ("yesterday", "last-good", *(["release"] if first_night else [])):
        for comparison in _against(measured, name):
            worse = [case for case in comparison.cases if case.is_worse and case.key not in seen]
            if name == "last-good":
                worse = [case for case in worse if case.name not in openly]
            for cases in _by_workload(worse):
                events.append(_event(source, "regression", comparison.commit, cases, result=comparison.result))
            seen |= {case.key for case in worse}
    return events


def _fixed(source: EventSource, state: PlanState, measured: Sequence[TipComparison]) -> list[Event]:
    """Open events whose cases are all as good as before."""
    events = []
    for event in state.open_on(source.branch):
        against = _against(measured, f"before {event.id}")
        now = {case.key: case for comparison in against for case in comparison.cases}
        if against and all(_is_gone(case, now.get(case.key), event) for case in event.cases):
            cases = [now[case.key] for case in event.cases if case.key in now]
            result = against[0].result
            events.append(_event(source, "fixed", against[0].commit, cases, result=result, closes=event.id))
    return events


def _is_gone(loss: CaseChange, now: CaseChange | None, event: Event) -> bool:
    """True if a loss is gone. If both modes showed it, exact mode decides, unless live mode still shows it."""
    if loss.mode == "live" and "exact" in event.modes:
        return now is None or now.verdict != Outcome.REGRESSION
    if now is None or now.verdict not in (Outcome.SAME, Outcome.IMPROVEMENT):
        return False
    if not now.ratio or not loss.ratio or loss.ratio == 1:
        return True
    # A loss below the threshold always has the verdict `same`, so most of it has to be regained.
    return math.log(now.ratio) / math.log(loss.ratio) < 0.5


def _creeps(
    source: EventSource, state: PlanState, measured: Sequence[TipComparison], reported: set[CaseName]
) -> list[Event]:
    """Cases that are worse than long ago by more than the open events since then explain."""
    events = []
    for comparison in _against(measured, "creep"):
        tips = reversed(state.tips.get(source.branch, []))
        since = next((tip.night for tip in tips if tip.commit == comparison.commit), 0)
        newer = [event for event in state.open_on(source.branch) if event.night > since]
        worse = [
            case
            for case in comparison.cases
            if case.is_worse and case.name not in reported and _is_unexplained(case, source.threshold, newer)
        ]
        for cases in _by_workload(worse):
            events.append(_event(source, "creep", comparison.commit, cases, result=comparison.result))
    return events


def _is_unexplained(case: CaseChange, threshold: float, events: Sequence[Event]) -> bool:
    """True if a loss exceeds the threshold even without the effects of known events."""
    known = [ratio for event in events if (ratio := _effect(event, case)) is not None]
    if case.ratio is None or case.low is None or case.high is None:
        return not known
    nearest = (case.low if case.better == "lower" else case.high) / math.prod(known)
    return nearest > 1 + threshold if case.better == "lower" else nearest < 1 / (1 + threshold)


def _effect(event: Event, case: CaseChange) -> float | None:
    """The ratio by which an event changed a case. If live mode did not see the event, exact mode's ratio counts."""
    own = [change.ratio for change in event.cases if change.key == case.key and change.ratio]
    if own or case.mode == "exact":
        return math.prod(own) if own else None
    exact = [change for change in event.cases if change.name == case.name and change.ratio]
    ratios = [change.ratio if change.better == case.better else 1 / change.ratio for change in exact if change.ratio]
    return math.prod(ratios) if ratios else None


def _steps(source: EventSource, state: PlanState, steps: Sequence[SeriesStep], reported: set[CaseName]) -> list[Event]:
    """Steps of the history for the worse that belong to no event; of both modes, exact mode's."""
    events: list[Event] = []
    for step in sorted(steps, key=lambda step: MODES.index(step.mode)):
        name = (step.workload, step.case)
        shown_by_exact = step.mode != "exact" and name in _names(events)
        if (step.ratio > 1) != (step.better == "lower") or name in reported or shown_by_exact:
            continue
        near = range(step.earliest - _NEAR_NIGHTS, step.latest + _NEAR_NIGHTS + 1)
        known = (*state.open.values(), *state.closed.values())
        about = [event for event in known if event.branch_key == source.branch and name in event.names]
        if any(event.night in near or (event.kind == "creep" and event.night >= step.earliest) for event in about):
            continue
        case = CaseChange(
            workload=step.workload, case=step.case, metric=step.metric, better=step.better, mode=step.mode,
            verdict=Outcome.REGRESSION, ratio=step.ratio, low=None, high=None, counts=True,
        )  # fmt: skip
        text = f"the history shows it between night {step.earliest - 1} and night {step.latest}"
        events.append(_event(source, "step", step.after, [case], test=step.commit, text=text))
    return events
