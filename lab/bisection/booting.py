"""Live mode's boots for a search: kernels of candidates, each booted afresh in the guest that all of them share."""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path

from lab.bisection.history import Candidate, History
from lab.bisection.journal import Built, safe_name
from lab.bisection.livework import Booted
from lab.bisection.measuring import chosen_metric, identity
from lab.bisection.plan import BisectPlan
from lab.compare import boots, exact, live_guests
from lab.compare.rounds import FIRST_ITERATIONS
from lab.core.errors import GuestFailed
from lab.core.progress import Meter
from lab.core.records import now
from lab.guests import exact as guest_exact
from lab.guests.run import Arm, Running
from lab.kernels import kernel as kernel_kernel
from lab.kernels.kernel import Kernel
from lab.stats import iterations
from lab.stats.verdict import Metric
from lab.workloads import selection
from lab.workloads.spec import Workload


def metric_of(workload: Workload, name: str | None) -> Metric:
    """The metric that decides: the workload's own primary one, or the one named. `UserError` if there is none."""
    return chosen_metric(exact.metrics_of(workload.metrics, modelled=False), name)


class Boots:
    """The `Booter` of real guests. Its records are below the session's folder."""

    def __init__(self, plan: BisectPlan, history: History, folder: Path, *, jobs: int, meter: Meter) -> None:
        """Bring both ends' kernels to hand, and the guest around all of them."""
        assert plan.live is not None  # noqa: S101  (it is a plan of live mode)
        self.plan, self.history, self.folder, self.jobs, self.meter = plan, history, folder, jobs, meter
        chosen = selection.select(plan.selection)
        self.metric = metric_of(chosen[0], plan.metric)
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
            meter=meter,
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
        with self.meter.task(f"boot {number}, {one.name}", 1) as task:
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
            raise GuestFailed("workload", f"{one.name}: the workload did not report {self.metric.name}")
        return Booted(value, samples)

    def _booted(self) -> int:
        return len(list((self.folder / "boots").glob("*.json")))

    def _taken(self, number: int, one: Candidate) -> bool:
        return boots.record_path(self.folder, _name(number, one)).exists()

    def _arm(self, one: Candidate) -> Arm:
        if one.id not in self._kernels:
            started = time.monotonic()
            spec = self.history.resolve(self.history.number(one.id), progress=self.meter.news)
            self._kernels[one.id] = kernel_kernel.obtain(spec, cc=self.plan.new.cc, jobs=self.jobs, meter=self.meter)
            self._build_s[one.id] = time.monotonic() - started
        kernel = self._kernels[one.id]
        return Arm(name="commit", kernel=kernel, settings=dict(kernel.spec.settings))


def _name(number: int, one: Candidate) -> str:
    return f"{number:05d}-{safe_name(one.name)}"
