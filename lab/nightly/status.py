"""How a plan stands: its last night, what is open, what is broken."""

from __future__ import annotations

from collections.abc import Iterator

from lab.errors import UserError
from lab.nightly import night
from lab.nightly.memory import remember
from lab.nightly.night import Ack, BranchNight, Event, Night
from lab.records import Record
from lab.verdict import percent
from lab.visible import visible


class Status(Record, frozen=True, kw_only=True):
    """`lab nightly status --json`."""

    schema: str = "lab.nightly/1"
    plan: str
    nights: int
    last: Night | None
    open: list[Event]
    acks: list[Ack]
    broken: list[Event]


def of(plan: str) -> Status:
    """The status of a plan by name."""
    nights = night.load_all(plan)
    memory = remember(nights, night.load_acks())
    return Status(
        plan=plan,
        nights=len(nights),
        last=nights[-1] if nights else None,
        open=list(memory.open.values()),
        acks=[memory.acks[event] for event in memory.open if event in memory.acks],
        broken=list(memory.broken.values()),
    )


def choose(name: str | None) -> str:
    """The plan that is meant: the one named, or the only one there is."""
    known = night.plans()
    if name is not None and name in known:
        return name
    if name is None and len(known) == 1:
        return known[0]
    if not known:
        raise UserError("no night was ever run", hint="`lab nightly run --plan nightly.toml` runs one")
    what = f"there is no plan called {name}" if name else "which plan?"
    raise UserError(what, hint=f"there is {', '.join(known)}")


def text(found: Status) -> Iterator[str]:
    """The status for people."""
    if found.last is None:
        yield f"{found.plan}: no night yet"
        return
    yield from night_lines(found.last)
    acked = {one.event: one for one in found.acks}
    for event in found.open:
        note = f" (acknowledged: {acked[event.id].note})" if event.id in acked else ""
        yield visible(f"open    {line(event)}{note}")
    for event in found.broken:
        yield visible(f"broken  {line(event)}")
    if not found.open and not found.broken:
        yield "nothing is open"


def night_lines(one: Night) -> Iterator[str]:
    """One night for people."""
    state = one.outcome or "at work"
    yield f"night {one.number} ({one.date}) of {one.plan}: {state}"
    for note in one.notes:
        yield visible(f"  {note}")
    for branch in one.branches:
        yield visible(f"  {_branch(branch)}")
        for note in branch.notes:
            yield visible(f"    {note}")
    for event in one.events:
        yield visible(f"news    {line(event)}")


def _branch(one: BranchNight) -> str:
    tip = f' {one.tip[:12]} ("{one.subject}")' if one.tip else ""
    why = f": {one.why}" if one.why else ""
    live = len(one.measured_in("live"))
    count = f", {len(one.measured) - live} baselines" if one.measured else ""
    count += f", {live} in live mode" if live else ""
    return f"{one.name}{tip}: {one.state}{count}{why}"


def line(event: Event) -> str:
    """An event in a line."""
    words = [event.id, event.kind, f"{event.tree}/{event.branch}"]
    words += [f"{case.shown} {percent(case.ratio)}" for case in event.cases[:3]]
    if len(event.cases) > 3:
        words.append(f"and {len(event.cases) - 3} more cases")
    if event.culprit is not None:
        among = f"one of {event.culprit.among} up to " if event.culprit.among > 1 else ""
        words.append(f'by {among}{event.culprit.commit[:12]} ("{event.culprit.title}")')
        words += [f"and {len(event.also)} more"] if event.also else []
    elif event.kind in ("regression", "creep", "step") and event.base:
        words.append(f"in {event.base[:12]}..{event.test[:12]}")
    if event.closes:
        words.append(f"({event.closes})")
    return " ".join(words) + (f": {event.text}" if event.text else "")
