"""Where a bisection stands: for people, as a record, and as commands that rebuild it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from lab.bisection import live_status
from lab.bisection.answer import FILE, Label, Open, Status
from lab.bisection.exact_state import State, describe
from lab.bisection.session import LIVE, Session


def status(session: Session) -> Status:
    """What is known, what it cost, what is left and about how long that takes."""
    if session.plan.mode == LIVE:
        return live_status.status(session)
    history, readings = session.history, session.journal.readings
    state = session.state if session.started else None
    inside = [r for name, r in readings.items() if name not in (history.old.id, history.new.id)]
    number = state.next() if state else None
    steps = state.steps_left if state and number is not None else 0
    spent = sum(r.build_s + r.run_s for r in inside)
    return Status(
        result=session.name,
        finished=(session.folder / FILE).is_file(),
        old=history.old.name,
        new=history.new.name,
        candidates=len(history.candidates),
        measured=sum(bool(r.values) for r in inside),
        skipped=sum(bool(r.untestable) for r in inside),
        changes=_open(state) if state else [],
        next=history[number].name if number is not None else None,
        steps_left=steps if state else (len(history.candidates) - 1).bit_length(),
        build_s=round(sum(r.build_s for r in readings.values()), 1),
        run_s=round(sum(r.run_s for r in readings.values()), 1),
        left_s=round(steps * spent / len(inside), 0) if inside else None,
    )


def _open(state: State) -> list[Open]:
    """Each change by what may have made it."""
    return [
        Open(
            candidates=len(change.among),
            first=state.history[change.among[0]].name,
            last=state.history[change.among[-1]].name,
        )
        for change in state.changes
    ]


def text(session: Session) -> Iterator[str]:
    """The status in lines."""
    if session.plan.mode == LIVE:
        yield from live_status.text(session)
        return
    now = status(session)
    yield f"{now.result}: {now.candidates} {session.history.kind} from {now.old} to {now.new}"
    if not session.started:
        yield "the ends have not been measured yet"
        return
    state = session.state
    for name in session.journal.readings:
        number = session.history.number(name)
        yield f'    {session.history[number].name}  {_describe(state, number, name)}  "{session.history[number].title}"'
    for one in now.changes:
        if one.candidates == 1:
            yield f"change at {one.last}"
        else:
            yield f"change among {one.candidates} {session.history.kind}, {one.first} to {one.last}"
    if now.finished:
        yield f"finished: lab report {now.result}"
    elif now.next is None:
        yield f"nothing more to measure; {session.afterwards} is left: lab bisect resume {now.result}"
    else:
        left = f", about {now.left_s:.0f} s" if now.left_s is not None else ""
        yield f"next {now.next}; about {now.steps_left} more to measure{left}: lab bisect resume {now.result}"
    yield f"so far: building {now.build_s:.0f} s, measuring {now.run_s:.0f} s"


def _describe(state: State, number: int, name: str) -> str:
    ends = {state.history.old.id: state.plan.words[0], state.history.new.id: state.plan.words[1]}
    return f"the {ends[name]} end" if name in ends else describe(state, number, state.readings[name])


def log(session: Session) -> Iterator[str]:
    """Commands that rebuild the session: the lab's own, and git's, for `git bisect replay`."""
    yield f"# {shlex.join(session.plan.command)}"
    history = session.history
    if history.kind != "commits":
        yield from (f"# {line}" for line in text(session))
        return
    old, new = session.plan.words
    terms = [] if (old, new) == ("good", "bad") else [f"--term-old={old}", f"--term-new={new}"]
    options = [*terms, *(["--first-parent"] if history.first_parent else [])]
    start = ["git", "bisect", "start", *options, history.new.id, history.old.id]
    yield f"# {new}: [{history.new.id}] {history.new.title}"
    yield f"# {old}: [{history.old.id}] {history.old.title}"
    yield shlex.join([*start, *(["--", *history.paths] if history.paths else [])])
    for label in live_status.labels(session) if session.plan.mode == LIVE else _labels(session):
        yield f"# {label.words}"
        yield f"# {label.word}: [{label.commit}] {history[history.number(label.commit)].title}"
        yield f"git bisect {label.word} {label.commit}"


def _labels(session: Session) -> Iterator[Label]:
    """What git is told of each commit."""
    if not session.started:
        return
    state = session.state
    for name, reading in state.readings.items():
        number = state.history.number(name)
        if name in (state.history.old.id, state.history.new.id):
            continue
        level = state.known.levels.get(number)
        told = level is not None and (level == 0 or (level == 1 and state.differ))
        yield Label(
            name, state.plan.words[level] if told and level is not None else "skip", describe(state, number, reading)
        )
