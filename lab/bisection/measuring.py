"""Measuring one commit: its kernel, its guests, its numbers; or the way in which it cannot be tested.

What is the commit's own doing (it does not build, boot or survive the workload) makes it untestable. What is this
machine's doing never says anything about a commit: it is tried once more, then the search stops.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from lab.bisection.history import Candidate, History
from lab.bisection.journal import Reading, place_of
from lab.bisection.plan import BisectPlan
from lab.compare import exact, runs, sampling
from lab.compare.sampling import Limits, Series
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, HostFailed, LabError, UserError
from lab.core.progress import Meter
from lab.core.records import now
from lab.guests.run import Arm
from lab.kernels import kernel
from lab.kernels.kernel import Kernel, MachineType
from lab.kernels.resolve import KernelSpec
from lab.stats.verdict import Metric


class OutOfTime(Exception):
    """Not an error: guests of a commit are still to be run, and no time is left. Those that did run are on disk."""


class Measurer:
    """Measures the kernels of one session, all in the same guest. Its files are below the session's folder."""

    def __init__(
        self, plan: BisectPlan, history: History, folder: Path, *, jobs: int, deadline: float | None, meter: Meter
    ) -> None:
        self.plan, self.history, self.folder = plan, history, folder
        self.jobs, self.deadline, self.meter = jobs, deadline, meter
        self._resolving = threading.Lock()
        ready = exact.prepare(plan.comparison(plan.old, plan.new), folder, jobs=jobs, meter=meter)
        (self._series,) = ready.series
        self.environment = ready.environment
        self.bench = self._series.bench
        self.machine: MachineType = self.bench.machine
        self.metric = chosen_metric(_metrics(self._series), plan.metric)

    def obtain(self, spec: KernelSpec, meter: Meter | None = None) -> Kernel:
        """The kernel of a spec, built if need be."""
        return kernel.obtain(spec, cc=self.plan.new.cc, jobs=self.jobs, meter=meter or self.meter)

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
                self.meter.say(f"{error.message}; trying once more")
        raise AssertionError("unreachable")

    def _measure(
        self, one: Candidate, seeds: Sequence[int], known: Sequence[Reading], built_now: Callable[[], object]
    ) -> Reading:
        started = time.monotonic()
        try:
            with self._resolving:
                spec = self.history.resolve(self.history.number(one.id), progress=self.meter.news)
            kernel = self.obtain(spec)
            image = identity(kernel, self.machine)
        except (BuildFailed, UserError, ValueError) as error:
            return self._untestable(one, "build", error, build_s=time.monotonic() - started)
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
            if error.kind in runs.HOSTS_DOING:
                raise
            return self._untestable(one, error.kind, error, build_s=reading.build_s, image=image, kernel=kernel.key)
        return replace(reading, values=values, run_s=round(time.monotonic() - built, 3))

    def run(self, one: Candidate, kernel: Kernel, seeds: Sequence[int]) -> list[float]:
        """The metric of a commit for each seed; guests that were recorded before are not run again."""
        series = self.series(one)
        arm = Arm(name="commit", kernel=kernel, settings=dict(kernel.spec.settings))
        limits = Limits(seeds=len(seeds), max_seeds=len(seeds), fixed=True, jobs=self.jobs, deadline=self.deadline)
        with self.meter.task(f"measuring {one.name}", 0) as task:
            sampling.run_all([(series, arm, seed, series.cases) for seed in seeds], limits, task)
        case = series.cases[0]
        done = [series.run("commit", seed, case) for seed in seeds]
        if not all(done):
            raise OutOfTime
        found = [run.metrics(case.name).get(self.metric.name) for run in done if run]
        if any(value is None for value in found):
            raise GuestFailed("workload", f"{one.name}: the workload did not report {self.metric.name}")
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
        how: str,
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
