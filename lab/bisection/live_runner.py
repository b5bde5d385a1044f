"""A bisection in live mode under way: one boot after another, until the posterior says enough, or time is up.

Each boot is in the journal before the next begins, and the journal alone decides what comes next, so a search that
was killed goes on where it was. What is the commit's own doing (it does not build, boot, or survive the workload)
leaves it out, if it does so in each of three tries: a busy host makes guests die that are well. What is this machine's
doing stops the search. Nothing is built ahead: compilers would disturb the guests.

Live mode's boots for a search: kernels of candidates, each booted afresh in the guest that all of them share.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from lab.bisection.answer import certainty
from lab.bisection.commit_range import Candidate, History
from lab.bisection.exact_runner import chosen_metric, identity
from lab.bisection.journal import Boot, Built, Reading, safe_name
from lab.bisection.live_search import NextBoots, Phase, Result
from lab.bisection.live_state import LiveState, rules_of
from lab.bisection.plan import BisectPlan
from lab.bisection.session import Conditions, Session
from lab.compare import boots, exact, live_guests
from lab.compare.results import ResultEnvironment
from lab.compare.rounds import FIRST_ITERATIONS
from lab.core.errors import BuildFailed, GuestFailed, GuestFailure, HostFailed, LabError, UserError
from lab.core.executor import Work
from lab.core.records import now
from lab.guests import exact as guest_exact
from lab.guests.run import Arm, Running
from lab.kernels.kernel import Kernel
from lab.stats import iterations
from lab.stats.verdict import Metric, percent
from lab.workloads import selection

T = TypeVar("T")

TRIES = 3
"""How often in a row a commit's guest may die before the commit is left out, as in `lab ab --mode live`."""


class Booted(NamedTuple):
    """What one fresh boot gave: the metric, from its samples."""

    value: float
    samples: Sequence[float] = ()


class Booter(Protocol):
    """Who builds and boots. Failures are those of `lab.core.errors`; `GuestFailed.kind` names the cause."""

    @property
    def metric(self) -> Metric:
        """What is measured."""

    @property
    def environment(self) -> ResultEnvironment | None:
        """Around all boots; None where there is none to speak of."""

    def build(self, one: Candidate) -> Built:
        """Bring the kernel of a candidate to hand."""

    def boot(self, one: Candidate) -> Booted:
        """Boot it afresh, and measure once."""


@dataclass
class LiveRunner:
    """The work itself. clock: of the host, in seconds; it has to go on between two runs of the lab."""

    session: Session
    booter: Booter
    work: Work
    clock: Callable[[], float] = time.time
    out_of_time: bool = field(default=False, init=False)

    @cached_property
    def state(self) -> LiveState:
        """The search as the journal has it."""
        session = self.session
        return LiveState(session.plan, session.history, self.booter.metric, session.journal.standing)

    def run(self) -> None:
        """Go on from whatever the journal says, to the answer."""
        state = self.state
        self.session.settle_conditions(Conditions(metric=self.booter.metric, environment=self.booter.environment))
        while isinstance(step := state.next(), NextBoots):
            if self.work.out_of_time:
                self.out_of_time = True
                state.conclude("the budget is used up")
                return
            self._boot_next(step)
            self._say(step, state.next())

    def _boot_next(self, step: NextBoots) -> None:
        """The first boot of a visit; before it all its kernels are built, so that its boots come close together."""
        for number in dict.fromkeys(step.boots):
            if not self._built(number):
                return
        one = self._candidate(step.boots[0])
        started = time.monotonic()
        try:
            booted = self._tried(lambda: self.booter.boot(one), TRIES)
            if booted.value <= 0:
                raise GuestFailed(
                    GuestFailure.WORKLOAD,
                    f"{one.name}: {self.booter.metric.name} was {booted.value:g}, which has no logarithm",
                )
        except GuestFailed as error:
            if error.kind.blames == "host":
                raise
            self._leave_out(one, error.kind, error)
            return
        self._take(
            Boot(
                commit=one.id, phase=step.phase, value=booted.value, at_s=round(self.clock(), 3),
                run_s=round(time.monotonic() - started, 3), samples=list(booted.samples),
            )
        )  # fmt: skip

    @cached_property
    def _at_hand(self) -> set[str]:
        """Kernels that this process has built, or found in the store."""
        return set()

    def _built(self, number: int) -> bool:
        one = self._candidate(number)
        if one.id in self._at_hand:
            return True
        started = time.monotonic()
        try:
            built = self._tried(lambda: self.booter.build(one), 2)
        except (BuildFailed, UserError, ValueError) as error:
            self._leave_out(one, GuestFailure.BUILD, error, build_s=time.monotonic() - started)
            return False
        self._at_hand.add(one.id)
        if one.id not in self.state.kernels:
            self._take(built)
        return True

    def _tried(self, work: Callable[[], T], times: int) -> T:
        """What fails once may be the machine's doing, in real time also a guest that died: it is tried again."""
        for _ in range(times - 1):
            started = time.monotonic()
            try:
                return work()
            except (HostFailed, GuestFailed) as error:
                self.work.progress.log(f"{error.message}; once more, after {time.monotonic() - started:.0f} s")
        return work()

    def _leave_out(self, one: Candidate, how: GuestFailure, error: LabError | ValueError, build_s: float = 0.0) -> None:
        words = error.message if isinstance(error, LabError) else str(error)
        log = error.log if isinstance(error, LabError) else None
        ends = {self.session.history.old.id: 0, self.session.history.new.id: 1}
        if one.id in ends:
            raise GuestFailed(
                how,
                f"the {self.session.plan.terms[ends[one.id]]} end cannot be measured, so nothing can be compared with "
                f"it: {words}",
                hint="choose another end",
                log=Path(log) if log else None,
            )
        self._take(
            Reading(
                commit=one.id, untestable=how, why=words, log=str(log) if log else None, build_s=round(build_s, 3),
                at=now(),
            )
        )  # fmt: skip
        self.work.progress.log(f'{one.name} ("{one.title}") cannot be tested ({how}): {words}')

    def _take(self, event: Boot | Built | Reading) -> None:
        # The journal first: what the search was told must be what a later one will be told.
        self.state.next()
        self.session.journal.append(event)
        self.state.take(event)

    def _candidate(self, number: int) -> Candidate:
        history = self.session.history
        return history[history.number(self.state.name(number))]

    # ---- telling

    def _say(self, step: NextBoots, following: NextBoots | Result) -> None:
        """One line where a visit ends; of the ends, where they are told apart."""
        if isinstance(following, NextBoots) and following.boots == step.boots[1:]:
            return
        if step.phase is Phase.ENDS:
            if self.state.search.differ():
                self.work.progress.log(self._ends())
        elif step.phase is Phase.SEARCH and self.state.name(step.commit) not in self.state.skipped:
            self._say_belief(step)
            if isinstance(following, NextBoots) and following.phase is Phase.CONFIRM:
                self.work.progress.log("comparing its neighbours afresh")

    def _ends(self) -> str:
        ends, (old, new) = self.state.search.ends, self.session.plan.terms
        change = percent(math.exp(ends.moments.mean))
        return f"ends: {new} against {old} {change} ({self.state.metric.name}, {len(ends.x)} pairs of boots)"

    def _say_belief(self, step: NextBoots) -> None:
        status = self.state.search.status()
        low, high, chance = status.gaps[0]
        left = f", about {status.seconds_left:.0f} s left" if status.seconds_left is not None else ""
        one, up_to = self._candidate(step.commit), self._candidate(high)
        among = f"{high - low} commits up to {up_to.name}" if high - low > 1 else up_to.name
        self.work.progress.log(
            f"{one.name} booted; {certainty(chance)} for {among}; {status.bits_left:.1f} bits missing{left}"
        )


def start(session: Session, work: Work) -> LiveRunner:
    """Say what will be result, and bring the kernels of both ends to hand."""
    history, rules = session.history, rules_of(session.plan)
    work.progress.log(
        f"{len(history.candidates)} {history.kind}, {len(session.journal.boots)} boots so far: pairs of boots of both "
        f"ends until they differ, at most {rules.end_blocks}; then commits, until one is {100 * rules.confidence:g} % "
        f"sure; then fresh pairs. To go on after any stop: lab bisect resume {session.name}"
    )
    booter = Boots(session.plan, history, session.folder, work)
    return LiveRunner(session=session, booter=booter, work=work)


class Boots:
    """The `Booter` of real guests. Its records are below the session's folder."""

    def __init__(self, plan: BisectPlan, history: History, folder: Path, work: Work) -> None:
        """Bring both ends' kernels to hand, and the guest around all of them."""
        assert plan.live is not None  # noqa: S101  (it is a plan of live mode)
        self.plan, self.history, self.folder, self.work = plan, history, folder, work
        chosen = selection.select(plan.selection)
        self.metric = chosen_metric(exact.metrics_of(chosen[0].metrics, modelled=False), plan.metric)
        self.iterations = plan.live.iterations or FIRST_ITERATIONS
        self._kernels: dict[str, Kernel] = {}
        self._build_s: dict[str, float] = {}
        self._running = Running()
        selection.require_unchanged(plan.files)
        ready = live_guests.prepare(
            (self._arm(history.old), self._arm(history.new)),
            [chosen],
            plan.live,
            folder,
            qemu=guest_exact.find_qemu(plan.qemu),
            timeout_s=plan.guest_timeout_s,
            progress=work.progress,
        )
        (self._stand,) = ready.stands
        self.environment = ready.environment

    def build(self, one: Candidate) -> Built:
        """Bring the kernel of a candidate to hand."""
        kernel = self._arm(one).kernel
        return Built(
            commit=one.id,
            kernel=kernel.key,
            image=identity(kernel, self._stand.bench.machine),
            release=kernel.release,
            build_s=round(self._build_s[one.id], 3),
            at=now(),
        )

    def boot(self, one: Candidate) -> Booted:
        """Boot it afresh, run the case some times, and sum those up."""
        bench = self._stand.bench
        number = next(n for n in itertools.count(self._booted() + 1) if not self._taken(n, one))
        with self.work.progress.task(f"boot {number}, {one.name}", 1) as task:
            record = boots.boot(
                bench,
                self._arm(one),
                bench.cases,
                name=_name(number, one),
                seed=number,
                iterations=self.iterations,
                seat=self._stand.seats[0],
                running=self._running,
            )
            task.advance()
        samples = record.reading()[bench.cases[0].name].get(self.metric.name, [])
        value = iterations.summary(samples)
        if not math.isfinite(value):
            raise GuestFailed(GuestFailure.WORKLOAD, f"{one.name}: the workload did not report {self.metric.name}")
        return Booted(value, samples)

    def _booted(self) -> int:
        return len(list((self.folder / "boots").glob("*.json")))

    def _taken(self, number: int, one: Candidate) -> bool:
        return boots.record_path(self.folder, _name(number, one)).exists()

    def _arm(self, one: Candidate) -> Arm:
        if one.id not in self._kernels:
            started = time.monotonic()
            spec = self.history.resolve(self.history.number(one.id), progress=self.work.progress)
            self._kernels[one.id] = spec.obtain(self.work, cc=self.plan.new.cc)
            self._build_s[one.id] = time.monotonic() - started
        kernel = self._kernels[one.id]
        return Arm(name="commit", kernel=kernel, settings=dict(kernel.spec.settings))


def _name(number: int, one: Candidate) -> str:
    return f"{number:05d}-{safe_name(one.name)}"
