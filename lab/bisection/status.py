"""The status of a bisection: for people, as a record, and as commands that rebuild it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from lab.bisection.answer import FILE, Status
from lab.bisection.session import Session


def status(session: Session) -> Status:
    """The results so far, what they cost, what is left and about how long that takes."""
    history, journal, state = session.history, session.journal, session.state
    remaining = session.remaining()
    readings = [state.reading(commit) for commit in state.tried] if state else []
    untestable = sum(bool(reading.untestable) for reading in readings)
    return Status(
        result=session.name,
        finished=(session.folder / FILE).is_file(),
        old=history.old.name,
        new=history.new.name,
        candidates=len(history.candidates),
        measured=len(readings) - untestable,
        skipped=untestable,
        changes=state.open_changes() if state else [],
        next=remaining.next.name if remaining.next else None,
        steps_left=remaining.steps,
        build_s=round(journal.build_s, 1),
        run_s=round(journal.run_s, 1),
        left_s=round(remaining.seconds, 0) if remaining.seconds is not None else None,
        posterior=state.suspicions() if state else [],
        bits_left=round(remaining.bits, 2) if remaining.bits is not None else None,
        boots=len(journal.boots) if session.plan.is_live else None,
    )


def text(session: Session) -> Iterator[str]:
    """The status in lines."""
    now, history, state, live = status(session), session.history, session.state, session.plan.is_live
    yield f"{now.result}: {now.candidates} {history.kind} from {now.old} to {now.new}{', in live mode' if live else ''}"
    if state is None:
        yield "nothing has been booted yet" if live else "the ends have not been measured yet"
        return
    yield from (f"    {line}" for line in state.describe_ends())
    for commit in state.tried:
        candidate = history.find(commit)
        yield f'    {candidate.name}  {state.describe(commit)}  "{candidate.title}"'
    yield from state.describe_changes()
    left = f", about {now.left_s:.0f} s" if now.left_s is not None else ""
    if now.finished:
        yield f"finished: lab report {now.result}"
    elif now.next is None:
        verb = "boot" if live else "measure"
        yield f"nothing more to {verb}; {session.afterwards} is left: lab bisect resume {now.result}"
    elif now.bits_left is not None:
        yield f"next {now.next}; {now.bits_left:.1f} bits missing{left}: lab bisect resume {now.result}"
    else:
        yield f"next {now.next}; about {now.steps_left} more to measure{left}: lab bisect resume {now.result}"
    measuring = f"{now.boots} boots in" if live else "measuring"
    yield f"so far: building {now.build_s:.0f} s, {measuring} {now.run_s:.0f} s"


def log(session: Session) -> Iterator[str]:
    """Commands that rebuild the session: the lab's own, and git's, for `git bisect replay`."""
    yield f"# {shlex.join(session.plan.command)}"
    history = session.history
    if history.kind != "commits":
        yield from (f"# {line}" for line in text(session))
        return
    old, new = session.plan.terms
    terms = [] if (old, new) == ("good", "bad") else [f"--term-old={old}", f"--term-new={new}"]
    options = [*terms, *(["--first-parent"] if history.first_parent else [])]
    start = ["git", "bisect", "start", *options, history.new.id, history.old.id]
    yield f"# {new}: [{history.new.id}] {history.new.title}"
    yield f"# {old}: [{history.old.id}] {history.old.title}"
    yield shlex.join([*start, *(["--", *history.paths] if history.paths else [])])
    if (state := session.state) is None:
        return
    for commit in state.tried:
        yield f"# {state.describe(commit)}"
        yield f"# {state.term(commit)}: [{commit}] {history.find(commit).title}"
        yield f"git bisect {state.term(commit)} {commit}"
