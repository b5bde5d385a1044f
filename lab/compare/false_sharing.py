"""A lint of one kernel: the lines that its vCPUs move for nothing in a workload, by the members in them."""

from __future__ import annotations

from collections.abc import Iterator

from lab.compare import profiles, runs, sampling
from lab.compare.lines import FalseSharing, moved_for_nothing
from lab.compare.measurement import prepare
from lab.compare.plan import ArmPlan, MeasureOptions, Plan
from lab.core import process
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.records import Record
from lab.guests import image
from lab.workloads import selection


class CaseLint(Record, frozen=True, kw_only=True):
    """The false sharing in one case."""

    case: str
    lines: list[FalseSharing]


def lint(kernel: str, options: MeasureOptions, work: Work) -> list[CaseLint]:
    """The false sharing of a kernel in each case, from one guest of each workload.

    `UserError` for workloads whose vCPUs do not contend.
    """
    for workload, _ in selection.select_all(options.workload):
        if not workload.contends or workload.vcpus < 2:
            raise UserError(
                f"{workload.name}: one vCPU shares no line", hint=f"name more of them: {workload.name.split('@')[0]}@4"
            )
    options.require()
    (spec,) = options.resolve([kernel], work.progress)
    arm = ArmPlan(spec=spec, cc=options.cc)
    return list(_linted(Plan.of(options.for_kernels([spec]), base=arm, test=arm), work))


def _linted(plan: Plan, work: Work) -> Iterator[CaseLint]:
    with process.scratch("lab-lint-") as folder:
        (folder / "runs").mkdir()
        ready = prepare(plan, folder, work)
        guests = [(one, one.guest(ready.arms[0], runs.PROFILED_SEED, one.cases)) for one in ready.series]
        with work.progress.task("looking at lines", None) as task:
            sampling.run_all(guests, work.until(None), task)
        for one, guest in guests:
            _, made = image.obtain(work.progress, packages=one.bench.workload.packages)
            for name, profile in profiles.of_guest(guest, made / "root").items():
                yield CaseLint(case=f"{one.bench.workload.name}:{name}", lines=moved_for_nothing(profile))
