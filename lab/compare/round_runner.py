"""Taking rounds: boots of both arms next to each other, watched, repeated where need be, each kept as it ends.

What was measured is never measured again: a boot whose record is there is taken from it, a round as well.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.compare import boots
from lab.compare.boots import BootRecord, LiveBench
from lab.compare.results import LiveBoot, LiveRound, RoundState
from lab.compare.rounds import Block, BootReading, Rounds
from lab.core import records
from lab.core.errors import GuestFailed, LabError
from lab.core.records import Record
from lab.guests import perf_stat
from lab.guests.host import Watch
from lab.guests.perf_stat import PerfSummary
from lab.guests.run import Arm, RunningGuests
from lab.guests.topology import CpuSet
from lab.stats import sequential
from lab.stats.sequential import Horizon

TRIES = 3
"""How often a round is done before it is taken as it is, and how often an arm's guest may die in it."""


@dataclass(frozen=True, kw_only=True)
class Stand:
    """One workload's guests and their CPUs: one set that the arms use in turn, or two at once."""

    bench: LiveBench
    cpu_sets: Sequence[CpuSet]


class _Round(Record, frozen=True, kw_only=True):
    """The record of one try at a round: `rounds/<number>-<attempt>.json`."""

    schema: int = 1
    round: LiveRound


@dataclass(kw_only=True)
class Taking:
    """A comparison while its rounds are taken. deadline: on the monotonic clock.

    tried: every try at a round so far. busy: the host was not quiet in any of a round's tries, so that trying more
    than once has no point.
    """

    stands: Sequence[Stand]
    arms: Sequence[Arm]
    rounds: Rounds
    folder: Path
    deadline: float | None
    running: RunningGuests = field(default_factory=RunningGuests)
    tried: list[LiveRound] = field(default_factory=list)
    busy: bool = False

    def take(self) -> LiveRound | None:
        """Do the next round, as often as it takes. None when there is none to do, or no time left for one.

        GuestFailed: an arm's guest died in each of the tries. The arm is broken.
        """
        self._plan()
        block = self.rounds.next()
        if block is None or self._late():
            return None
        deaths: Counter[str] = Counter()
        for attempt in itertools.count(1):
            one, error = self._stored(block, attempt), None
            if one is None:
                one, error = self._try(block, attempt)
                records.save(_path(self.folder, one), _Round(round=one))
            self.tried.append(one)
            if error is not None:
                arm = next(boot.arm for boot in one.boots if boot.failure)
                deaths[arm] += 1
                if deaths[arm] >= TRIES:
                    where = f"its guest died {TRIES} times in round {one.number}"
                    error.message = f"the {arm} arm is broken: {where}, last: {error.message}"
                    raise error
            if one.counts:
                self.busy = self.busy or one.state == "disturbed"
                self.rounds.add(_as_done(block, one), _readings(one))
                self._learn()
                self._plan()
                return one
        raise AssertionError("unreachable")

    def seconds_a_round(self) -> float:
        """What a round takes with as many iterations as the next one has, by those that were done."""
        if not self.tried:
            return 0.0
        length = statistics.median(one.seconds / self._length(one.iterations) for one in self.tried)
        return length * self._length(self.rounds.iterations())

    def _length(self, iterations: int) -> float:
        """A boot's seconds, but for what all rounds have in common."""
        return self.rounds.boot_s + iterations * self.rounds.sample_s

    def _plan(self) -> None:
        """Plan the rounds, once, as soon as that can be done; what was planned before an interruption holds."""
        if self.rounds.horizon is not None:
            return
        path = self.folder / "horizon.json"
        if path.is_file():
            self.rounds.plan(records.load(path, Horizon))
            return
        most, fewest, done = self.rounds.max_blocks, self.rounds.min_blocks, len(self.rounds.blocks)
        if self.deadline is None:
            planned: Horizon | None = sequential.without_budget(most, fewest)
        else:
            tries = len(self.tried) / done if done else 1.0
            planned = sequential.within(
                self.deadline - time.monotonic(), round_s=self.seconds_a_round() * tries, done=done, most=most,
                fewest=fewest, iterations=self.rounds.iterations(),
            )  # fmt: skip
        if planned is not None:
            records.save(path, planned)
            self.rounds.plan(planned)

    def counted(self) -> PerfSummary:
        """What perf counted in the boots of the rounds so far."""
        found = [self._record(boot.name) for one in self.tried if one.counts for boot in one.boots]
        return perf_stat.merge(record.perf for record in found if record is not None and record.perf is not None)

    def _late(self) -> bool:
        """Whether the next round would end after the deadline. The first is always done."""
        return (
            bool(self.tried) and self.deadline is not None and time.monotonic() + self.seconds_a_round() > self.deadline
        )

    # ---- one try

    def _stored(self, block: Block, attempt: int) -> LiveRound | None:
        """A try that was recorded before the comparison was interrupted, if it is of these very guests."""
        path = self.folder / "rounds" / f"{block.number + 1:04d}-{attempt}.json"
        if not path.is_file():
            return None
        found = records.load(path, _Round).round
        return found if all(boot.failure or self._record(boot.name) for boot in found.boots) else None

    def _try(self, block: Block, attempt: int) -> tuple[LiveRound, GuestFailed | None]:
        started = time.monotonic()
        watch = Watch(sorted({cpu for stand in self.stands for cpu_set in stand.cpu_sets for cpu in cpu_set.cpus}))
        watch.start()
        done: list[LiveBoot] = []
        error = None
        try:
            for stand in self.stands:
                for cases in stand.bench.workload.by_guest(stand.bench.cases):
                    self._boots(stand, block, attempt, [case.name for case in cases], done)
        except GuestFailed as failure:
            error = failure
        host = watch.stop()
        last = attempt >= TRIES or self.busy
        state: RoundState = "died" if error else "kept" if not host.disturbed else "disturbed" if last else "repeated"
        one = LiveRound(
            number=block.number + 1,
            attempt=attempt,
            order=list(block.order),
            iterations=block.iterations,
            state=state,
            reasons=[error.message] if error else host.reasons,
            host=host,
            seconds=round(time.monotonic() - started, 3),
            boots=sorted(done, key=lambda boot: boot.name),
        )
        return one, error

    def _boots(self, stand: Stand, block: Block, attempt: int, cases: Sequence[str], done: list[LiveBoot]) -> None:
        """The guests of one workload in a round: one after the other, or as many at once as there are sets of CPUs.

        In a duet the arms swap their CPUs from round to round, because the order of the arms does.
        """
        places = list(enumerate(block.order))
        several = len(stand.cpu_sets)
        for start in range(0, len(places), several):
            together = places[start : start + several]
            if several == 1:
                self._boot(stand, stand.cpu_sets[0], block, attempt, cases, *together[0], done)
                continue
            with ThreadPoolExecutor(max_workers=several) as pool:
                try:
                    futures = [
                        pool.submit(self._boot, stand, cpu_set, block, attempt, cases, *place, done)
                        for cpu_set, place in zip(stand.cpu_sets, together, strict=False)
                    ]
                    for future in futures:
                        future.result()
                except BaseException as error:
                    if not isinstance(error, LabError):
                        self.running.stop_all()
                    raise

    def _boot(
        self,
        stand: Stand,
        cpu_set: CpuSet,
        block: Block,
        attempt: int,
        cases: Sequence[str],
        place: int,
        arm: str,
        done: list[LiveBoot],
    ) -> None:
        """One guest: from its record where that is there, else for real."""
        bench = stand.bench
        alone = f"+{cases[0]}" if bench.workload.isolate else ""
        name = f"{block.number + 1:04d}-{attempt}-{place + 1}-{arm}-{bench.workload.name}{alone}"
        record = self._record(name)
        if record is None or record.failure or record.iterations != block.iterations:
            chosen = next(one for one in self.arms if one.name == arm)
            try:
                record = boots.boot(
                    bench,
                    chosen,
                    [bench.workload.case(case) for case in cases],
                    name=name,
                    seed=block.number + 1,
                    iterations=block.iterations,
                    cpu_set=cpu_set,
                    running=self.running,
                )
            except GuestFailed as error:
                done.append(LiveBoot(name=name, arm=arm, cpus=cpu_set.cpus, seconds=0.0, failure=error.message))
                raise
        done.append(boot_of(record))

    def _record(self, name: str) -> BootRecord | None:
        """A boot that was recorded, unless something around it has changed since."""
        path = boots.record_path(self.folder, name)
        if not path.is_file():
            return None
        record = records.load(path, BootRecord)
        kernels = {arm.name: arm.kernel.key for arm in self.arms}
        benches = {stand.bench.workload.name: stand.bench.fingerprint for stand in self.stands}
        same = kernels.get(record.arm) == record.kernel and benches.get(record.workload) == record.fingerprint
        return record if same else None

    def _learn(self) -> None:
        """How long a boot and an iteration take, from the records alone: so a comparison that goes on plans alike."""
        found = [
            record
            for one in self.tried
            if one.counts
            for boot in one.boots
            if (record := self._record(boot.name)) is not None
        ]
        guests = len(self.tried[-1].boots) // len(self.tried[-1].order)
        self.rounds.boot_s = guests * statistics.median(record.boot_s for record in found)
        spent = [(record.wall_s - record.boot_s) / record.iterations for record in found]
        self.rounds.sample_s = max(1e-3, guests * statistics.median(spent))


def boot_of(record: BootRecord) -> LiveBoot:
    """What a result says of a boot."""
    return LiveBoot(
        name=record.name, arm=record.arm, cpus=record.cpus, seconds=round(record.wall_s, 3),
        values={f"{record.workload}:{case}": values for case, values in record.values.items()},
    )  # fmt: skip


def _path(folder: Path, one: LiveRound) -> Path:
    path = folder / "rounds" / f"{one.number:04d}-{one.attempt}.json"
    path.parent.mkdir(exist_ok=True)
    return path


def _as_done(block: Block, one: LiveRound) -> Block:
    return replace(block, order=tuple(one.order), iterations=one.iterations)


def _readings(one: LiveRound) -> list[BootReading]:
    """One reading for each boot of the round's order, over all of its guests."""
    by_place: dict[int, BootReading] = {}
    for boot in one.boots:
        place = int(boot.name.split("-")[2]) - 1
        reading = by_place.setdefault(place, BootReading(arm=boot.arm, values={}))
        for case, metrics in boot.values.items():
            reading.values[case] = {
                metric: [float("nan") if value is None else value for value in values]
                for metric, values in metrics.items()
            }
    return [by_place[place] for place in sorted(by_place)]
