"""The decisions of a night, all pure: what a tip is measured against, and what of the outcome is news."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import msgspec
from msgspec.structs import replace

from lab.nightly.memory import Branch, Memory, Tip
from lab.nightly.night import BranchNight, CaseMoved, Event, Kind, Measured, Word
from lab.nightly.planfile import BranchPlan
from lab.verdict import Better, Outcome

_NEAR_NIGHTS = 5
"""A step of the history is that of an event that lies this near: its date is uncertain by some points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A commit to compare the tip with, and all that it stands for."""

    commit: str
    names: tuple[str, ...]


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


# ---- what to measure


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


def baselines(plan: BranchPlan, memory: Memory, tip: str, release: str | None, today: str, days: int) -> list[Baseline]:
    """What a tip is compared with; each commit once. The first is the one that the night's points are taken from."""
    branch = plan.tree, plan.branch
    before, good = memory.before(branch), memory.last_good.get(branch)
    wanted: list[tuple[str, str | None]] = [("yesterday", before.commit if before else None)]
    wanted += [("last-good", good.commit if good else None), ("release", release)]
    old = creep_tip(memory.tips.get(branch, ()), today, days)
    wanted.append(("creep", old.commit if old else None))
    allowed: set[str] = set(plan.baselines)
    chosen = [(name, commit) for name, commit in wanted if name in allowed]
    # Whatever the plan says: what is open has to be seen going away.
    chosen += [(f"before {event.id}", event.base) for event in memory.open_on(branch)]
    names: dict[str, list[str]] = {}
    for name, commit in chosen:
        if commit and commit != tip:
            names.setdefault(commit, []).append(name)
    return [Baseline(commit=commit, names=tuple(words)) for commit, words in names.items()]


def creep_tip(tips: Sequence[Tip], today: str, days: int) -> Tip | None:
    """The newest tip that is at least so many days old."""
    limit = (date.fromisoformat(today) - timedelta(days=days)).isoformat()
    return next((tip for tip in reversed(tips) if tip.date <= limit), None)


# ---- what is news


def news(where: Setting, memory: Memory, measured: Sequence[Measured], steps: Sequence[SeriesStep] = ()) -> list[Event]:
    """Everything that was not known before this night, each once."""
    found = [*_regressions(where, memory, measured)]
    taken = {case.key for event in found for case in event.cases}
    found += _fixed(where, memory, measured)
    found += _creeps(where, memory, measured, taken)
    taken |= {case.key for event in found for case in event.cases}
    found += _steps(where, memory, steps, taken)
    return _numbered(found, where)


def _numbered(found: Iterable[Event], where: Setting) -> list[Event]:
    numbers = enumerate(found, start=where.first)
    return [replace(event, id=f"{where.plan}.{where.night}.{number}") for number, event in numbers]


def _event(where: Setting, kind: Kind, base: str, cases: Iterable[CaseMoved], **more: str | None) -> Event:
    return Event(
        id="", kind=kind, tree=where.branch[0], branch=where.branch[1], night=where.night, date=where.date,
        base=base, test=more.get("test") or where.tip, cases=list(cases), result=more.get("result"),
        closes=more.get("closes"), text=more.get("text") or "",
    )  # fmt: skip


def _by(measured: Sequence[Measured], name: str) -> Measured | None:
    return next((one for one in measured if name in one.baselines), None)


def _regressions(where: Setting, memory: Memory, measured: Sequence[Measured]) -> list[Event]:
    """Worse than yesterday; than the last good tip in what is not open yet; the first time, than the release."""
    openly = {case.key for event in memory.open_on(where.branch) for case in event.cases}
    first_time = memory.before(where.branch) is None
    seen: set[tuple[str, str]] = set()
    found = []
    for name in ("yesterday", "last-good", *(["release"] if first_time else [])):
        one = _by(measured, name)
        if one is None:
            continue
        worse = [case for case in one.cases if case.worse and case.key not in seen]
        if name == "last-good":
            worse = [case for case in worse if case.key not in openly]
        for workload in dict.fromkeys(case.workload for case in worse):
            cases = [case for case in worse if case.workload == workload]
            found.append(_event(where, "regression", one.commit, cases, result=one.result))
        seen |= {case.key for case in worse}
    return found


def _fixed(where: Setting, memory: Memory, measured: Sequence[Measured]) -> list[Event]:
    """What is open and no longer there: every case of it is as good as before."""
    found = []
    for event in memory.open_on(where.branch):
        one = _by(measured, f"before {event.id}")
        if one is None:
            continue
        now = {case.key: case for case in one.cases}
        cases = [now[case.key] for case in event.cases if case.key in now]
        if len(cases) == len(event.cases) and all(map(_as_good, cases, event.cases)):
            found.append(_event(where, "fixed", one.commit, cases, result=one.result, closes=event.id))
    return found


def _as_good(case: CaseMoved, lost: CaseMoved) -> bool:
    """Whether a loss is gone. One below the threshold is `same` all the time: most of it has to be made good."""
    if case.verdict not in (Outcome.SAME, Outcome.IMPROVEMENT):
        return False
    if not case.ratio or not lost.ratio:
        return True
    now, then = math.log(case.ratio), math.log(lost.ratio)
    return now / then < 0.5 if then else True


def _creeps(where: Setting, memory: Memory, measured: Sequence[Measured], taken: set[tuple[str, str]]) -> list[Event]:
    """Worse than long ago, by more than the changes explain that are known since."""
    one = _by(measured, "creep")
    if one is None:
        return []
    since = next((tip.night for tip in reversed(memory.tips.get(where.branch, [])) if tip.commit == one.commit), 0)
    worse = [
        case
        for case in one.cases
        if case.worse and case.key not in taken and _unexplained(case, where, _since(memory, where, since, case))
    ]
    found = []
    for workload in dict.fromkeys(case.workload for case in worse):
        cases = [case for case in worse if case.workload == workload]
        found.append(_event(where, "creep", one.commit, cases, result=one.result))
    return found


def _since(memory: Memory, where: Setting, night: int, case: CaseMoved) -> list[CaseMoved]:
    """What open changes did to a case after a night."""
    return [
        known
        for event in memory.open_on(where.branch)
        if event.night > night
        for known in event.cases
        if known.key == case.key
    ]


def _unexplained(case: CaseMoved, where: Setting, known: Sequence[CaseMoved]) -> bool:
    """Whether a loss is beyond the threshold even without the known ones."""
    if case.ratio is None or case.low is None or case.high is None:
        return not known
    explained = math.prod(one.ratio for one in known if one.ratio)
    nearest = (case.low if case.better == "lower" else case.high) / explained
    limit = 1 + where.threshold
    return nearest > limit if case.better == "lower" else nearest < 1 / limit


def _steps(where: Setting, memory: Memory, steps: Sequence[SeriesStep], taken: set[tuple[str, str]]) -> list[Event]:
    """Steps of the history, for the worse, that no event is about."""
    found = []
    for step in steps:
        if (step.ratio > 1) != (step.better == "lower") or (step.workload, step.case) in taken:
            continue
        near = range(step.earliest - _NEAR_NIGHTS, step.latest + _NEAR_NIGHTS + 1)
        about = [e for e in memory.known(where.branch) if any(c.key == (step.workload, step.case) for c in e.cases)]
        if any(event.night in near or (event.kind == "creep" and event.night >= step.earliest) for event in about):
            continue
        case = CaseMoved(
            workload=step.workload, case=step.case, metric=step.metric, better=step.better,
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


# ---- the night in a word


def outcome(branches: Sequence[BranchNight], *, still_open: int = 0) -> Word:
    """What a night is called. Only one in which tips were measured, each of them, and nothing is open, is green."""
    states = {one.state for one in branches}
    if any(event.kind in ("regression", "creep", "step") for one in branches for event in one.events):
        return "regression"
    if states <= {"failed", "broken"}:
        return "not measured"
    if states & {"failed", "broken", "pending"}:
        return "partly measured"
    if states == {"nothing new"}:
        return "nothing new"
    if any(one.undecided for one in branches):
        return "undecided"
    return "no news" if still_open else "green"
