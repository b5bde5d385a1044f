"""A team's shared database: the nights of every machine, and acknowledgements of their events.

The files of each machine remain the originals. Each machine alone writes the copies of its nights; anybody may
acknowledge any machine's event, and nothing deletes an acknowledgement. A user's own SQLite file has none of this.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lab.core.errors import LabError, UserError, suggestion
from lab.core.progress import Progress
from lab.core.records import DAMAGED, decode, encode, load_each
from lab.history.database import Database, is_shared, opened
from lab.history.index import origin, stamp
from lab.history.schema import acks, nights
from lab.nightly import record
from lab.nightly.events import PlanState
from lab.nightly.record import Ack, Night

HostPlan = tuple[str, str]
"""The name of a machine, and of a plan there."""


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """The team's part of the database. acks: by machine and event. plans: the nights of the other machines."""

    acks: dict[tuple[str, str], Ack]
    plans: dict[HostPlan, list[Night]]

    def acks_of(self, host: str) -> dict[str, Ack]:
        """The acknowledgements of a machine's events."""
        return {event: ack for (owner, event), ack in self.acks.items() if owner == host}

    def own_acks(self) -> dict[str, Ack]:
        """The acknowledgements of this machine's events, here or elsewhere; the newest counts."""
        known = record.load_acks()
        for event, ack in self.acks_of(origin()).items():
            if event not in known or ack.at > known[event].at:
                known[event] = ack
        return known

    def state(self, plan: HostPlan) -> PlanState:
        """The state of another machine's plan."""
        return PlanState.after(self.plans[plan], self.acks_of(plan[0]))

    @property
    def culprits(self) -> dict[str, str]:
        """The commits that other machines reported, each with its event."""
        return {
            culprit.commit: f"{event.id} on {host}"
            for (host, _), stored in self.plans.items()
            for night in stored
            for event in night.events
            for culprit in event.culprits
        }


def load_team(database: str | None) -> Team:
    """Read the team's part of the database; it is empty if the database is not shared."""
    if not is_shared(database):
        return Team(acks={}, plans={})
    with opened(database) as base, base.reading() as connection:
        known = {(row.host, row.event): Ack(event=row.event, note=row.note, at=row.at, host=row.host)
                 for row in connection.execute(sa.select(acks))}  # fmt: skip
        plans: dict[HostPlan, list[Night]] = {}
        for row in connection.execute(sa.select(nights).where(nights.c.origin != origin()).order_by(nights.c.number)):
            try:
                night = decode(row.document.encode(), Night)
            except DAMAGED:
                continue  # another version of the lab wrote it
            plans.setdefault((row.origin, row.plan), []).append(night)
    return Team(acks=known, plans=plans)


def try_load_team(database: str | None, progress: Progress) -> Team:
    """Read the team's part of the database; if that fails, warn and go on without it."""
    try:
        return load_team(database)
    except LabError as error:
        progress.log(f"cannot read the nights and acknowledgements of other machines: {error.message}")
        return Team(acks={}, plans={})


def publish(database: str | None, progress: Progress) -> None:
    """Write this machine's nights and acknowledgements to a shared database; if that fails, the next call does."""
    if not is_shared(database):
        return
    try:
        with opened(database) as base:
            write(base)
    except LabError as error:
        progress.log(f"nights and acknowledgements are on this machine alone yet: {error.message}")


def write(base: Database) -> None:
    """Write the nights and acknowledgements that the database does not have yet."""
    here = origin()
    with base.reading() as connection:
        own = sa.select(nights.c.plan, nights.c.number, nights.c.stamp).where(nights.c.origin == here)
        stamps = {(row.plan, row.number): row.stamp for row in connection.execute(own)}
    with base.writing() as connection:
        for plan in record.plans():
            changed = [path for path in record.files(plan) if stamps.get((plan, int(path.stem))) != stamp(path)]
            for path, night in load_each(changed, Night):
                number = int(path.stem)
                same = (nights.c.origin == here) & (nights.c.plan == plan) & (nights.c.number == number)
                connection.execute(sa.delete(nights).where(same))
                connection.execute(
                    sa.insert(nights).values(
                        origin=here, plan=plan, number=number, stamp=stamp(path), document=encode(night).decode()
                    )
                )
        for ack in record.all_acks():
            _write_ack(connection, ack.host or here, ack)


def _write_ack(connection: Connection, host: str, ack: Ack) -> None:
    """Write an acknowledgement, unless the database has a newer one of the event."""
    same = (acks.c.host == host) & (acks.c.event == ack.event)
    at = connection.execute(sa.select(acks.c.at).where(same)).scalar()
    if at is None or str(at) < ack.at:
        connection.execute(sa.delete(acks).where(same))
        connection.execute(sa.insert(acks).values(host=host, event=ack.event, note=ack.note, at=ack.at))


def acknowledge(event: str, note: str, database: str | None, progress: Progress) -> None:
    """Store that an open event is accepted; it is still watched for its fix.

    event: the id of an event of this machine, else of another one that uses the same database; as `HOST/ID` where
    several machines have one of that id.
    """
    host, name = _find(event, database)
    at = datetime.now(UTC).isoformat(timespec="microseconds")
    record.acknowledge(Ack(event=name, note=note or "no note", at=at, host=host))
    publish(database, progress)


def _find(event: str, database: str | None) -> tuple[str, str]:
    """The machine of an open event, empty for this one, and the event's id."""
    own = {name for plan in record.plans() for name in PlanState.after(record.load_all(plan), {}).open}
    if event in own:
        return "", event
    team = load_team(database)
    others = [(plan[0], name) for plan in sorted(team.plans) for name in team.state(plan).open]
    host, _, name = event.rpartition("/")
    matches = [other for other in others if other[1] == name and host in ("", other[0])]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(
            f"{len(matches)} machines have an open change {event!r}",
            hint=f"name one: {', '.join('/'.join(match) for match in matches)}",
        )
    raise UserError(
        f"there is no open change {event!r}",
        hint=suggestion(event, {*own, *(other[1] for other in others)}) or "`lab nightly status` lists the open ones",
    )
