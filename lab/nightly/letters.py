"""A draft of a mail for each regression, from the comparison that proves its culprit, else from the night's own."""

from __future__ import annotations

from lab.core.errors import LabError
from lab.nightly.night import Event
from lab.report import inputs, mail


def draft(event: Event) -> str | None:
    """The mail; None where no stored comparison can speak for the event."""
    if event.kind not in ("regression", "creep"):
        return None
    proof = event.culprit.proof if event.culprit else None
    for reference in (proof, event.result):
        if reference is None:
            continue
        try:
            return mail.render(inputs.open_reports([reference]))
        except LabError:
            continue
    return None
