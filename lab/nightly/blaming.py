"""What a bisection says of an event, in the words of a night. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from lab.bisection.answer import Answer, Found
from lab.core.errors import LabError
from lab.nightly.night import Culprit, Event
from lab.stats.verdict import Outcome, percent

_MOST_SHARES = 5


def culprit_of(answer: Answer) -> Culprit | None:
    """What a bisection named, for the worse; of several the one that did most."""
    worse = [one for one in answer.changes if one.direction != Outcome.IMPROVEMENT]
    if not answer.named or not worse:
        return None
    return _culprit(max(worse, key=_effect), answer)


def _culprit(one: Found, answer: Answer) -> Culprit:
    return Culprit(
        commit=one.commit, title=one.title, author=one.author, among=len(one.among), outcome=answer.outcome,
        bisection=answer.result, proof=one.proof.result if one.proof else None, ratio=_ratio(one),
    )  # fmt: skip


def _ratio(one: Found) -> float | None:
    """What a change did: by fresh numbers, where there are some."""
    fresh = one.proof.fresh if one.proof else None
    measured = fresh or one.effect
    return measured.ratio if measured else None


def _effect(one: Found) -> float:
    ratio = _ratio(one)
    return abs(math.log(ratio)) if ratio else 0.0


def crept(event: Event, answer: Answer, known: Mapping[str, Event], least: float) -> Event:
    """A creep with all that had a part in it; that may be nobody, or many, of which some were told of before.

    known: commits and the events that told of them. least: smaller parts were not looked for.
    """
    worse = sorted((one for one in answer.changes if one.direction != Outcome.IMPROVEMENT), key=_effect, reverse=True)
    if not worse:
        return nameless(event, answer)
    named = [_culprit(one, answer) for one in worse if one.settled and one.commit not in known and answer.named]
    shares = ", ".join(_share(one, known) for one in worse[:_MOST_SHARES])
    if len(worse) > _MOST_SHARES:
        shares += f" and {len(worse) - _MOST_SHARES} more"
    whole = percent(answer.ends.ratio if answer.ends else None)
    rest = "" if answer.named else f" ({answer.reason})"
    text = f"bisected in {answer.result}: of {whole}, {shares}{rest}; parts below {100 * least:g} % were not looked for"
    return replace(event, culprit=named[0] if named else None, also=named[1:], text=text)


def _share(one: Found, known: Mapping[str, Event]) -> str:
    told = f", told of as {known[one.commit].id}" if one.settled and one.commit in known else ""
    where = f"by {one.commit[:12]}{told}" if one.settled else f"among {len(one.among)} commits up to {one.commit[:12]}"
    return f"{percent(_ratio(one))} {where}"


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
