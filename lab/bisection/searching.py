"""A bisection under way: one commit after another, until nothing more can be learned, or time is up."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lab.bisection import ends, search
from lab.bisection.history import Candidate
from lab.bisection.journal import Reading
from lab.bisection.measuring import Measurer, OutOfTime
from lab.bisection.session import CONDITIONS, Conditions, Session
from lab.bisection.speculation import Speculation
from lab.bisection.state import State, describe
from lab.core import executor, records
from lab.core.errors import HostFailed, Undecided
from lab.core.executor import over
from lab.core.progress import Meter
from lab.kernels import build
from lab.kernels.resolve import TreeSource
from lab.stats.verdict import percent

_FIRST_LOOK = 3


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
        made = Measurer(
            session.plan, session.history, session.folder, jobs=self.jobs, deadline=self.deadline, meter=self.meter
        )
        here = Conditions(metric=made.metric, environment=made.environment)
        require_same(session, here)
        if session.conditions is None:
            records.save(session.folder / CONDITIONS, here)
            session.conditions = here
        return made

    def run(self) -> None:
        """Go on from whatever the journal says."""
        session = self.session
        try:
            if not session.started:
                ends.measure(session, self.measurer)
            ends.say(session, self.meter)
            while numbers := session.state.choose(self._width):
                self._step(numbers[0]) if len(numbers) == 1 else self._round(numbers)
        except OutOfTime:
            self.out_of_time = True
        finally:
            self._settle(None)

    def single(self, one: Candidate) -> Reading:
        """The reading of one commit, from the journal or measured; the ends are measured first, and must differ."""
        session = self.session
        if not session.started:
            ends.measure(session, self.measurer)
        if not session.state.differ:
            alike = session.state.ends
            raise Undecided(
                f"no culprit: the ends are alike ({percent(alike.ratio if alike else None)}), so no commit can be told",
                hint="choose other ends, another case, or a smaller --threshold",
            )
        if (known := session.journal.readings.get(one.id)) is not None:
            return known
        reading = self._read(one, session.state)
        # A machine that was too busy just then must not condemn the commit for good.
        if reading.untestable != "hang":
            session.journal.append(reading)
        return reading

    def _step(self, number: int) -> None:
        session, state = self.session, self.session.state
        one = session.history[number]
        if over(self.deadline):
            raise OutOfTime
        self._settle(number)
        reading = self._read(one, state, lambda: self._build_ahead(state, number))
        session.journal.append(reading)
        self._say(number, reading)

    @cached_property
    def _width(self) -> int:
        """How many commits are measured at once: one here, else one for each machine."""
        crew = executor.crew()
        return max(1, crew.machines(self.measurer.bench)) if crew else 1

    def _round(self, numbers: Sequence[int]) -> None:
        """Several commits at once. They are judged by what was known before, so it is no matter which ends first."""
        session, state = self.session, self.session.state
        if over(self.deadline):
            raise OutOfTime
        names = ", ".join(session.history[number].name for number in numbers)
        self.meter.say(f"{len(numbers)} commits at once: {names}")
        for number, reading in zip(
            numbers, executor.each(lambda number: self._read(session.history[number], state), numbers), strict=True
        ):
            session.journal.append(reading)
            self._say(number, reading)

    def _read(self, one: Candidate, before: State, built: Callable[[], object] = lambda: None) -> Reading:
        """A reading with few seeds where they place the commit on a level that is known, else with all."""
        seeds, known = self.session.journal.seeds or [], list(before.readings.values())
        reading = self.measurer.measure(one, seeds[:_FIRST_LOOK], known, built=built)
        if reading.untestable or len(reading.values) == len(seeds) or self._placed(one, before, reading):
            return reading
        return self.measurer.measure(one, seeds, known)

    def _placed(self, one: Candidate, before: State, reading: Reading) -> bool:
        after = dataclasses.replace(before, readings={**before.readings, one.id: reading})
        level = after.known.levels.get(self.session.history.number(one.id))
        return level is not None and level in before.known.effects

    def _say(self, number: int, reading: Reading) -> None:
        state = self.session.state
        one = self.session.history[number]
        self.meter.say(
            f'{one.name} ("{one.title}"): {describe(state, number, reading)}; about {state.steps_left} more to measure'
        )

    # ---- building ahead

    @cached_property
    def _speculation(self) -> Speculation | None:
        """None where it would disturb (live mode), or where there is no make here that could be stopped."""
        plan, history, source = self.session.plan, self.session.history, self.session.plan.new.spec.source
        if not plan.speculate or plan.mode != "exact" or not isinstance(source, TreeSource) or executor.crew():
            return None
        quiet, tree = Meter(quiet=True), source.tree
        return Speculation(
            lambda number: self.measurer.obtain(history.resolve(number), quiet),
            lambda: build.interrupt(tree),
            lambda: build.hurry(tree),
        )

    def _build_ahead(self, state: State, number: int) -> None:
        """Begin with the kernels of what may come after a commit whose guests start now."""
        if self._speculation is not None:
            self._speculation.build(search.after(state.history.graph(), state.known, number))

    def _settle(self, wanted: int | None) -> None:
        if self._speculation is not None:
            self._speculation.settle(wanted)


def require_same(session: Session, here: Conditions) -> None:
    """Numbers of different guests are not to be compared."""
    if session.conditions is None or not session.journal.events:
        return
    before, now_ = session.conditions.environment, here.environment
    if before is None or now_ is None:
        return
    if before.fingerprint != now_.fingerprint:
        raise HostFailed(
            f"this machine is not as it was when {session.name} was begun: QEMU {before.qemu} then, {now_.qemu} now; "
            f"fingerprint {before.fingerprint} then, {now_.fingerprint} now",
            hint=f"begin anew: {shlex.join(session.plan.command)}",
        )
