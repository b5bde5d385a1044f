"""Where a bisection in live mode stands: its posterior, what it cost so far, and what is left."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lab.bisection.answer import FILE, Label, Open, Status
from lab.bisection.live_search import Visit
from lab.bisection.live_state import LiveState, certainty
from lab.bisection.live_summarize import likeness, suspicions
from lab.bisection.session import Session
from lab.stats.verdict import percent

_SHOWN = 5
_SURE = 0.95


def status(session: Session) -> Status:
    """What is known, what it cost, what is left and about how long that takes."""
    history, state = session.history, session.live
    step = state.next() if state else None
    known = state.search.status() if state else None
    inside = _inside(state) if state else []
    return Status(
        result=session.name,
        finished=(session.folder / FILE).is_file(),
        old=history.old.name,
        new=history.new.name,
        candidates=len(history.candidates),
        measured=sum(name not in state.skipped for name in inside) if state else 0,
        skipped=len(state.skipped) if state else 0,
        changes=[_open(state)] if state and state.search.differ() else [],
        next=history[history.number(state.name(step.boots[0]))].name if state and isinstance(step, Visit) else None,
        steps_left=math.ceil(known.bits_left) if known else (len(history.candidates) - 1).bit_length(),
        build_s=round(state.build_s, 1) if state else 0.0,
        run_s=round(state.run_s, 1) if state else 0.0,
        left_s=round(known.seconds_left, 0) if known and known.seconds_left is not None else None,
        posterior=suspicions(state) if state else [],
        bits_left=round(known.bits_left, 2) if known else None,
        boots=len(state.boots) if state else 0,
    )


def _inside(state: LiveState) -> list[str]:
    ends = (state.history.old.id, state.history.new.id)
    return [name for name in dict.fromkeys([*state.kernels, *state.skipped]) if name not in ends]


def _open(state: LiveState) -> Open:
    low, high, _ = state.search.status().gaps[0]
    first, last = (state.history[state.history.number(state.name(n))].name for n in (low + 1, high))
    return Open(candidates=high - low, first=first, last=last)


def text(session: Session) -> Iterator[str]:
    """The status in lines."""
    now, state = status(session), session.live
    yield f"{now.result}: {now.candidates} {session.history.kind} from {now.old} to {now.new}, in live mode"
    if state is None:
        yield "nothing has been booted yet"
        return
    yield from _ends(session, state)
    for label in labels(session):
        one = session.history[session.history.number(label.commit)]
        yield f'    {one.name}  {label.words}  "{one.title}"'
    yield from _places(state) if now.changes else ()
    if now.finished:
        yield f"finished: lab report {now.result}"
    elif now.next is None:
        yield f"nothing more to boot; {session.afterwards} is left: lab bisect resume {now.result}"
    else:
        left = f", about {now.left_s:.0f} s" if now.left_s is not None else ""
        yield f"next {now.next}; {now.bits_left:.1f} bits missing{left}: lab bisect resume {now.result}"
    yield f"so far: building {now.build_s:.0f} s, {now.boots} boots in {now.run_s:.0f} s"


def _ends(session: Session, state: LiveState) -> Iterator[str]:
    ends, (old, new) = state.search.ends, session.plan.words
    if ends.x:
        told = "" if state.search.differ() else ", not told apart yet" if state.search.differ() is None else ", alike"
        yield f"    ends: {new} against {old} {percent(math.exp(ends.moments.mean))}, {len(ends.x)} pairs{told}"


def _places(state: LiveState) -> Iterator[str]:
    for one in suspicions(state)[:_SHOWN]:
        up_to = state.history[state.history.number(one.up_to)].name
        among = f"{one.commits} commits up to {up_to}" if one.commits > 1 else up_to
        yield f"    {certainty(one.probability)} {among}"


def labels(session: Session) -> Iterator[Label]:
    """What git would be told of each commit: only what is as good as certain, the rest is skipped."""
    state = session.live
    if state is None:
        return
    for name in _inside(state):
        if name in state.skipped:
            reading = state.skipped[name]
            yield Label(name, "skip", f"cannot be tested ({reading.untestable}): {reading.why}")
            continue
        chance = state.chance(name)
        boots = len(state.values(name))
        word = "skip" if chance is None or 1 - _SURE < chance < _SURE else state.plan.words[int(chance > 0.5)]
        yield Label(name, word, f"{likeness(state, name)}, {boots} boot{'s' * (boots != 1)}")
