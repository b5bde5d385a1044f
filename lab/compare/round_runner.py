"""Runs rounds of live mode: boots of both arms next to each other, repeated if the host was disturbed.

Every boot and every round is stored as it ends and never measured again: a resumed comparison reads their records.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.compare import boots
from lab.compare.boots import BootRecord, GuestSetup, Job
from lab.compare.live_results import LiveBoot, LiveRound, RoundState
from lab.compare.rounds import Block, BootReading, Rounds
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure, LabError
from lab.core.records import Record
from lab.guests import perf_stat
from lab.guests.host import Watch
from lab.guests.perf_stat import PerfSummary
from lab.guests.run import Arm, RunningGuests
from lab.guests.topology import CpuSet
from lab.stats import sequential
from lab.stats.defaults import MIN_PAIRS
from lab.stats.sequential import RoundPlan

TRIES = 3
"""Tries of a round before it counts although it was disturbed, and deaths of an arm's guest that break the arm."""


class _Round(Record, frozen=True, kw_only=True):
    """The record of one try at a round: `rounds/<number>-<attempt>.json`."""

    schema: int = 1
    round: LiveRound


@dataclass(kw_only=True)
class RoundRunner:
    """A comparison while its rounds run.

    deadline: on the monotonic clock.
    tried: every try at a round so far.
    busy: True after a round without a quiet try; later rounds get one try.
    on_trouble: called with each try that was disturbed or died, as soon as it ends: another can take minutes.
    """

    setups: Sequence[GuestSetup]
    arms: Sequence[Arm]
    rounds: Rounds
    folder: Path
    deadline: float | None
    running: RunningGuests = field(default_factory=RunningGuests)
    tried: list[LiveRound] = field(default_factory=list)
    busy: bool = False
    on_trouble: Callable[[LiveRound], None] | None = None

    def run_round(self) -> LiveRound | None:
        """Run the next round, with as many tries as it takes. None if no round or no time is left.

        Raises `GuestFailed` when an arm's guest died in each of the tries: the arm is broken.
        """
        self._plan()
        block = self.rounds.next()
        if block is None or self._is_late():
            return None
        deaths: Counter[str] = Counter()
        for attempt in itertools.count(1):
            live_round, error = self._stored(block, attempt), None
            if live_round is None:
                live_round, error = self._try(block, attempt)
                records.save(self._round_path(block, attempt), _Round(round=live_round))
            self.tried.append(live_round)
            if live_round.reasons and self.on_trouble:
                self.on_trouble(live_round)
            if error is not None:
                arm = next(boot.arm for boot in live_round.boots if boot.failure)
                deaths[arm] += 1
                if deaths[arm] >= TRIES:
                    where = f"its guest died {TRIES} times in round {live_round.number}"
                    error.message = f"the {arm} arm is broken: {where}, last: {error.message}"
                    raise error
            if live_round.counts:
                self.busy = self.busy or live_round.state == "disturbed"
                self._drop_unsupported()
                done = replace(block, order=tuple(live_round.order), iterations=live_round.iterations)
                self.rounds.add(done, _readings(live_round))
                self._learn()
                self._plan()
                return live_round
        raise AssertionError("unreachable")

    def seconds_a_round(self) -> float:
        """The time that the next round takes, judged by those so far."""
        if not self.tried:
            return 0.0
        length = statistics.median(tried.seconds / self._length(tried.iterations) for tried in self.tried)
        return length * self._length(self.rounds.iterations())

    def _length(self, iterations: int) -> float:
        """The length of a boot in seconds, up to a factor that all rounds share."""
        return self.rounds.boot_s + iterations * self.rounds.sample_s

    def _plan(self) -> None:
        """Plan the rounds, once, as soon as that can be done; a plan made before an interruption holds."""
        if self.rounds.round_plan is not None:
            return
        path = self.folder / "horizon.json"
        if path.is_file():
            self.rounds.plan(records.load(path, RoundPlan))
            return
        most, fewest, done = self.rounds.design.max_blocks, MIN_PAIRS, len(self.rounds.blocks)
        if self.deadline is None:
            planned: RoundPlan | None = sequential.plan_without_budget(most, fewest)
        else:
            tries = len(self.tried) / done if done else 1.0
            planned = sequential.plan_within(
                self.deadline - time.monotonic(), round_s=self.seconds_a_round() * tries, done=done, most=most,
                fewest=fewest, iterations=self.rounds.iterations(),
            )  # fmt: skip
        if planned is not None:
            records.save(path, planned)
            self.rounds.plan(planned)

    def unsupported(self) -> dict[str, dict[str, str]]:
        """The errors of the cases that a kernel does not offer, by case and arm."""
        found: dict[str, dict[str, str]] = {}
        for record in self._counted_boots():
            for case, error in record.unsupported.items():
                found.setdefault(f"{record.workload}:{case}", {})[record.arm] = f"{record.arm} arm: {error}"
        return found

    def _drop_unsupported(self) -> None:
        """Leave out the cases that a kernel does not offer. Raises `GuestFailed` if none is left."""
        found = self.unsupported()
        if all(case in found for case in self.rounds.metrics):
            raise GuestFailed(GuestFailure.UNSUPPORTED, next(iter(next(iter(found.values())).values())))
        self.rounds.drop(found)

    def counted(self) -> PerfSummary:
        """Perf's counts in the boots of the rounds so far."""
        return perf_stat.merge(record.perf for record in self._counted_boots() if record.perf is not None)

    def _counted_boots(self) -> list[BootRecord]:
        """The records of the boots of the rounds that count."""
        names = [boot.name for tried in self.tried if tried.counts for boot in tried.boots]
        return [record for name in names if (record := self._record(name)) is not None]

    def _is_late(self) -> bool:
        """True if the next round would end after the deadline. The first one is always done."""
        if not self.tried or self.deadline is None:
            return False
        return time.monotonic() + self.seconds_a_round() > self.deadline

    # ---- one try

    def _stored(self, block: Block, attempt: int) -> LiveRound | None:
        """A try of these very guests that was recorded before the comparison was interrupted."""
        if (found := records.find(self._round_path(block, attempt), _Round)) is None:
            return None
        stored = found.round
        return stored if all(boot.failure or self._record(boot.name) for boot in stored.boots) else None

    def _round_path(self, block: Block, attempt: int) -> Path:
        path = self.folder / "rounds" / f"{block.number + 1:04d}-{attempt}.json"
        path.parent.mkdir(exist_ok=True)
        return path

    def _try(self, block: Block, attempt: int) -> tuple[LiveRound, GuestFailed | None]:
        started = time.monotonic()
        watch = Watch(sorted({cpu for setup in self.setups for cpu_set in setup.cpu_sets for cpu in cpu_set.cpus}))
        watch.start()
        done: list[LiveBoot] = []
        error = None
        try:
            for setup in self.setups:
                for cases in setup.workload.by_guest(setup.cases):
                    job = Job(cases=cases, seed=block.number + 1, iterations=block.iterations, may_lack=True)
                    self._boots(setup, block, attempt, job, done)
        except GuestFailed as failure:
            error = failure
        host = watch.stop()
        last = attempt >= TRIES or self.busy
        state: RoundState = "died" if error else "kept" if not host.disturbed else "disturbed" if last else "repeated"
        tried = LiveRound(
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
        return tried, error

    def _boots(self, setup: GuestSetup, block: Block, attempt: int, job: Job, done: list[LiveBoot]) -> None:
        """The guests of one workload in a round: one after the other, or as many at once as there are cpu_sets.

        In a duet the arms swap their CPUs from round to round, because the order of the arms does.
        """
        alone = f"+{job.cases[0].name}" if setup.workload.isolate else ""
        names = [
            (arm, f"{block.number + 1:04d}-{attempt}-{place}-{arm}-{setup.workload.name}{alone}")
            for place, arm in enumerate(block.order, start=1)
        ]
        several = len(setup.cpu_sets)
        for start in range(0, len(names), several):
            together = names[start : start + several]
            if several == 1:
                self._boot(setup, setup.cpu_sets[0], job, *together[0], done)
                continue
            with ThreadPoolExecutor(max_workers=several) as pool:
                try:
                    futures = [
                        pool.submit(self._boot, setup, cpu_set, job, arm, name, done)
                        for cpu_set, (arm, name) in zip(setup.cpu_sets, together, strict=False)
                    ]
                    for future in futures:
                        future.result()
                except BaseException as error:
                    if not isinstance(error, LabError):
                        self.running.stop_all()
                    raise

    def _boot(self, setup: GuestSetup, cpu_set: CpuSet, job: Job, arm: str, name: str, done: list[LiveBoot]) -> None:
        """One guest, from its record if there is one, else for real."""
        record = self._record(name)
        if record is None or record.failure or record.iterations != job.iterations:
            known = next(known for known in self.arms if known.name == arm)
            try:
                record = boots.boot(setup, known, job, name=name, cpu_set=cpu_set, running=self.running)
            except GuestFailed as error:
                done.append(LiveBoot(name=name, arm=arm, cpus=cpu_set.cpus, seconds=0.0, failure=error.message))
                raise
        values = {f"{record.workload}:{case}": found for case, found in record.values.items()}
        seconds = round(record.wall_s, 3)
        done.append(LiveBoot(name=record.name, arm=record.arm, cpus=record.cpus, seconds=seconds, values=values))

    def _record(self, name: str) -> BootRecord | None:
        """A boot that was recorded, unless something around it has changed since."""
        if (record := records.find(boots.record_path(self.folder, name), BootRecord)) is None:
            return None
        kernels = {arm.name: arm.kernel.key for arm in self.arms}
        setups = {setup.workload.name: setup.fingerprint for setup in self.setups}
        same = kernels.get(record.arm) == record.kernel and setups.get(record.workload) == record.fingerprint
        return record if same else None

    def _learn(self) -> None:
        """Estimate the time of a boot and of an iteration, from records alone, so that a resumed run plans alike."""
        counted = self._counted_boots()
        guests = len(self.tried[-1].boots) // len(self.tried[-1].order)
        self.rounds.boot_s = guests * statistics.median(record.boot_s for record in counted)
        spent = [(record.wall_s - record.boot_s) / record.iterations for record in counted]
        self.rounds.sample_s = max(1e-3, guests * statistics.median(spent))


def _readings(live_round: LiveRound) -> list[BootReading]:
    """One reading for each boot of the round's order, over all of its guests."""
    by_place: dict[int, BootReading] = {}
    for boot in live_round.boots:
        place = int(boot.name.split("-")[2]) - 1
        reading = by_place.setdefault(place, BootReading(arm=boot.arm, values={}))
        for case, metrics in boot.values.items():
            reading.values[case] = {
                metric: [float("nan") if value is None else value for value in values]
                for metric, values in metrics.items()
            }
    return [by_place[place] for place in sorted(by_place)]
