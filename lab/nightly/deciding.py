"""The decisions of a night, all pure: which night it is, what a tip is measured against, what the night is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from lab.nightly.memory import Memory, Tip
from lab.nightly.night import BranchNight, Mode, Word
from lab.nightly.planfile import BranchPlan

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
