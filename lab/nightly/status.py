"""The status of a plan: its last night, its open events and its broken branches."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from lab.core.errors import UserError, suggestion
from lab.core.records import Record
from lab.core.text import plural, visible
from lab.nightly import record
from lab.nightly.events import PlanState
from lab.nightly.record import HARMFUL, Ack, BranchNight, Event, Night, short
from lab.stats.verdict import percent


class Status(Record, frozen=True, kw_only=True):
    """`lab nightly status --json`. unread: the files of nights that cannot be read."""

    schema: str = "lab.nightly/1"
    plan: str
    nights: int
    unread: list[str] = msgspec.field(default_factory=list)
    last: Night | None
    open: list[Event]
    acks: list[Ack]
    broken: list[Event]


def find(name: str | None) -> Status:
    """The status of a plan; without a name, of the only one."""
    plan = choose(name)
    nights = record.load_all(plan)
    state = PlanState.after(nights, record.load_acks())
    return Status(
        plan=plan,
        nights=len(nights),
        unread=record.unread(plan, nights),
        last=nights[-1] if nights else None,
        open=list(state.open.values()),
        acks=[state.acks[event] for event in state.open if event in state.acks],
        broken=list(state.broken.values()),
    )


def acknowledge(event: str, note: str) -> None:
    """Store that an open event is accepted; it is still watched for its fix."""
    known = {name for plan in record.plans() for name in PlanState.after(record.load_all(plan), {}).open}
    if event not in known:
        hint = suggestion(event, known) or "`lab nightly status` lists the open ones"
        raise UserError(f"there is no open change {event!r}", hint=hint)
    at = datetime.now(UTC).isoformat(timespec="microseconds")
    record.acknowledge(Ack(event=event, note=note or "no note", at=at))


def choose(name: str | None) -> str:
    """The plan of that name; without a name, the only one."""
    plans = record.plans()
    if name in plans or (name is None and len(plans) == 1):
        return name or plans[0]
    if not plans:
        raise UserError("no night was ever run", hint="`lab nightly run --plan nightly.toml` runs one")
    message = f"no single plan is called {name}" if name else "several plans have nights"
    raise UserError(message, hint=f"name one: {', '.join(plans)}")


def text(status: Status) -> Iterator[str]:
    if status.last is None:
        yield f"{status.plan}: no night yet"
        return
    yield from night_lines(status.last)
    notes = {ack.event: f" (acknowledged: {ack.note})" for ack in status.acks}
    for event in status.open:
        yield visible(f"open    {line(event)}{notes.get(event.id, '')}")
    for event in status.broken:
        yield visible(f"broken  {line(event)}")
    if status.unread:
        yield visible(f"unknown {', '.join(status.unread)} cannot be read: its changes are not known")
    elif not status.open and not status.broken:
        yield "nothing is open"


def night_lines(night: Night) -> Iterator[str]:
    yield f"night {night.number} ({night.date}) of {night.plan}: {night.outcome or 'at work'}"
    for note in night.notes:
        yield visible(f"  {note}")
    for branch in night.branches:
        yield visible(f"  {_branch(branch)}")
        for note in branch.notes:
            yield visible(f"    {note}")
    for event in night.events:
        yield visible(f"news    {line(event)}")


def _branch(branch: BranchNight) -> str:
    tip = f' {short(branch.tip)} ("{branch.subject}")' if branch.tip else ""
    live = len(branch.measured_in("live"))
    count = f", {plural(len(branch.measured) - live, 'baseline')}" if branch.measured else ""
    count += f", {live} in live mode" if live else ""
    return f"{branch.name}{tip}: {branch.state}{count}{f': {branch.why}' if branch.why else ''}"


def line(event: Event) -> str:
    parts = [event.id, event.kind, f"{event.tree}/{event.branch}"]
    parts += [f"{case.shown} {percent(case.ratio)}" for case in event.largest[:3]]
    if len(event.cases) > 3:
        parts.append(f"and {plural(len(event.cases) - 3, 'more case')}")
    if culprit := event.culprit:
        among = f"one of {culprit.among} up to " if culprit.among > 1 else ""
        parts.append(f'by {among}{culprit.commit[:12]} ("{culprit.title}")')
        if event.also:
            parts.append(f"and {len(event.also)} more")
    elif event.kind in HARMFUL and event.base:
        parts.append(f"in {short(event.base)}..{short(event.test)}")
    if event.closes:
        parts.append(f"({event.closes})")
    return " ".join(parts) + (f": {event.text}" if event.text else "")
