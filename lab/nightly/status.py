"""How a plan stands: its last night, what is open, what is broken."""

from __future__ import annotations

from collections.abc import Iterator

from lab.core.errors import UserError
from lab.core.progress import Meter
from lab.core.records import Record
from lab.core.text import visible
from lab.nightly import record
from lab.nightly import team as nightly_team
from lab.nightly.events import Memory, remember
from lab.nightly.record import Ack, BranchNight, Event, Night
from lab.nightly.team import PlanOf
from lab.stats.verdict import percent


class Status(Record, frozen=True, kw_only=True):
    """`lab nightly status --json`. host: another machine's name, where the plan is its own."""

    schema: str = "lab.nightly/1"
    plan: str
    host: str = ""
    nights: int
    last: Night | None
    open: list[Event]
    acks: list[Ack]
    broken: list[Event]


def find(name: str | None, database: str | None, meter: Meter) -> Status:
    """The status of the plan that is meant: of this machine, else of another one that uses the same database."""
    known = record.plans()
    team = nightly_team.team_if_it_works(database, meter)
    if name in known or (name is None and len(known) == 1):
        plan = name or known[0]
        nights = record.load_all(plan)
        return _of(plan, nights, remember(nights, nightly_team.known_acks(team)))
    host, plan = _elsewhere(name, known, sorted(team.plans))
    return _of(plan, team.plans[host, plan], team.memory((host, plan)), host)


def _of(plan: str, nights: list[Night], memory: Memory, host: str = "") -> Status:
    return Status(
        plan=plan,
        host=host,
        nights=len(nights),
        last=nights[-1] if nights else None,
        open=list(memory.open.values()),
        acks=[memory.acks[event] for event in memory.open if event in memory.acks],
        broken=list(memory.broken.values()),
    )


def choose(name: str | None) -> str:
    """The plan of this machine that is meant: the one named, or the only one there is."""
    known = record.plans()
    if name is not None and name in known:
        return name
    if name is None and len(known) == 1:
        return known[0]
    raise _unknown(name, known)


def _elsewhere(name: str | None, known: list[str], others: list[PlanOf]) -> PlanOf:
    """The plan of another machine: as NAME, or HOST/NAME where several have one of that name."""
    host, _, plan = (name or "").rpartition("/")
    meant = [one for one in others if name is None or (one[1] == plan and host in ("", one[0]))]
    if len(meant) == 1 and not (name is None and known):
        return meant[0]
    raise _unknown(name, [*known, *("/".join(one) for one in others)])


def _unknown(name: str | None, known: list[str]) -> UserError:
    if not known:
        return UserError("no night was ever run", hint="`lab nightly run --plan nightly.toml` runs one")
    what = f"there is no one plan called {name}" if name else "which plan?"
    return UserError(what, hint=f"there is {', '.join(known)}")


def text(found: Status) -> Iterator[str]:
    """The status for people."""
    if found.last is None:
        yield f"{found.plan}: no night yet"
        return
    if found.host:
        yield visible(f"of {found.host}:")
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
