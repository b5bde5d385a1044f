"""A stored bisection: its plan, the range, and every reading so far.

<folder>/plan.json         the plan, resolved
<folder>/history.json      all candidates
<folder>/journal.jsonl     every reading, as soon as it was made
<folder>/commits/*/runs/   every guest of every commit
<folder>/ends/             the comparison of the ends that chose a case, if that was left open
<folder>/proof/*/          comparisons that confirm a culprit, each a result of its own
<folder>/difference.json   the differences, in a search among files or hunks
<folder>/mixes/*.patch     the patch that makes each mix of the new end, in such a search
<folder>/inside/*/         searches between the sources of two packages, each a bisection of its own
<folder>/result.json       the finished answer
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.bisection import answer
from lab.bisection.answer import FILE, Status
from lab.bisection.commit_range import Candidate, History
from lab.bisection.difference_search import DifferenceState
from lab.bisection.exact_state import ExactState
from lab.bisection.hunks import Difference
from lab.bisection.journal import Boot, Journal, Reading, Seeds, Undo, put_aside
from lab.bisection.plan import BisectPlan
from lab.bisection.search_state import Remaining, SearchState
from lab.compare import result_folders
from lab.compare.results import ResultEnvironment
from lab.core import records
from lab.core.errors import HostFailed, UserError
from lab.core.records import Record, now
from lab.stats.verdict import Metric

KIND = "bisect"
PLAN = "plan.json"
HISTORY = "history.json"
JOURNAL = "journal.jsonl"
DIFFERENCE = "difference.json"
CONDITIONS = "conditions.json"


class Conditions(Record, frozen=True, kw_only=True):
    """The metric and the environment of all readings of a session."""

    metric: Metric
    environment: ResultEnvironment | None = None


@dataclass
class Session:
    """A stored bisection. Reading it needs no kernels; searching on does."""

    folder: Path
    plan: BisectPlan
    history: History
    journal: Journal
    conditions: Conditions | None = None
    difference: Difference | None = None

    @property
    def state(self) -> SearchState | None:
        """The state of the search by the journal; None before both ends were measured, or anything was booted."""
        if self.conditions is None:
            return None
        if self.plan.is_live:
            # It imports numpy: only here, so that exact mode and every step of `git bisect run` start without.
            from lab.bisection.live_state import LiveState

            return LiveState(self.plan, self.history, self.conditions.metric, self.journal.kept)
        if self.journal.seeds is None:
            return None
        known, ends = self.journal.readings, [end.id for end in self.history.ends]
        if self.difference is not None:
            return DifferenceState(
                plan=self.plan,
                history=self.history,
                metric=self.conditions.metric,
                readings={name: known[name] for name in ends},
                mixes={name: reading for name, reading in known.items() if name not in ends},
                difference=self.difference,
            )
        names = {self.history.old.id, *(candidate.id for candidate in self.history.candidates)}
        readings = {name: reading for name, reading in known.items() if name in names}
        return ExactState(plan=self.plan, history=self.history, metric=self.conditions.metric, readings=readings)

    def remaining(self) -> Remaining:
        """An estimate of the remaining measurements; by the length of the range before there is a state."""
        state = self.state
        return state.remaining() if state else Remaining(None, steps=(len(self.history.candidates) - 1).bit_length())

    def settle_conditions(self, here: Conditions) -> None:
        """Keep the conditions of all readings; `HostFailed` if this machine's differ from the stored ones."""
        if self.conditions is None:
            records.save(self.folder / CONDITIONS, here)
            self.conditions = here
        before, now_ = self.conditions.environment, here.environment
        if not self.journal.events or before is None or now_ is None or before.fingerprint == now_.fingerprint:
            return
        raise HostFailed(
            f"this machine is not as it was when {self.name} was begun: QEMU {before.qemu} then, {now_.qemu} now; "
            f"fingerprint {before.fingerprint} then, {now_.fingerprint} now",
            hint=f"begin anew: {shlex.join(self.plan.command)}",
        )

    @property
    def afterwards(self) -> str:
        """The work that is left when the search is over, in words."""
        packages = self.history.kind == "packages" and self.plan.inside
        return "the proof, or the search inside," if packages else "the proof"

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return result_folders.reference(self.folder)


def create(folder: Path, plan: BisectPlan, history: History) -> Session:
    """Write a new session into a claimed, unused folder."""
    if (folder / PLAN).exists():
        raise UserError(f"{folder} already holds a result", hint=f"go on with it by `lab bisect resume {folder}`")
    records.save(folder / HISTORY, history)
    records.save(folder / PLAN, plan)
    return load(folder)


def load(folder: Path) -> Session:
    return Session(
        folder=folder,
        plan=records.load(folder / PLAN, BisectPlan),
        history=records.load(folder / HISTORY, History),
        journal=Journal(folder / JOURNAL),
        conditions=conditions(folder),
        difference=records.load(folder / DIFFERENCE, Difference) if (folder / DIFFERENCE).exists() else None,
    )


def conditions(folder: Path) -> Conditions | None:
    """The conditions of the readings in a folder; None before there are any."""
    path = folder / CONDITIONS
    return records.load(path, Conditions) if path.exists() else None


def find(reference: str) -> Session:
    """A session by its result's id, a unique beginning of one, `latest`, or path."""
    folder = _newest() if reference == "latest" else result_folders.open_folder(reference)
    result_folders.require_kind(folder, KIND)
    session = load(folder)
    _require_whole(session)
    return session


def _require_whole(session: Session) -> None:
    """Refuse a journal that lost readings of the finished answer: it would look as if nothing had been measured."""
    if not (session.folder / FILE).exists():
        return
    known = {event.commit for event in session.journal.events if not isinstance(event, Seeds)}
    lost = [step.commit for step in answer.load(session.folder).path if step.commit not in known]
    if lost:
        raise HostFailed(
            f"{session.journal.path} does not have the reading of {lost[0]}, which the answer has",
            hint=f"`lab report {session.name}` shows the answer",
        )


def _newest() -> Path:
    """The newest bisection, even if comparisons are newer."""
    plans = sorted(result_folders.results_dir().glob(f"*/{PLAN}"), key=lambda path: path.stat().st_mtime, reverse=True)
    folder = next((path.parent for path in plans if result_folders.kind(path.parent) == KIND), None)
    if folder is None:
        raise UserError("there is no bisection yet", hint="begin one with `lab bisect --good SPEC --bad SPEC`")
    return folder


def undo(session: Session) -> Candidate:
    """Take back the last reading that is not an end's, its runs too; in live mode the last boot. Returns the commit."""
    live, journal = session.plan.is_live, session.journal
    ends = [] if live else [end.id for end in session.history.ends]
    events = [e for e in journal.kept if isinstance(e, Boot | Reading) and e.commit not in ends]
    if not events:
        what = "boot to take back" if live else "reading to take back, but for its ends"
        raise UserError(f"{session.name} has no {what}")
    candidate = session.history.find(events[-1].commit)
    journal.append(Undo(commit=candidate.id, at=now()))
    if not live:
        put_aside(session.folder, candidate)
    (session.folder / "result.json").unlink(missing_ok=True)
    return candidate


# --- its status: for people, as a record, and as commands that rebuild it ---


def status(session: Session) -> Status:
    """The results so far, their cost, the rest and about how long it takes."""
    history, journal, state = session.history, session.journal, session.state
    remaining = session.remaining()
    readings = [state.reading(commit) for commit in state.tried] if state else []
    untestable = sum(bool(reading.untestable) for reading in readings)
    return Status(
        result=session.name,
        finished=(session.folder / FILE).exists(),
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
