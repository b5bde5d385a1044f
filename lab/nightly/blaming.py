"""What a bisection says of an event, in the words of a night. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from lab.bisection.answer import Answer, Found
from lab.errors import LabError
from lab.nightly.night import Culprit, Event
from lab.verdict import Outcome


def culprit_of(answer: Answer) -> Culprit | None:
    """What a bisection named, for the worse; of several the one that did most."""
    worse = [one for one in answer.changes if one.direction != Outcome.IMPROVEMENT]
    if not answer.named or not worse:
        return None
    one = max(worse, key=_effect)
    return Culprit(
        commit=one.commit, title=one.title, author=one.author, among=len(one.among), outcome=answer.outcome,
        bisection=answer.result, proof=one.proof.result if one.proof else None,
    )  # fmt: skip


def _effect(one: Found) -> float:
    return abs(math.log(one.effect.ratio)) if one.effect and one.effect.ratio else 0.0


def nameless(event: Event, answer: Answer) -> Event:
    """An event whose bisection named nobody."""
    text = f"bisected in {answer.result}: {answer.outcome}, {answer.reason}"
    if event.kind == "step" and event.modes == ("live",) and answer.outcome == "no culprit":
        # Points of other nights were measured by a host that may have changed since; these two, side by side.
        return replace(event, kind="unfounded", text=f"{event.text}; side by side its two commits are alike: {text}")
    return replace(event, text=text)


def merged(events: Sequence[Event]) -> list[Event]:
    """Events of one culprit as one: a commit that slows two workloads down is one piece of news."""
    found: dict[str, Event] = {}
    for event in events:
        culprit = event.culprit
        key = f"{event.kind} {culprit.commit}" if culprit and culprit.among == 1 else event.id
        known = found.get(key)
        found[key] = replace(known, cases=[*known.cases, *event.cases]) if known else event
    return list(found.values())


def failed(error: LabError) -> str:
    """Why an event has no culprit."""
    return f"not bisected: {error.message}"
