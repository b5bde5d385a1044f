"""What a team knows together: every machine's nights and acknowledgements, in the history's database.

Files stay what counts: the database has copies, each machine's written by itself alone, but for acknowledgements,
which anybody may make of anybody's news, and which nothing deletes. A database of one user's own has none of this.

Changes that somebody knows of and lives with, on whichever machine they were found.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lab.core.errors import LabError, UserError, suggestion
from lab.core.progress import Meter
from lab.history.database import Database, is_shared, opened
from lab.history.index import origin, stamp
from lab.history.schema import acks, nights
from lab.nightly import record
from lab.nightly.events import Memory, remember
from lab.nightly.record import Ack, Night

PlanOf = tuple[str, str]
"""A machine, and a plan of its own."""


def publish(asked: str | None, meter: Meter) -> None:
    """Put this machine's nights and acknowledgements where the team sees them; if that fails, the next time."""
    if not is_shared(asked):
        return
    try:
        with opened(asked) as base:
            write(base)
    except LabError as error:
        meter.say(f"nights and acknowledgements are on this machine alone yet: {error.message}")


def write(base: Database) -> None:
    """What of this machine the database does not have yet."""
    here = origin()
    with base.reading() as connection:
        mine = sa.select(nights.c.plan, nights.c.number, nights.c.stamp).where(nights.c.origin == here)
        stamps = {(row.plan, row.number): row.stamp for row in connection.execute(mine)}
    found = {(plan, int(path.stem)): path for plan in record.plans() for path in record.files(plan)}
    fresh = {name: path for name, path in found.items() if stamps.get(name) != stamp(path)}
    with base.writing() as connection:
        for (plan, number), path in fresh.items():
            same = (nights.c.origin == here) & (nights.c.plan == plan) & (nights.c.number == number)
            connection.execute(sa.delete(nights).where(same))
            row = {"origin": here, "plan": plan, "number": number, "stamp": stamp(path), "document": path.read_text()}
            connection.execute(sa.insert(nights).values(row))
        for ack in record.all_acks():
            _put(connection, ack.host or here, ack)


def _put(connection: Connection, host: str, ack: Ack) -> None:
    """An acknowledgement, unless a newer one of the same event is there."""
    same = (acks.c.host == host) & (acks.c.event == ack.event)
    known = connection.execute(sa.select(acks.c.at).where(same)).scalar()
    if known is not None and str(known) >= ack.at:
        return
    connection.execute(sa.delete(acks).where(same))
    connection.execute(sa.insert(acks).values(host=host, event=ack.event, note=ack.note, at=ack.at))


# ---- what others know


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """All that the database has of the team. acks: by machine and event. plans: those of other machines."""

    acks: dict[tuple[str, str], Ack]
    plans: dict[PlanOf, list[Night]]

    def acks_of(self, host: str) -> dict[str, Ack]:
        """What is acknowledged of a machine's news."""
        return {event: ack for (owner, event), ack in self.acks.items() if owner == host}

    def memory(self, one: PlanOf) -> Memory:
        """What a plan of another machine knows."""
        return remember(self.plans[one], self.acks_of(one[0]))

    @property
    def culprits(self) -> dict[str, str]:
        """The commits that other machines told of: in which event, on which machine."""
        return {
            culprit.commit: f"{event.id} on {host}"
            for (host, _), stored in self.plans.items()
            for one in stored
            for event in one.events
            for culprit in event.culprits
        }


NOBODY = Team(acks={}, plans={})


def load_team(asked: str | None) -> Team:
    """What the database has of others, and of this machine's acknowledgements; nobody without a shared one."""
    if not is_shared(asked):
        return NOBODY
    with opened(asked) as base, base.reading() as connection:
        known = {(row.host, row.event): Ack(event=row.event, note=row.note, at=row.at, host=row.host)
                 for row in connection.execute(sa.select(acks))}  # fmt: skip
        others = sa.select(nights).where(nights.c.origin != origin()).order_by(nights.c.number)
        plans: dict[PlanOf, list[Night]] = {}
        for row in connection.execute(others):
            if (one := _readable(row.document)) is not None:
                plans.setdefault((row.origin, row.plan), []).append(one)
    return Team(acks=known, plans=plans)


def _readable(document: str) -> Night | None:
    """A night of another machine; None of one that another version of the lab wrote in words unknown here."""
    try:
        return msgspec.json.decode(document, type=Night)
    except msgspec.MsgspecError:
        return None


def team_if_it_works(asked: str | None, meter: Meter) -> Team:
    """The same; a database that does not work is said, and costs no more than what it would have told."""
    try:
        return load_team(asked)
    except LabError as error:
        meter.say(f"what others know could not be looked at: {error.message}")
        return NOBODY


def known_acks(found: Team) -> dict[str, Ack]:
    """What is acknowledged of this machine's news, here or by others; the newest word counts."""
    known = dict(record.load_acks())
    for event, ack in found.acks_of(origin()).items():
        if event not in known or ack.at > known[event].at:
            known[event] = ack
    return known


def acknowledge(event: str, note: str, database: str | None, meter: Meter) -> None:
    """Remember that an open change is known. It is watched for its fix all the same.

    event: one of this machine's, else of another one's that uses the same database: its id, with `HOST/` before it
    where several machines have it.
    """
    host, name = _find(event, database)
    at = datetime.now(UTC).isoformat(timespec="microseconds")
    record.acknowledge(Ack(event=name, note=note or "no note", at=at, host=host))
    publish(database, meter)


def _find(event: str, database: str | None) -> tuple[str, str]:
    """The machine, empty for this one, and the event's id."""
    opens = {found for plan in record.plans() for found in remember(record.load_all(plan), {}).open}
    if event in opens:
        return "", event
    team = load_team(database)
    others = [(one[0], found) for one in sorted(team.plans) for found in team.memory(one).open]
    host, _, name = event.rpartition("/")
    meant = [one for one in others if one[1] == name and host in ("", one[0])]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UserError(
            f"{len(meant)} machines have an open change {event!r}",
            hint=f"name one: {', '.join('/'.join(one) for one in meant)}",
        )
    raise UserError(
        f"there is no open change {event!r}",
        hint=suggestion(event, {*opens, *(one[1] for one in others)})
        or "`lab nightly status` names those that there are",
    )
