"""A bisection in live mode under way: one boot after another, until the posterior is certain enough or time is up.

Each boot is in the journal before the next begins, and the journal alone decides the next boot, so a killed search
continues from its last boot. A commit that does not build, boot or survive the workload is left out, but only if all of
three tries fail: a busy host kills guests that are well. A failure of this machine stops the search. Nothing is built
ahead: compilers would disturb the guests. If another layout of a commit cannot be built or booted, the search continues
without other layouts.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from lab.bisection.commit_range import Candidate
from lab.bisection.exact_runner import attempt, end_failure, identity
from lab.bisection.journal import Boot, BuiltKernel, Reading, safe_name, untestable
from lab.bisection.live_search import NextBoots, Phase, Result
from lab.bisection.live_state import LiveState, rules_of
from lab.bisection.session import Conditions, Session
from lab.compare import boots, live_guests
from lab.compare.boots import GuestSetup, Job
from lab.compare.judge import metric_of
from lab.compare.measurement import Measurement, fitted
from lab.compare.rounds import FIRST_ITERATIONS
from lab.core.errors import BuildFailed, GuestFailed, GuestFailure, LabError, UserError
from lab.core.executor import Work
from lab.core.records import now
from lab.guests.run import Arm, RunningGuests
from lab.kernels.kernel import Kernel
from lab.kernels.layout import name_of
from lab.stats import iterations
from lab.stats.posterior import Image

TRIES = 3
"""Tries in a row after which the search leaves out a commit whose guest died in each, as in `lab ab --mode live`."""


class BootResult(NamedTuple):
    """The metric of one fresh boot, from its samples."""

    value: float
    samples: Sequence[float] = ()


@dataclass
class LiveRunner:
    """Boots until the search has an answer, or time is up.

    clock: the host's, in seconds; it has to continue between two runs of the lab.
    """

    session: Session
    booter: GuestBooter
    work: Work
    clock: Callable[[], float] = time.time
    out_of_time: bool = field(default=False, init=False)
    _built: set[Image] = field(default_factory=set, init=False)

    @cached_property
    def state(self) -> LiveState:
        """The state of the search, by the journal and every event since."""
        session = self.session
        return LiveState(session.plan, session.history, self.booter.metric, session.journal.kept)

    def run(self) -> None:
        """Go on from the journal's last event, to the answer."""
        state = self.state
        self.session.settle_conditions(Conditions(metric=self.booter.metric, environment=self.booter.environment))
        while isinstance(step := state.next(), NextBoots):
            if self.work.out_of_time:
                self.out_of_time = True
                state.conclude("the budget is used up")
                return
            # All kernels of a step come first, so that its boots are close together.
            if all(self._build(image) for image in dict.fromkeys(step.boots)):
                self._boot(step.boots[0], step.phase)
            self._log(step, state.next())

    def _build(self, image: Image) -> bool:
        """Bring a kernel to hand; False if the commit, or all other layouts, are left out instead."""
        if image in self._built:
            return True
        candidate, started = self.state.candidate(image.commit), time.monotonic()
        try:
            built = attempt(lambda: self.booter.build(candidate, image.layout), 2, self.work.progress)
        except (BuildFailed, UserError, ValueError) as error:
            self._leave_out(image, GuestFailure.BUILD, error, build_s=time.monotonic() - started)
            return False
        self._built.add(image)
        if image.layout or candidate.id not in self.state.kernels:
            self._take(built)
        return True

    def _boot(self, image: Image, phase: Phase) -> None:
        candidate, started = self.state.candidate(image.commit), time.monotonic()
        try:
            result = attempt(lambda: self.booter.boot(candidate, image.layout), TRIES, self.work.progress)
            if result.value <= 0:
                raise GuestFailed(
                    GuestFailure.WORKLOAD,
                    f"{candidate.name}: {self.booter.metric.name} was {result.value:g}, which has no logarithm",
                )
        except GuestFailed as error:
            if error.kind.blames == "host":
                raise
            self._leave_out(image, error.kind, error)
            return
        self._take(
            Boot(
                commit=candidate.id, layout=image.layout, phase=phase, value=result.value,
                at_s=round(self.clock(), 3), run_s=round(time.monotonic() - started, 3), samples=list(result.samples),
            )
        )  # fmt: skip

    def _leave_out(self, image: Image, kind: GuestFailure, error: LabError | ValueError, build_s: float = 0.0) -> None:
        history, candidate = self.session.history, self.state.candidate(image.commit)
        reading = replace(untestable(candidate, kind, error, build_s=build_s), layout=image.layout)
        if image.layout:
            self._take(reading)
            self.work.progress.log(f"{candidate.name} with another layout: {reading.why}; going on with one layout")
            return
        for end, term in zip(history.ends, self.session.plan.terms, strict=True):
            if candidate.id == end.id:
                raise end_failure(reading, term)
        self._take(reading)
        self.work.progress.log(f'{candidate.name} ("{candidate.title}") cannot be tested ({kind}): {reading.why}')

    def _take(self, event: Boot | BuiltKernel | Reading) -> None:
        # The journal first: a later search must see the same events as this one.
        self.state.next()
        self.session.journal.append(event)
        self.state.take(event)

    def _log(self, step: NextBoots, following: NextBoots | Result) -> None:
        """Log the state at the end of a step's boots; in the phase of the ends, once they differ."""
        state, progress = self.state, self.work.progress
        if isinstance(following, NextBoots) and following.boots == step.boots[1:]:
            return
        commit = state.candidate(step.commit)
        if step.phase is Phase.ENDS and state.search.differ():
            progress.log(*state.describe_ends())
        elif step.phase is Phase.SEARCH and commit.id not in state.skipped:
            left = state.remaining()
            time_left = f", about {left.seconds:.0f} s left" if left.seconds is not None else ""
            likeliest = state.describe_changes()[0].strip()
            progress.log(f"{commit.name} booted; {likeliest}; {left.bits:.1f} bits missing{time_left}")
            if isinstance(following, NextBoots) and following.phase is Phase.CONFIRM:
                other = " with another layout" if following.boots[0].layout else ""
                progress.log(f"comparing its neighbours by fresh boots{other}")


def start(session: Session, work: Work) -> LiveRunner:
    """Log the plan of the search, and bring the kernels of both ends to hand."""
    history, rules = session.history, rules_of(session.plan)
    work.progress.log(
        f"{len(history.candidates)} {history.kind}, {len(session.journal.boots)} boots so far: pairs of boots of both "
        f"ends until they differ, at most {rules.end_blocks}; then {history.kind}, until one is "
        f"{100 * rules.confidence:g} % sure; then fresh pairs. "
        f"To go on after any stop: lab bisect resume {session.name}"
    )
    return LiveRunner(session=session, booter=GuestBooter(session, work), work=work)


class GuestBooter:
    """Builds and boots commits. Its records are below the session's folder.

    Failures are those of `lab.core.errors`; `GuestFailed.kind` names the cause.
    """

    def __init__(self, session: Session, work: Work) -> None:
        """Bring both ends' kernels to hand, and the guest around all kernels."""
        plan = session.plan
        assert plan.live is not None  # noqa: S101  (it is a plan of live mode)
        self.plan, self.history, self.folder, self.work = plan, session.history, session.folder, work
        self._measurement = Measurement.of(plan.comparison(plan.old, plan.new), self.folder, plan.old.spec)
        ((workload, _),) = self._measurement.selected
        self.metric = metric_of(workload, plan.metric, modelled=False)
        self.iterations = plan.live.iterations or FIRST_ITERATIONS
        self._kernels: dict[tuple[str, int], tuple[Kernel, float]] = {}
        self._setups: dict[str, GuestSetup] = {}
        self._running = RunningGuests()
        ends = self._arm(self.history.old), self._arm(self.history.new)
        ready = live_guests.prepare(self._measurement, ends, plan.live, work.progress)
        (self._setup,) = ready.setups
        self.environment = ready.environment

    def build(self, candidate: Candidate, layout: int) -> BuiltKernel:
        """Build a kernel with one of its layouts, or find it in the store."""
        kernel, build_s = self._kernel(candidate, layout)
        self._setup_for(self._arm(candidate, layout))
        return BuiltKernel(
            commit=candidate.id,
            layout=layout,
            kernel=kernel.key,
            image=identity(kernel, self._setup.machine),
            release=kernel.release,
            build_s=round(build_s, 3),
            at=now(),
        )

    def boot(self, candidate: Candidate, layout: int) -> BootResult:
        """Boot a kernel afresh, run the case some times, and summarize its samples."""
        number, name = self._next_name(candidate, layout)
        arm = self._arm(candidate, layout)
        with self.work.progress.task(f"boot {number}, {candidate.name}", 1) as task:
            record = boots.boot(
                self._setup_for(arm),
                arm,
                Job(cases=self._setup.cases, seed=number, iterations=self.iterations),
                name=name,
                cpu_set=self._setup.cpu_sets[0],
                running=self._running,
            )
            task.advance()
        samples = record.reading()[self._setup.cases[0].name].get(self.metric.name, [])
        value = iterations.summary(samples)
        if not math.isfinite(value):
            raise GuestFailed(
                GuestFailure.WORKLOAD, f"{candidate.name}: the workload did not report {self.metric.name}"
            )
        return BootResult(value, samples)

    def _setup_for(self, arm: Arm) -> GuestSetup:
        """The guests of a kernel, with their needs looked up once."""
        if arm.kernel.key not in self._setups:
            self._setups[arm.kernel.key] = fitted(self._setup, arm, self.work.progress)
        return self._setups[arm.kernel.key]

    def _next_name(self, candidate: Candidate, layout: int) -> tuple[int, str]:
        """The number and the name of the next boot, which no record has yet."""
        first = len(list((self.folder / "boots").glob("*.json"))) + 1
        kernel = safe_name(candidate.name) + (f"-{name_of(layout)}" if layout else "")
        names = ((number, f"{number:05d}-{kernel}") for number in itertools.count(first))
        return next(pair for pair in names if not boots.record_path(self.folder, pair[1]).exists())

    def _kernel(self, candidate: Candidate, layout: int = 0) -> tuple[Kernel, float]:
        """A kernel, and the seconds that it took to come to hand."""
        key = candidate.id, layout
        if key not in self._kernels:
            started = time.monotonic()
            spec = self.history.kernel(candidate.spec, layout, progress=self.work.progress)
            obtained = spec.obtain(self.work, cc=self.plan.new.cc, needs=self._measurement.needs)
            self._kernels[key] = obtained, time.monotonic() - started
        return self._kernels[key]

    def _arm(self, candidate: Candidate, layout: int = 0) -> Arm:
        kernel, _ = self._kernel(candidate, layout)
        return Arm(name="commit", kernel=kernel, settings=dict(kernel.spec.settings))
