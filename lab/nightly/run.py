"""`lab nightly run`: one night from the fetch to the news, saved after every piece of work so that it can go on."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime

from filelock import FileLock, Timeout
from msgspec.structs import replace

from lab.cluster import connect
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.nightly import events, record, team
from lab.nightly.branch import BranchWork
from lab.nightly.context import BranchTonight, Tonight, now
from lab.nightly.events import PlanState
from lab.nightly.plan import NightlyPlan
from lab.nightly.record import BranchNight, Night


def today() -> str:
    """The date that a night goes by."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def run(plan: NightlyPlan, work: Work) -> tuple[Night, bool]:
    """Tonight's work, as far as it was not done yet; the night, and whether anything was left to do."""
    lock = FileLock(record.plan_dir(plan.name) / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"another lab nightly is at work on the plan {plan.name}", hint="`lab nightly status` shows how far it is"
        ) from None
    try:
        return _run(plan, work)
    finally:
        lock.release()


def _run(plan: NightlyPlan, work: Work) -> tuple[Night, bool]:
    nights = record.load_all(plan.name)
    date = today()
    found = events.next_night(nights, date)
    if found is None:
        return next(one for one in reversed(nights) if one.date == date and one.finished), False
    number, begun = found
    if begun and (left := _branches(nights[-1], plan)) is not None:
        tonight, earlier = replace(nights[-1], branches=left), nights[:-1]
        work.progress.log(f"night {number} ({date}) goes on where it stopped")
    else:
        earlier = nights[:-1] if begun else nights
        tonight = Night(
            plan=plan.name, number=number, date=date, started=now(), notes=_notes(earlier, date),
            branches=[BranchNight(tree=one.tree, branch=one.branch) for one in plan.branch],
        )  # fmt: skip
        work.progress.log(f"night {number} ({date}) of {plan.name}: {len(plan.branch)} branches")
    _close(earlier)
    with connect(plan.cluster, plan.share, work.progress) as executor:
        work = dataclasses.replace(work, deadline=time.monotonic() + plan.budget_s, executor=executor)
        done = _do(Tonight(plan=plan, night=tonight, earlier=earlier, work=work))
    team.publish(plan.database, work.progress)
    return done, True


def _branches(begun: Night, plan: NightlyPlan) -> list[BranchNight] | None:
    """What is there of a night that was begun; None where the plan has other branches by now."""
    same = [(one.tree, one.branch) for one in begun.branches] == [(one.tree, one.branch) for one in plan.branch]
    return begun.branches if same else None


def _notes(earlier: list[Night], date: str) -> list[str]:
    last = max((one.date for one in earlier), default="")
    return [f"the clock went back: it says {date}, and a night before was {last}"] if date < last else []


def _close(earlier: list[Night]) -> None:
    """Nights that nobody will go on with say so."""
    for one in earlier:
        if not one.finished:
            record.save(replace(one, finished=now(), outcome=one.outcome or "interrupted"))


def _do(tonight: Tonight) -> Night:
    """All branches, then the night's name."""
    for place, one in enumerate(tonight.plan.branch):
        BranchWork(BranchTonight(tonight, place, one)).do()
    failed = [one for one in tonight.night.branches if one.state == "failed"]
    after = PlanState.after([*tonight.earlier, tonight.night], tonight.acks)
    tonight.night = replace(
        tonight.night,
        outcome=events.night_outcome(tonight.night.branches, still_open=len(after.unacknowledged)),
        # What failed by this machine's doing is tried again when the night is run again.
        finished="" if failed else now(),
    )
    tonight.save()
    return tonight.night
