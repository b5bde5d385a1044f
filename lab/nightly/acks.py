"""Changes that somebody knows of and lives with, on whichever machine they were found."""

from __future__ import annotations

from datetime import UTC, datetime

from lab.core.errors import UserError, suggestion
from lab.core.progress import Meter
from lab.nightly import night, sharing
from lab.nightly.memory import remember
from lab.nightly.night import Ack


def acknowledge(event: str, note: str, database: str | None, meter: Meter) -> None:
    """Remember that an open change is known. It is watched for its fix all the same.

    event: one of this machine's, else of another one's that uses the same database: its id, with `HOST/` before it
    where several machines have it.
    """
    host, name = _find(event, database)
    at = datetime.now(UTC).isoformat(timespec="microseconds")
    night.acknowledge(Ack(event=name, note=note or "no note", at=at, host=host))
    sharing.publish(database, meter)


def _find(event: str, database: str | None) -> tuple[str, str]:
    """The machine, empty for this one, and the event's id."""
    opens = {found for plan in night.plans() for found in remember(night.load_all(plan), {}).open}
    if event in opens:
        return "", event
    team = sharing.team(database)
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
