"""Measuring one commit: its kernel, its guests, its numbers; or the way in which it cannot be tested.

What is the commit's own doing (it does not build, boot or survive the workload) makes it untestable. What is this
machine's doing never says anything about a commit: it is tried once more, then the search stops.

A bisection under way: one commit after another, until nothing more can be learned, or time is up.

Measuring both ends of a range first, with as many seeds as it takes to tell them apart, or to see they are alike.

Building ahead: while a commit is measured, the kernels of both commits that may be next.

It runs at the lowest priority, so it takes the cores that guests leave idle: those of the last guests of a commit are
some on any machine. Exact mode's numbers do not depend on the load. A build for the outcome that did not come is
stopped as Ctrl-C stops it, so make removes what is half done and the build folder stays good.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from msgspec.structs import replace

from lab.bisection import exact_search
from lab.bisection.commit_range import Candidate, History
from lab.bisection.exact_state import PANICS, ExactState
from lab.bisection.journal import Reading, Seeds, place_of
from lab.bisection.plan import FIRST_SEED, BisectPlan
from lab.bisection.session import PLAN, Conditions, Session
from lab.compare import exact, results, sampling
from lab.compare.results import AbResult
from lab.compare.sampling import Series
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, GuestFailure, HostFailed, LabError, Undecided, UserError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.core.records import now
from lab.guests.run import Arm
from lab.kernels import build
from lab.kernels.kernel import Kernel, KernelSpec, MachineType
from lab.stats.defaults import FIRST_LOOK_SEEDS, MORE_SEEDS, SEEDS
from lab.stats.verdict import Metric, Outcome, distance, percent
from lab.workloads import selection


class OutOfTime(Exception):
    """Not an error: guests of a commit are still to be run, and no time is left. Those that did run are on disk."""


class Measurer:
    """Measures the kernels of one session, all in the same guest. Its files are below the session's folder."""

    def __init__(self, plan: BisectPlan, history: History, folder: Path, work: Work) -> None:
        self.plan, self.history, self.folder, self.work = plan, history, folder, work
        self._resolving = threading.Lock()
        ready = exact.prepare(plan.comparison(plan.old, plan.new), folder, work)
        (self._series,) = ready.series
        self.environment = ready.environment
        self.bench = self._series.bench
        self.machine: MachineType = self.bench.machine
        self.metric = chosen_metric(_metrics(self._series), plan.metric)

    def obtain(self, spec: KernelSpec, work: Work | None = None) -> Kernel:
        """The kernel of a spec, built if need be."""
        return spec.obtain(work or self.work, cc=self.plan.new.cc)

    def measure(
        self,
        one: Candidate,
        seeds: Sequence[int],
        known: Sequence[Reading] = (),
        *,
        built: Callable[[], object] = lambda: None,
    ) -> Reading:
        """A reading of one commit.

        known: earlier ones, whose numbers are taken where the kernel's image is theirs. built: told when the
        commit's own kernel is there and its guests begin. Raises `OutOfTime` when not all of them could be run.
        """
        for attempt in (1, 2):
            try:
                return self._measure(one, seeds, known, built)
            except (HostFailed, GuestFailed) as error:
                if attempt == 2:
                    raise
                self.work.progress.log(f"{error.message}; trying once more")
        raise AssertionError("unreachable")

    def _measure(
        self, one: Candidate, seeds: Sequence[int], known: Sequence[Reading], built_now: Callable[[], object]
    ) -> Reading:
        started = time.monotonic()
        try:
            with self._resolving:
                spec = self.history.resolve(self.history.number(one.id), progress=self.work.progress)
            kernel = self.obtain(spec)
            image = identity(kernel, self.machine)
        except (BuildFailed, UserError, ValueError) as error:
            return self._untestable(one, GuestFailure.BUILD, error, build_s=time.monotonic() - started)
        built = time.monotonic()
        reading = Reading(
            commit=one.id,
            release=kernel.release,
            kernel=kernel.key,
            image=image,
            build_s=round(built - started, 3),
            at=now(),
        )
        twin = next((r for r in known if r.image == image and r.values), None)
        if twin is not None:
            return replace(reading, values=twin.values, same_as=twin.commit)
        built_now()
        try:
            values = self.run(one, kernel, seeds)
        except GuestFailed as error:
            if error.kind.blames == "host":
                raise
            return self._untestable(one, error.kind, error, build_s=reading.build_s, image=image, kernel=kernel.key)
        return replace(reading, values=values, run_s=round(time.monotonic() - built, 3))

    def run(self, one: Candidate, kernel: Kernel, seeds: Sequence[int]) -> list[float]:
        """The metric of a commit for each seed; guests that were recorded before are not run again."""
        series = self.series(one)
        arm = Arm(name="commit", kernel=kernel, settings=dict(kernel.spec.settings))
        with self.work.progress.task(f"measuring {one.name}", 0) as task:
            sampling.run_all([(series, arm, seed, series.cases) for seed in seeds], self.work, task)
        case = series.cases[0]
        done = [series.run("commit", seed, case) for seed in seeds]
        if not all(done):
            raise OutOfTime
        found = [run.metrics(case.name).get(self.metric.name) for run in done if run]
        if any(value is None for value in found):
            raise GuestFailed(GuestFailure.WORKLOAD, f"{one.name}: the workload did not report {self.metric.name}")
        return [value for value in found if value is not None]

    def series(self, one: Candidate) -> Series:
        """Where the runs of one commit are kept."""
        folder = place_of(self.folder, one)
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        bench = dataclasses.replace(self._series.bench, folder=folder)
        return dataclasses.replace(self._series, bench=bench, done={})

    def _untestable(
        self,
        one: Candidate,
        how: GuestFailure,
        error: LabError | ValueError,
        *,
        build_s: float,
        image: str = "",
        kernel: str = "",
    ) -> Reading:
        words = error.message if isinstance(error, LabError) else str(error)
        log = str(error.log) if isinstance(error, LabError) and error.log else None
        return Reading(
            commit=one.id, untestable=how, why=words, log=log, build_s=round(build_s, 3), image=image, kernel=kernel,
            at=now(),
        )  # fmt: skip


def identity(kernel: Kernel, machine: MachineType) -> str:
    """What is booted, and what is set in it: equal ones give equal numbers."""
    return records.digest([records.file_digest(kernel.image(machine)), sorted(kernel.spec.settings)])


def _metrics(series: Series) -> list[Metric]:
    own = series.metrics(series.cases[0])
    return exact.metrics_of(own, modelled=series.bench.instrument is not None)


def chosen_metric(known: Sequence[Metric], name: str | None) -> Metric:
    """The metric that decides: the primary one, or the one named."""
    for metric in known:
        if metric.name == name or (name is None and metric.primary):
            return metric
    raise UserError(f"there is no metric {name!r} here", hint=f"there is {', '.join(metric.name for metric in known)}")


def measure(session: Session, measurer: Measurer) -> None:
    """Put both ends and the seeds of all commits into the journal."""
    plan, history = session.plan, session.history
    seeds: list[int] = []
    readings: dict[str, Reading] = {}
    for count in _looks(plan):
        seeds = list(range(FIRST_SEED, FIRST_SEED + count))
        ends_and_words = list(zip((history.old, history.new), plan.terms, strict=True))
        measured = measurer.work.map(partial(_end, plan, measurer, seeds), ends_and_words)
        readings = {reading.commit: reading for reading in measured}
        ends = ExactState(plan=plan, history=history, metric=measurer.metric, readings=readings).ends
        if ends is None or ends.verdict != Outcome.UNKNOWN:
            break
    for reading in readings.values():
        session.journal.append(reading)
    session.journal.append(Seeds(seeds=seeds))


def _looks(plan: BisectPlan) -> Iterator[int]:
    if plan.seeds is not None:
        yield plan.seeds
        return
    yield FIRST_LOOK_SEEDS
    yield from range(SEEDS, plan.max_seeds + 1, MORE_SEEDS)


def _end(plan: BisectPlan, measurer: Measurer, seeds: list[int], end: tuple[Candidate, str]) -> Reading:
    one, word = end
    reading = measurer.measure(one, seeds)
    hunted = plan.panics == "bad" and word == plan.terms[1]
    if reading.untestable and not (hunted and reading.untestable in PANICS):
        raise GuestFailed(
            GuestFailure(reading.untestable),
            f"the {word} end cannot be measured, so nothing can be compared with it: {reading.why}",
            hint="choose another end",
            log=Path(reading.log) if reading.log else None,
        )
    return reading


_PATIENCE_S = 0.1
_HURRY_EVERY_S = 1.0
_LOWEST_PRIORITY = 19


class Speculation:
    """One builder in the background. Its failures are not told: the kernel is asked for again when it is its turn.

    obtain: builds a candidate by its number. interrupt: stops a build of this process, if one is going on. hurry: gives
    one the caller's priority.
    """

    def __init__(
        self, obtain: Callable[[int], object], interrupt: Callable[[], None], hurry: Callable[[], None]
    ) -> None:
        self._obtain, self._interrupt, self._hurry = obtain, interrupt, hurry
        self._thread: threading.Thread | None = None
        self._building: int | None = None
        self._cancelled = threading.Event()

    def build(self, ahead: Sequence[int]) -> None:
        """Build these, one after the other, until told otherwise."""
        self.settle(None)
        self._cancelled.clear()
        self._thread = threading.Thread(target=self._work, args=(ahead,), daemon=True)
        self._thread.start()

    def settle(self, wanted: int | None) -> None:
        """Leave the compilers to the caller: what it wants itself is finished, anything else is stopped."""
        self._cancelled.set()
        while self._thread is not None and self._thread.is_alive():
            if wanted is None or self._building != wanted:
                self._interrupt()
                self._thread.join(timeout=_PATIENCE_S)
            else:
                # Now it is what the search waits for: on a busy machine the lowest priority would get nothing.
                self._hurry()
                self._thread.join(timeout=_HURRY_EVERY_S)
        self._thread = None

    def _work(self, ahead: Sequence[int]) -> None:
        # On Linux a priority is one thread's: this one's, and make's and all compilers', which inherit it.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
        for number in ahead:
            if self._cancelled.is_set():
                return
            self._building = number
            with suppress(LabError, ValueError, KeyboardInterrupt):
                self._obtain(number)
            self._building = None


@dataclass
class ExactRunner:
    """The work itself: measures until the state asks for nothing more, or time is up."""

    session: Session
    work: Work
    out_of_time: bool = field(default=False, init=False)

    @cached_property
    def measurer(self) -> Measurer:
        """Kernels of both ends, and the guest around all of them, at hand."""
        session = self.session
        made = Measurer(session.plan, session.history, session.folder, self.work)
        session.settle_conditions(Conditions(metric=made.metric, environment=made.environment))
        return made

    @property
    def state(self) -> ExactState:
        """The state of the search; only once both ends were measured."""
        state = self.session.state
        assert isinstance(state, ExactState)  # noqa: S101
        return state

    def run(self) -> None:
        """Go on from whatever the journal says."""
        session = self.session
        try:
            if session.state is None:
                measure(session, self.measurer)
            self._say_ends()
            while numbers := self.state.choose(self._width):
                self._step(numbers[0]) if len(numbers) == 1 else self._round(numbers)
        except OutOfTime:
            if session.state is None:
                raise _too_short(session, "both ends were measured") from None
            self.out_of_time = True
        finally:
            self._settle(None)

    def single(self, one: Candidate) -> Reading:
        """The reading of one commit, from the journal or measured; the ends are measured first, and must differ."""
        session = self.session
        if session.state is None:
            measure(session, self.measurer)
        if not self.state.differ:
            alike = self.state.ends
            raise Undecided(
                f"no culprit: the ends are alike ({percent(alike.ratio if alike else None)}), so no commit can be told",
                hint="choose other ends, another case, or a smaller --threshold",
            )
        if (known := session.journal.readings.get(one.id)) is not None:
            return known
        reading = self._read(one, self.state)
        # A machine that was too busy just then must not condemn the commit for good.
        if reading.untestable != GuestFailure.HANG:
            session.journal.append(reading)
        return reading

    def _step(self, number: int) -> None:
        session, state = self.session, self.state
        one = session.history[number]
        if self.work.out_of_time:
            raise OutOfTime
        self._settle(number)
        reading = self._read(one, state, lambda: self._build_ahead(state, number))
        session.journal.append(reading)
        self._say(number)

    @cached_property
    def _width(self) -> int:
        """How many commits are measured at once: one here, else one for each machine."""
        executor = self.work.executor
        return max(1, executor.machines(self.measurer.bench)) if executor else 1

    def _round(self, numbers: Sequence[int]) -> None:
        """Several commits at once. They are judged by what was known before, so it is no matter which ends first."""
        session, state = self.session, self.state
        if self.work.out_of_time:
            raise OutOfTime
        names = ", ".join(session.history[number].name for number in numbers)
        self.work.progress.log(f"{len(numbers)} commits at once: {names}")
        for number, reading in zip(
            numbers, self.work.map(lambda number: self._read(session.history[number], state), numbers), strict=True
        ):
            session.journal.append(reading)
            self._say(number)

    def _read(self, one: Candidate, before: ExactState, built: Callable[[], object] = lambda: None) -> Reading:
        """A reading with few seeds where they place the commit on a level that is known, else with all."""
        seeds, known = self.session.journal.seeds or [], list(before.readings.values())
        reading = self.measurer.measure(one, seeds[:FIRST_LOOK_SEEDS], known, built=built)
        if reading.untestable or len(reading.values) == len(seeds) or self._placed(one, before, reading):
            return reading
        return self.measurer.measure(one, seeds, known)

    def _placed(self, one: Candidate, before: ExactState, reading: Reading) -> bool:
        after = dataclasses.replace(before, readings={**before.readings, one.id: reading})
        level = after.known.levels.get(self.session.history.number(one.id))
        return level is not None and level in before.known.effects

    def _say(self, number: int) -> None:
        state, one = self.state, self.session.history[number]
        self.work.progress.log(
            f'{one.name} ("{one.title}"): {state.describe(one.id)}; about {state.steps_left} more to measure'
        )

    def _say_ends(self) -> None:
        """What the ends are like, and what follows from that."""
        state, (old, new) = self.state, self.session.plan.terms
        seeds = len(self.session.journal.seeds or [])
        if state.ends is None:
            self.work.progress.log(f"ends: {new} panics, {old} does not")
        else:
            self.work.progress.log(
                f"ends: {new} against {old} {percent(state.ends.ratio)} ({state.metric.name}, {seeds} seeds): "
                f"{state.ends.verdict}"
            )
        if not state.differ and state.next() is not None:
            self.work.progress.log(f"the ends are alike; measuring up to {state.plan.probes} commits between them")

    # ---- building ahead

    @cached_property
    def _speculation(self) -> Speculation | None:
        """None where it would disturb (live mode), or where there is no make here that could be stopped."""
        plan, history, source = self.session.plan, self.session.history, self.session.plan.new.spec.tree_source
        if not plan.speculate or plan.mode != "exact" or source is None or self.work.executor:
            return None
        quiet, tree = dataclasses.replace(self.work, progress=Progress(quiet=True)), source.tree
        return Speculation(
            lambda number: self.measurer.obtain(history.resolve(number), quiet),
            lambda: build.cancel(tree),
            lambda: build.raise_priority(tree),
        )

    def _build_ahead(self, state: ExactState, number: int) -> None:
        """Begin with the kernels of what may come after a commit whose guests start now."""
        if self._speculation is not None:
            self._speculation.build(exact_search.after(state.history.graph(), state.known, number))

    def _settle(self, wanted: int | None) -> None:
        if self._speculation is not None:
            self._speculation.settle(wanted)


def start(session: Session, work: Work) -> ExactRunner:
    """Say what will be done, and choose the case where that is open."""
    history, plan = session.history, session.plan
    state = session.state
    steps = state.steps_left if isinstance(state, ExactState) else (len(history.candidates) - 1).bit_length()
    seeds = len(session.journal.seeds or []) or plan.seeds or 3
    known = len(session.journal.readings)
    ends = "" if known else ", and the ends"
    work.progress.log(
        f"{len(history.candidates)} {history.kind}, {known} readings so far: about {steps} more to measure{ends}, "
        f"each a kernel and {seeds} guests; then the proof. To go on after any stop: lab bisect resume {session.name}"
    )
    if plan.case is None:
        choose_case(session, work)
    return ExactRunner(session=session, work=work)


def choose_case(session: Session, work: Work) -> None:
    """With several cases asked for, the one that the ends differ most in decides; it is kept in the plan."""
    plan = session.plan
    work.progress.log(f"comparing the ends in all cases of {plan.selection}, to choose one")
    place = session.folder / "ends"
    (place / "runs").mkdir(parents=True, exist_ok=True)
    compared = plan.comparison(plan.old, plan.new)
    if not (place / "plan.json").exists():
        results.store_plan(place, compared)
    try:
        found = exact.measure(compared, place, work)
    except HostFailed as error:
        if work.out_of_time:
            raise _too_short(session, "a case was chosen") from error
        raise
    if work.out_of_time:
        raise _too_short(session, "a case was chosen")
    chosen = _most_changed(found, worse_only=plan.worse_only)
    only = selection.only([plan.selection], plan.workload, chosen)
    session.plan = replace(plan, case=chosen, selection=only)
    records.save(session.folder / PLAN, session.plan)


def _too_short(session: Session, until: str) -> Undecided:
    return Undecided(
        f"the budget was used up before {until}; what was measured is kept",
        hint=f"go on by `lab bisect resume {session.name}`",
    )


def _most_changed(found: AbResult, *, worse_only: bool) -> str:
    moved = [
        case
        for case in found.cases
        if case.verdict.is_change and (not worse_only or case.verdict == Outcome.REGRESSION)
    ]
    if not moved:
        raise UserError(
            f"no culprit: the ends do not differ in any of {len(found.cases)} cases ({found.reason})",
            hint="name one case, as in --workload NAME:CASE, to look between the ends as well",
        )
    return max(moved, key=lambda case: distance(case.primary.ratio)).case
