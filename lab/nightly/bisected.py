"""The bisections behind news: the text of each for its change's page, and a page of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab import report
from lab.compare import results
from lab.core.errors import LabError
from lab.core.text import visible
from lab.nightly.night import BranchNight, Event, Night
from lab.report import inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisected:
    """One bisection. page: as `lab report --format html` writes it; empty where it is gone."""

    name: str
    text: str
    page: str = ""


def by_event(nights: Sequence[Night]) -> dict[str, Bisected]:
    """The bisection of each event that has one; what several share, under each."""
    references = {
        event.id: reference
        for night in nights
        for branch in night.branches
        for event in branch.events
        if (reference := _reference(event, branch))
    }
    opened = {reference: _open(reference) for reference in sorted(set(references.values()))}
    return {event: opened[reference] for event, reference in references.items()}


def _reference(event: Event, branch: BranchNight) -> str | None:
    """The bisection that named the culprit, else the last one that was begun for the event."""
    if event.culprit is not None:
        return event.culprit.bisection
    begun = [reference for name, reference in branch.bisections.items() if name.split()[0] == event.id]
    return begun[-1] if begun else None


def _open(reference: str) -> Bisected:
    try:
        folder = results.open_folder(reference)
        found = inputs.open_bisection(folder)
        text = "\n".join(visible(line) for line in inputs.bisection_as_text(found).split("\n"))
        html = report.render("html", found, report.OF_BISECTIONS, "bisection")
    except LabError as error:
        return Bisected(name=reference, text=visible(f"the bisection is gone: {error.message}"))
    return Bisected(name=folder.name, text=text, page=html)
