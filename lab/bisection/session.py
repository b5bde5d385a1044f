"""A bisection under way: its folder, its ends, one commit after another, until nothing more can be learned.

<folder>/plan.json         what was asked for, resolved
<folder>/history.json      all candidates
<folder>/journal.jsonl     every reading, as soon as it was made
<folder>/commits/*/runs/   every guest of every commit
<folder>/proof/*/          comparisons that confirm what was found, each a result of its own
<folder>/result.json       the finished answer
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from lab import builds, records, results
from lab.bisection import search
from lab.bisection.history import Candidate, History
from lab.bisection.journal import Journal, Reading, Seeds, Undone
from lab.bisection.measuring import Measurer, now, put_aside
from lab.bisection.plan import FIRST_SEED, BisectPlan
from lab.bisection.search import OLD
from lab.bisection.speculation import Speculation
from lab.bisection.state import PANICS, State
from lab.errors import GuestFailed, HostFailed, Undecided, UserError
from lab.progress import Meter
from lab.records import Record
from lab.results import ResultEnvironment
from lab.verdict import Metric, Outcome, percent

KIND = "bisect"
PLAN = "plan.json"
HISTORY = "history.json"
JOURNAL = "journal.jsonl"
_CONDITIONS = "conditions.json"
_FIRST_LOOK = 3
_SECOND_LOOK = 6
_MORE = 2


class Conditions(Record, frozen=True, kw_only=True):
    """What all readings of a session share."""

    metric: Metric
    environment: ResultEnvironment


@dataclass
class Session:
    """A stored bisection. Reading it needs no kernels; `run` does."""

    folder: Path
    plan: BisectPlan
    history: History
    journal: Journal
    conditions: Conditions | None = None

    @property
    def started(self) -> bool:
        """Whether both ends have been measured."""
        return self.conditions is not None and self.journal.seeds is not None

    @property
    def state(self) -> State:
        """What is known now; only once both ends were measured."""
        assert self.conditions is not None  # noqa: S101  (`started` says so)
        names = {self.history.old.id, *(one.id for one in self.history.candidates)}
        readings = {name: reading for name, reading in self.journal.readings.items() if name in names}
        return State(plan=self.plan, history=self.history, metric=self.conditions.metric, readings=readings)

    @property
    def name(self) -> str:
        """What names it on the command line."""
        return results.reference(self.folder)


def create(folder: Path, plan: BisectPlan, history: History) -> Session:
    """Write a new session into a claimed, unused folder."""
    if (folder / PLAN).exists():
        raise UserError(f"{folder} already holds a result", hint=f"go on with it by `lab bisect resume {folder}`")
    records.save(folder / HISTORY, history)
    records.save(folder / PLAN, plan)
    return load(folder)


def load(folder: Path) -> Session:
    """A stored session."""
    return Session(
        folder=folder,
        plan=records.load(folder / PLAN, BisectPlan),
        history=records.load(folder / HISTORY, History),
        journal=Journal(folder / JOURNAL),
        conditions=conditions(folder),
    )


def conditions(folder: Path) -> Conditions | None:
    """What the readings in a folder share; None before there are any."""
    path = folder / _CONDITIONS
    return records.load(path, Conditions) if path.exists() else None


def find(reference: str) -> Session:
    """A session by its result's id, a unique beginning of one, `latest`, or path."""
    folder = _newest() if reference == "latest" else results.open_folder(reference)
    results.require_kind(folder, KIND)
    return load(folder)


def _newest() -> Path:
    """The newest bisection, whatever was compared since."""
    plans = sorted(results.results_dir().glob(f"*/{PLAN}"), key=lambda path: path.stat().st_mtime, reverse=True)
    found = next((path.parent for path in plans if results.kind(path.parent) == KIND), None)
    if found is None:
        raise UserError("there is no bisection yet", hint="begin one with `lab bisect --good SPEC --bad SPEC`")
    return found


def undo(session: Session) -> Candidate:
    """Take the last reading back, its runs too; gives the commit."""
    ends = {session.history.old.id, session.history.new.id}
    inside = [name for name in session.journal.readings if name not in ends]
    if not inside:
        raise UserError(f"{session.name} has no reading to take back, but for its ends")
    one = session.history[session.history.number(inside[-1])]
    session.journal.append(Undone(commit=one.id, at=now()))
    put_aside(session.folder, one)
    (session.folder / "result.json").unlink(missing_ok=True)
    return one


def _require_same(session: Session, here: Conditions) -> None:
    """Numbers of different guests are not to be compared."""
    if session.conditions is None or not session.journal.readings:
        return
    before, now_ = session.conditions.environment, here.environment
    if before.fingerprint != now_.fingerprint:
        raise HostFailed(
            f"this machine is not as it was when {session.name} was begun: QEMU {before.qemu} then, {now_.qemu} now; "
            f"fingerprint {before.fingerprint} then, {now_.fingerprint} now",
            hint=f"begin anew: {shlex.join(session.plan.command)}",
        )


@dataclass
class Search:
    """The work itself: measures until the state asks for nothing more, or time is up."""

    session: Session
    jobs: int
    meter: Meter
    deadline: float | None = None
    out_of_time: bool = field(default=False, init=False)

    @cached_property
    def measurer(self) -> Measurer:
        """Kernels of both ends, and the guest around all of them, at hand."""
        session = self.session
        made = Measurer(session.plan, session.history, session.folder, jobs=self.jobs, meter=self.meter)
        here = Conditions(metric=made.metric, environment=made.environment)
        _require_same(session, here)
        if session.conditions is None:
            records.save(session.folder / _CONDITIONS, here)
            session.conditions = here
        return made

    def run(self) -> State:
        """Go on from whatever the journal says."""
        session = self.session
        if not session.started:
            self._measure_ends()
        self._say_ends()
        try:
            while (number := session.state.next()) is not None and not self._over():
                self._step(number)
        finally:
            self._speculation.settle(None)
        return session.state

    def single(self, one: Candidate) -> Reading:
        """The reading of one commit, from the journal or measured; the ends are measured first, and must differ."""
        session = self.session
        if not session.started:
            self._measure_ends()
        if not session.state.differ:
            ends = session.state.ends
            raise Undecided(
                f"no culprit: the ends are alike ({percent(ends.ratio if ends else None)}), so no commit can be told",
                hint="choose other ends, another case, or a smaller --threshold",
            )
        if (known := session.journal.readings.get(one.id)) is not None:
            return known
        reading = self._read(one)
        # A machine that was too busy just then must not condemn the commit for good.
        if reading.untestable != "hang":
            session.journal.append(reading)
        return reading

    def _over(self) -> bool:
        self.out_of_time = self.deadline is not None and time.monotonic() > self.deadline
        return self.out_of_time

    def _step(self, number: int) -> None:
        session, state = self.session, self.session.state
        one = session.history[number]
        ahead = search.after(session.history.graph(), state.known, number)
        self._speculation.settle(number)
        reading = self._read(one, lambda: self._speculation.build(ahead) if self._cores_to_spare else None)
        session.journal.append(reading)
        self._say(number, reading)

    def _read(self, one: Candidate, built: Callable[[], object] = lambda: None) -> Reading:
        """A reading with few seeds where they place the commit on a level that is known, else with all."""
        session = self.session
        seeds, known = session.journal.seeds or [], list(session.journal.readings.values())
        reading = self.measurer.measure(one, seeds[:_FIRST_LOOK], known, built=built)
        if reading.untestable or len(reading.values) == len(seeds) or self._placed(one, reading):
            return reading
        return self.measurer.measure(one, seeds, known)

    def _placed(self, one: Candidate, reading: Reading) -> bool:
        before = self.session.state
        after = replace(before, readings={**before.readings, one.id: reading})
        level = after.known.levels.get(self.session.history.number(one.id))
        return level is not None and level in before.known.effects

    @cached_property
    def _speculation(self) -> Speculation:
        measurer, history = self.measurer, self.session.history
        quiet = Meter(quiet=True)
        return Speculation(
            lambda number: measurer.obtain(history.resolve(number), quiet),
            lambda: builds.interrupt(history.tree) if history.tree else None,
        )

    @property
    def _cores_to_spare(self) -> bool:
        return self.session.plan.speculate and self.jobs > len(self.session.journal.seeds or [])

    # ---- the ends

    def _measure_ends(self) -> None:
        """With as many seeds as it takes to tell them apart, or to see that they are alike."""
        session = self.session
        old, new = session.history.old, session.history.new
        seeds: list[int] = []
        readings: dict[str, Reading] = {}
        for count in self._looks():
            seeds = list(range(FIRST_SEED, FIRST_SEED + count))
            for one, word in ((old, session.plan.words[0]), (new, session.plan.words[1])):
                readings[one.id] = self._end(one, word, seeds)
            metric = self.measurer.metric
            ends = State(plan=session.plan, history=session.history, metric=metric, readings=readings).ends
            if ends is None or ends.verdict != Outcome.UNKNOWN or self._over():
                break
        for reading in readings.values():
            session.journal.append(reading)
        session.journal.append(Seeds(seeds=seeds))

    def _looks(self) -> Iterator[int]:
        plan = self.session.plan
        if plan.seeds is not None:
            yield plan.seeds
            return
        yield _FIRST_LOOK
        yield from range(_SECOND_LOOK, plan.max_seeds + 1, _MORE)

    def _end(self, one: Candidate, word: str, seeds: list[int]) -> Reading:
        reading = self.measurer.measure(one, seeds)
        hunted = self.session.plan.panics == "bad" and word == self.session.plan.words[1]
        if reading.untestable and not (hunted and reading.untestable in PANICS):
            raise GuestFailed(
                reading.untestable,
                f"the {word} end cannot be measured, so nothing can be compared with it: {reading.why}",
                hint="choose another end",
                log=Path(reading.log) if reading.log else None,
            )
        return reading

    # ---- what is said on the way

    def _say_ends(self) -> None:
        state = self.session.state
        old, new = state.plan.words
        seeds = len(self.session.journal.seeds or [])
        if state.ends is None:
            self.meter.say(f"ends: {new} panics, {old} does not")
        else:
            self.meter.say(
                f"ends: {new} against {old} {percent(state.ends.ratio)} ({state.metric.name}, {seeds} seeds): "
                f"{state.ends.verdict}"
            )
        if not state.differ and state.next() is not None:
            self.meter.say(f"the ends are alike; measuring up to {state.plan.probes} commits between them")

    def _say(self, number: int, reading: Reading) -> None:
        state = self.session.state
        one = self.session.history[number]
        self.meter.say(
            f'{one.name} ("{one.title}"): {describe(state, number, reading)}; about {state.steps_left} more to measure'
        )


def describe(state: State, number: int, reading: Reading) -> str:
    """A reading in a few words."""
    if reading.untestable:
        return f"cannot be tested ({reading.untestable}): {reading.why}"
    words = state.likeness(number)
    if number in state.unclear:
        words += f", {state.unclear[number]}"
    old = state.readings[state.history.old.id]
    ratio = percent(state.compare(old, reading).ratio) if old.values and number != OLD else ""
    return f"{words} ({ratio}{', same kernel as ' + reading.same_as[:12] if reading.same_as else ''})"
