"""Profiles of a stored result's arms: one guest each, seed 1, with the cost model, kept beside the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from lab import ab, images, instrument, machines, results, runs, sampling, symbols
from lab.errors import GuestFailed, UserError
from lab.explain import ArmProfile
from lab.progress import Meter
from lab.results import AbResult, CaseResult
from lab.runs import Arm
from lab.table import primary_of
from lab.verdict import Outcome
from lab.workloads import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Both arms of one case, and what they were modelled on."""

    base: ArmProfile
    test: ArmProfile
    machine: str


def choose(result: AbResult, case: str | None) -> CaseResult:
    """The case to explain: the one named, else the one that changed most."""
    if case is not None:
        name = case.rpartition(":")[2]
        for one in result.cases:
            if one.case == name and case in (name, f"{one.workload}:{name}"):
                return one
        raise UserError(
            f"{result.result} has no case {case!r}", hint=f"it has {', '.join(one.case for one in result.cases)}"
        )
    changed = [one for one in result.cases if one.verdict in (Outcome.REGRESSION, Outcome.IMPROVEMENT)]
    return max(changed or result.cases, key=_movement)


def _movement(case: CaseResult) -> float:
    ratio = primary_of(case).ratio
    return max(ratio, 1 / ratio) if ratio else 1.0


def collect(folder: Path, case: CaseResult, *, machine: str, model: str, jobs: int, meter: Meter) -> Profiles:
    """Run both arms of one case under the cost model, unless that was done before, and read what it wrote."""
    plan = msgspec.structs.replace(
        results.load_plan(folder), workloads=[_selection(folder, case)], machine=machine, model=model
    )
    place = folder / "explain" / f"{case.case}-{model}-{Path(machine).stem}"
    (place / "runs").mkdir(parents=True, exist_ok=True)
    ready = ab.prepare(plan, place, jobs=jobs, meter=meter)
    (series,) = ready.series
    limits = sampling.Limits(seeds=1, max_seeds=1, fixed=True, jobs=jobs, deadline=None)
    with meter.task("profiling", 0) as task:
        sampling.run_all([(series, arm, runs.PROFILED_SEED, series.cases) for arm in ready.arms], limits, task)
    root = images.obtain(meter)[1] / "root"
    base, test = (_profile(place, series.bench.workload, arm, root) for arm in ready.arms)
    return Profiles(base=base, test=test, machine=machines.load(machine).name)


def _selection(folder: Path, case: CaseResult) -> str:
    """The workload as the plan named it, with this one case."""
    for text in results.load_plan(folder).workloads:
        reference = text if Path(text).is_dir() else text.partition(":")[0]
        if Path(reference).name == case.workload:
            return f"{reference}:{case.case}"
    return f"{case.workload}:{case.case}"


def _profile(place: Path, workload: Workload, arm: Arm, root: Path) -> ArmProfile:
    path = place / "guests" / f"{workload.name}-{arm.name}-{runs.PROFILED_SEED:04d}" / runs.COSTS
    windows = instrument.by_case(path).get(1)
    if not windows:
        raise GuestFailed("no-report", "the cost model saw nothing of the case", log=path)
    return ArmProfile(
        blocks=[block for window in windows for block in window.blocks],
        operations=sum(len(window.operations) for window in windows) or 1,
        kernel=[symbols.kernel_symbols(arm.kernel.vmlinux or arm.kernel.bzimage, arm.kernel.symbols)],
        user=[symbols.from_elf(root / workload.program.lstrip("/"))],
    )
