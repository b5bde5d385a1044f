"""A bisection in exact mode under way: one commit after another, until nothing more can be learned or time is up.

Both ends come first, with as many seeds as it takes to tell them apart or to see that they are alike. A commit that
does not build, boot or survive the workload is untestable. A failure of this machine never says anything about a
commit: the work is tried again, then the search stops.

While the guests of a commit run, the kernels of the commits that may be next are built at the lowest priority, on
the cores that guests leave idle. Exact mode's numbers do not depend on the load. A build for the outcome that did
not come is stopped as Ctrl-C stops it, so make removes half-made files and the build folder stays good.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from msgspec.structs import replace

from lab.bisection import exact_search
from lab.bisection.commit_range import Candidate
from lab.bisection.exact_state import CHOOSE, PANICS, ExactState
from lab.bisection.journal import Reading, Seeds, commit_folder, untestable
from lab.bisection.plan import FAILED, FIRST_SEED, BisectPlan, outcome_word
from lab.bisection.session import PLAN, Conditions, Session
from lab.compare import runs, sampling
from lab.compare.beliefs import Belief
from lab.compare.comparison import measure_part
from lab.compare.judge import metric_of
from lab.compare.measurement import fitted, prepare
from lab.compare.results import AbResult, CaseResult
from lab.compare.runs import Bench
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, GuestFailure, HostFailed, LabError, Undecided, UserError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.core.records import now
from lab.core.text import plural
from lab.guests import costs
from lab.guests.run import Arm
from lab.kernels import build
from lab.kernels.architecture import MachineType
from lab.kernels.kernel import Kernel, KernelSpec
from lab.stats.defaults import FIRST_LOOK_SEEDS, MORE_SEEDS, SEEDS
from lab.stats.verdict import Outcome, distance, percent
from lab.workloads import selection

T = TypeVar("T")

FAILURES = (*PANICS, GuestFailure.OOM, GuestFailure.WORKLOAD, GuestFailure.UNSUPPORTED)
"""The ways in which a command fails that its kernel, or the command itself, decided."""


class OutOfTime(Exception):
    """The end of the budget before all guests of a commit ran. The finished guests are on disk."""


def attempt(function: Callable[[], T], times: int, progress: Progress) -> T:
    """A function's result, tried so many times: a failure may be this machine's, in live mode a guest's death too."""
    for _ in range(times - 1):
        started = time.monotonic()
        try:
            return function()
        except (HostFailed, GuestFailed) as error:
            progress.log(f"{error.message}; once more, after {time.monotonic() - started:.0f} s")
    return function()


def end_failure(reading: Reading, term: str) -> GuestFailed:
    """The error for an end that is untestable."""
    return GuestFailed(
        GuestFailure(reading.untestable or ""),
        f"the {term} end cannot be measured, so nothing can be compared with it: {reading.why}",
        hint="choose another end",
        log=Path(reading.log) if reading.log else None,
    )


class Measurer:
    """Measures the kernels of one session, all in the same guest. Its files are below the session's folder."""

    def __init__(self, session: Session, work: Work) -> None:
        self.plan, self.history, self.folder, self.work = session.plan, session.history, session.folder, work
        self._resolving = threading.Lock()
        ready = prepare(self.plan.comparison(self.plan.old, self.plan.new), self.folder, work)
        (self._series,) = ready.series
        self.environment = ready.environment
        self.bench = self._series.bench
        self._needs = self.plan.needs([(self.bench.workload, self._series.cases)])
        modelled = self.bench.modelled
        self.metric = FAILED if self.plan.run else metric_of(self.bench.workload, self.plan.metric, modelled=modelled)

    def obtain(self, spec: KernelSpec, work: Work | None = None) -> Kernel:
        """The kernel of a spec, built if need be."""
        return spec.obtain(work or self.work, cc=self.plan.new.cc, needs=self._needs)

    def files_read(self, spec: KernelSpec) -> set[str]:
        """The files of the source that the build of a spec reads."""
        return spec.files_read(self.work, cc=self.plan.new.cc, needs=self._needs)

    def measure(
        self,
        candidate: Candidate,
        seeds: Sequence[int],
        known: Sequence[Reading] = (),
        on_built: Callable[[], object] = lambda: None,
    ) -> Reading:
        """A reading of one commit, or of a known commit whose kernel has the same image. Raises `OutOfTime`.

        on_built: called when the commit's own kernel is there and its guests begin.
        """
        return attempt(lambda: self._measure(candidate, seeds, known, on_built), 2, self.work.progress)

    def _measure(
        self, candidate: Candidate, seeds: Sequence[int], known: Sequence[Reading], on_built: Callable[[], object]
    ) -> Reading:
        started = time.monotonic()
        try:
            with self._resolving:
                spec = self.history.kernel(candidate.spec, progress=self.work.progress)
            kernel = self.obtain(spec)
            image = identity(kernel, self.bench.machine)
            arm = Arm(name="commit", kernel=kernel, settings=dict(kernel.spec.settings))
            bench = fitted(self.bench, arm, self.work.progress)
        except (BuildFailed, UserError, ValueError) as error:
            return untestable(candidate, GuestFailure.BUILD, error, build_s=time.monotonic() - started)
        built = time.monotonic()
        reading = Reading(
            commit=candidate.id,
            release=kernel.release,
            kernel=kernel.key,
            image=image,
            build_s=round(built - started, 3),
            at=now(),
        )
        twin = next((r for r in known if r.image == image and r.values), None)
        if twin is not None:
            return replace(
                reading, values=twin.values, instructions=twin.instructions, whole=twin.whole, belief=twin.belief,
                same_as=twin.commit,
            )  # fmt: skip
        on_built()
        try:
            numbers = self._run(candidate, bench, arm, seeds)
        except GuestFailed as error:
            if error.kind.blames == "host":
                raise
            if self.plan.run and error.kind in FAILURES:
                self.work.progress.log(f"{candidate.name} fails: {error.message}")
                return replace(reading, values=[1.0] * len(seeds), run_s=round(time.monotonic() - built, 3))
            failed = untestable(candidate, error.kind, error, build_s=reading.build_s)
            return replace(failed, image=image, kernel=kernel.key)
        return replace(reading, **numbers, run_s=round(time.monotonic() - built, 3))

    def _run(self, candidate: Candidate, bench: Bench, arm: Arm, seeds: Sequence[int]) -> dict[str, Any]:
        """The fields of a reading with a number for each seed: its metric, and the numbers beside it, if there are any.

        Guests that were recorded before are not run again.
        """
        folder = commit_folder(self.folder, candidate)
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        series = dataclasses.replace(self._series, bench=dataclasses.replace(bench, folder=folder), done={})
        guests = [(series, series.guest(arm, seed, series.cases)) for seed in seeds]
        with self.work.progress.task(f"measuring {candidate.name}", None) as task:
            sampling.run_all(guests, self.work, task)
        case = series.cases[0]
        runs = [series.run("commit", seed, case) for seed in seeds]
        if not all(runs):
            raise OutOfTime
        if self.plan.run:
            return {"values": [0.0] * len(seeds)}
        metrics = [run.metrics(case.name) for run in runs if run]
        if any(self.metric.name not in numbers for numbers in metrics):
            raise GuestFailed(
                GuestFailure.WORKLOAD, f"{candidate.name}: the workload did not report {self.metric.name}"
            )
        count = costs.count_of(self.metric.name)
        parts = {name: [numbers[name] for numbers in metrics if name in numbers] for name in costs.WHOLE}
        left = [run.unwritten_cycles(case.name) for run in runs if run]
        parts["deferred_cycles"] = [sum(both) for both in zip(parts["deferred_cycles"], left, strict=False)]
        instrument, settings = bench.instrument, next(run.report.settings for run in runs if run)
        return {
            "values": [numbers[self.metric.name] for numbers in metrics],
            "instructions": [numbers[count] for numbers in metrics if count in numbers],
            "whole": {name: values for name, values in parts.items() if len(values) == len(metrics)},
            "belief": Belief.of(settings, instrument.machine) if instrument else None,
            "left": fmean(run.left_processes(case.name) for run in runs if run),
        }


def identity(kernel: Kernel, machine: MachineType) -> str:
    """A digest of a kernel's image and settings: equal ones give equal numbers."""
    return records.digest([records.file_digest(kernel.image(machine)), sorted(kernel.spec.settings)])


_PATIENCE_S = 0.1
_RAISE_EVERY_S = 1.0
_LOWEST_PRIORITY = 19


class Speculation:
    """A builder in the background. It ignores failures: the search builds the kernel again when it needs it.

    obtain: builds a candidate by its number.
    cancel: stops a build of this process, if one is under way.
    raise_priority: gives it the caller's priority.
    """

    def __init__(
        self, obtain: Callable[[int], object], cancel: Callable[[], None], raise_priority: Callable[[], None]
    ) -> None:
        self._obtain, self._cancel, self._raise_priority = obtain, cancel, raise_priority
        self._thread: threading.Thread | None = None
        self._building: int | None = None
        self._cancelled = threading.Event()

    def build(self, ahead: Sequence[int]) -> None:
        """Start to build these, one after the other, until the next call."""
        self.settle(None)
        self._cancelled.clear()
        self._thread = threading.Thread(target=self._work, args=(ahead,), daemon=True)
        self._thread.start()

    def settle(self, wanted: int | None) -> None:
        """Leave the compilers to the caller: finish the build that it wants, stop any other."""
        self._cancelled.set()
        while self._thread is not None and self._thread.is_alive():
            if wanted is None or self._building != wanted:
                self._cancel()
                self._thread.join(timeout=_PATIENCE_S)
            else:
                # The search waits for it now: on a busy machine the lowest priority would get nothing.
                self._raise_priority()
                self._thread.join(timeout=_RAISE_EVERY_S)
        self._thread = None

    def _work(self, ahead: Sequence[int]) -> None:
        # On Linux a priority belongs to a thread. make and the compilers inherit this one's.
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
    """Measures until the state of the search asks for nothing more, or time is up."""

    session: Session
    work: Work
    out_of_time: bool = field(default=False, init=False)

    @cached_property
    def measurer(self) -> Measurer:
        """The kernels of both ends, and the guest around all kernels."""
        measurer = Measurer(self.session, self.work)
        self.session.settle_conditions(Conditions(metric=measurer.metric, environment=measurer.environment))
        return measurer

    @property
    def state(self) -> ExactState:
        """The state of the search; only once both ends were measured."""
        state = self.session.state
        assert isinstance(state, ExactState)  # noqa: S101
        return state

    def run(self) -> None:
        """Go on from the journal's last event."""
        try:
            if self.session.state is None:
                self._measure_ends()
            self._log_ends()
            while numbers := self.state.choose(self._width):
                self._measure(numbers)
        except OutOfTime:
            if self.session.state is None:
                raise _too_short(self.session, "both ends were measured") from None
            self.out_of_time = True
        finally:
            self._settle(None)

    def single(self, candidate: Candidate) -> Reading:
        """The reading of one commit, from the journal or measured; the ends are measured first, and must differ."""
        journal = self.session.journal
        if self.session.state is None:
            self._measure_ends()
        ends = self.state.ends
        if self.state.is_disputed:
            raise Undecided(f"the ends disagree: {self.state.dispute}")
        if not self.state.differ:
            raise Undecided(
                f"no culprit: the ends are alike ({percent(ends.ratio if ends else None)}), so no commit can be told",
                hint="choose other ends, another case, or a smaller --threshold",
            )
        if (known := journal.readings.get(candidate.id)) is not None:
            return known
        reading = self._read(candidate, self.state)
        # A machine that was too busy just then must not condemn the commit for good.
        if reading.untestable != GuestFailure.HANG:
            journal.append(reading)
        return reading

    def _measure_ends(self) -> None:
        """Put both ends and the seeds of all commits into the journal."""
        plan, history, measurer = self.session.plan, self.session.history, self.measurer
        seeds: list[int] = []
        readings: dict[str, Reading] = {}
        for count in _looks(plan):
            seeds = list(range(FIRST_SEED, FIRST_SEED + count))
            measured = self.work.map(lambda end: measurer.measure(end, seeds), history.ends)  # noqa: B023
            for reading, term in zip(measured, plan.terms, strict=True):
                hunted = plan.panics == "bad" and term == plan.terms[1] and reading.untestable in PANICS
                if reading.untestable and not hunted:
                    raise end_failure(reading, term)
            readings = {reading.commit: reading for reading in measured}
            state = ExactState(plan=plan, history=history, metric=measurer.metric, readings=readings)
            if state.ends is None or state.ends.verdict != Outcome.UNKNOWN or state.is_disputed:
                break
        for reading in readings.values():
            self.session.journal.append(reading)
        self.session.journal.append(Seeds(seeds=seeds))

    @cached_property
    def _width(self) -> int:
        """The number of commits to measure at once: one here, else one for each machine."""
        executor = runs.executor_of(self.work)
        return max(1, executor.machines(self.measurer.bench)) if executor else 1

    def _measure(self, numbers: Sequence[int]) -> None:
        """Measure commits at once. The state before them judges each, so their order does not matter."""
        state, candidates = self.state, [self.session.history[number] for number in numbers]
        if self.work.out_of_time:
            raise OutOfTime
        if len(candidates) > 1:
            self.work.progress.log(
                f"{len(candidates)} {self.session.history.kind} at once: {', '.join(c.name for c in candidates)}"
            )
        self._settle(numbers[0])
        for reading in self.work.map(lambda candidate: self._read(candidate, state), candidates):
            self.session.journal.append(reading)
            after, candidate = self.state, self.session.history.find(reading.commit)
            self.work.progress.log(
                f'{candidate.name} ("{candidate.title}"): {after.describe(candidate.id)}; '
                f"about {after.steps_left} more to measure"
            )

    def _read(self, candidate: Candidate, before: ExactState) -> Reading:
        """A reading with few seeds if they place the commit on a known level, else with all."""
        seeds, known = self.session.journal.seeds or [], list(before.readings.values())
        number = self.session.history.number(candidate.id)
        reading = self.measurer.measure(
            candidate, seeds[:FIRST_LOOK_SEEDS], known, on_built=lambda: self._build_ahead(before, number)
        )
        if reading.untestable or len(reading.values) == len(seeds):
            return reading
        after = dataclasses.replace(before, readings={**before.readings, candidate.id: reading})
        if after.known.levels.get(number) in before.known.effects:
            return reading
        return self.measurer.measure(candidate, seeds, known)

    def _log_ends(self) -> None:
        """Log how the ends compare, and the conclusion."""
        state, (old, new) = self.state, self.session.plan.terms
        seeds = len(self.session.journal.seeds or [])
        if state.ends is None:
            self.work.progress.log(f"ends: {new} panics, {old} does not")
        elif self.session.plan.run:
            first, last = (outcome_word(state.readings[end.id].values) for end in state.history.ends)
            self.work.progress.log(f"ends: {old} {first}, {new} {last}")
        else:
            self.work.progress.log(
                f"ends: {new} against {old} {percent(state.ends.ratio)} ({state.metric.name}, {seeds} seeds): "
                f"{state.ends.verdict}"
            )
            if state.is_disputed:
                self.work.progress.log(f"nothing is searched: {state.dispute}")
        if not state.differ and state.next() is not None:
            self.work.progress.log(
                f"the ends are alike; measuring up to {state.plan.probes} {state.history.kind} between them"
            )

    # ---- building ahead

    @cached_property
    def _speculation(self) -> Speculation | None:
        """None if it is not wanted, or if no make runs here that could be stopped."""
        plan, history, source = self.session.plan, self.session.history, self.session.plan.new.spec.tree_source
        if not plan.speculate or source is None or self.work.executor:
            return None
        quiet, tree = dataclasses.replace(self.work, progress=Progress(quiet=True)), source.tree
        return Speculation(
            lambda number: self.measurer.obtain(history.kernel(history[number].spec), quiet),
            lambda: build.cancel(tree),
            lambda: build.raise_priority(tree),
        )

    def _build_ahead(self, state: ExactState, number: int) -> None:
        """Start on the kernels of the commits that may follow the commit whose guests start now."""
        if self._speculation is not None:
            self._speculation.build(exact_search.after(state.history.graph(), state.known, number))

    def _settle(self, wanted: int | None) -> None:
        if self._speculation is not None:
            self._speculation.settle(wanted)


def _looks(plan: BisectPlan) -> Iterator[int]:
    if plan.seeds is not None:
        yield plan.seeds
        return
    yield FIRST_LOOK_SEEDS
    yield from range(SEEDS, plan.max_seeds + 1, MORE_SEEDS)


def start(session: Session, work: Work) -> ExactRunner:
    """Log the plan of the search, and choose the case if that is open."""
    history, plan, steps = session.history, session.plan, session.remaining().steps
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
    """Put into the plan the case in which the ends differ most."""
    plan = session.plan
    work.progress.log(f"comparing the ends in all cases of {plan.selection}, to choose one")
    try:
        result = measure_part(plan.comparison(plan.old, plan.new), session.folder / "ends", work)
    except HostFailed as error:
        if work.out_of_time:
            raise _too_short(session, "a case was chosen") from error
        raise
    if work.out_of_time:
        raise _too_short(session, "a case was chosen")
    chosen = _most_changed(result, worse_only=plan.worse_only)
    only = selection.only(plan.selections, chosen.workload, chosen.case)
    session.plan = replace(plan, workload=chosen.workload, case=chosen.case, selection=only)
    records.save(session.folder / PLAN, session.plan)


def _too_short(session: Session, until: str) -> Undecided:
    return Undecided(
        f"the budget was used up before {until}; its measurements are kept",
        hint=f"go on by `lab bisect resume {session.name}`",
    )


def _most_changed(result: AbResult, *, worse_only: bool) -> CaseResult:
    moved = [
        case
        for case in result.cases
        if case.verdict.is_change and (not worse_only or case.verdict == Outcome.REGRESSION)
    ]
    if not moved and (disputed := [case for case in result.cases if case.primary.rests_on_model]):
        raise UserError(f"no culprit: {disputed[0].name}: {disputed[0].primary.reason}", hint=CHOOSE)
    if not moved:
        raise UserError(
            f"no culprit: the ends do not differ in any of {plural(len(result.cases), 'case')} ({result.reason})",
            hint="name one case, as in --workload NAME:CASE, to look between the ends as well",
        )
    return max(moved, key=lambda case: distance(case.primary.ratio))
