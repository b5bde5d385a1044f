"""Changes that somebody knows of and lives with."""

from __future__ import annotations

from datetime import UTC, datetime

from lab.errors import UserError
from lab.nightly import night
from lab.nightly.memory import remember
from lab.nightly.night import Ack
from lab.suggest import suggestion


def acknowledge(event: str, note: str) -> None:
    """Remember that an open change is known. It is watched for its fix all the same."""
    opens = {found for plan in night.plans() for found in remember(night.load_all(plan), {}).open}
    if event not in opens:
        raise UserError(
            f"there is no open change {event!r}",
            hint=suggestion(event, opens) or "`lab nightly status` names those that there are",
        )
    at = datetime.now(UTC).isoformat(timespec="seconds")
    night.acknowledge(Ack(event=event, note=note or "no note", at=at))
