"""Measure `workloads/seconds.toml`: the processor time of the lab's own workloads in guests of exact mode.

python -m tests.scenarios.seconds efa7df3e3bb5 deb:6.12 > seconds.toml && mv seconds.toml workloads/

Takes a kernel of a tree and a package. Each guest runs twice, and the faster one counts: what else the machine does
makes a guest slower and never faster.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lab.compare import estimates, result_folders, runs
from lab.compare.measurement import prepare
from lab.compare.plan import ArmPlan, MeasureOptions, Plan
from lab.compare.sampling import Series
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.guests.run import Arm, RunningGuests
from lab.workloads import selection
from lab.workloads.spec import Case

_MODELS = ("none", "tlb", "full")
_TURNS = 4


def main() -> None:
    built, package = sys.argv[1:]
    print("# Processor seconds of guests, as `python -m tests.scenarios.seconds` measured them.\nschema = 1\n")  # noqa: T201
    with tempfile.TemporaryDirectory() as name:
        nothing = Path(name) / "nothing.sh"
        nothing.write_text("#!/bin/sh\nexit 0\n")
        boots = {spec: _measured(spec, f"script:{nothing}", "auto")["nothing"] for spec in (built, package)}
        restored = _measured(package, f"script:{nothing}", "auto", snapshot=True)["nothing"]
    print(f"built = {boots[built]:.2f}\npackage = {boots[package]:.2f}\nrestored = {restored:.2f}")  # noqa: T201
    table = estimates._table()
    print(f"case = {table.case}\nvcpu = {table.vcpu}\ncontention = {table.contention}\n\n[model]")  # noqa: T201
    for model, factor in _models(built, boots[built]).items():
        print(f"{model} = {factor:.2f}", flush=True)  # noqa: T201
    for workload in selection.list_workloads():
        print(f"\n[workload.{workload.name}]")  # noqa: T201
        for case, seconds in _measured(built, workload.name, "auto").items():
            print(f"{case} = {seconds:.3f}", flush=True)  # noqa: T201


def _models(spec: str, boot: float) -> dict[str, float]:
    """The work of a sweep under each model, to that under `tlb`; the models take turns."""
    seconds: dict[str, list[float]] = {model: [] for model in _MODELS}
    with tempfile.TemporaryDirectory() as name:
        ready = {model: _prepared(Path(name) / model, spec, "alloc-burst", model) for model in _MODELS}
        for _ in range(_TURNS):
            for model, (series, arm) in ready.items():
                seconds[model].append(_once(series, arm, series.cases))
    return {model: (min(taken) - boot) / (min(seconds["tlb"]) - boot) for model, taken in seconds.items()}


def _prepared(folder: Path, spec: str, workload: str, model: str, *, snapshot: bool = False) -> tuple[Series, Arm]:
    work = Work(progress=Progress(quiet=True), jobs=1)
    options = MeasureOptions(workload=(workload,), model=model, seeds=1, snapshot=snapshot)
    arm = ArmPlan(spec=options.resolve([spec], work.progress)[0], cc="gcc")
    ready = prepare(Plan.of(options, base=arm, test=arm), result_folders.new_folder(folder), work)
    return ready.series[0], ready.arms[0]


def _measured(spec: str, workload: str, model: str, *, snapshot: bool = False) -> dict[str, float]:
    """The processor seconds of each case's guest; where cases share one, those of the guest and of each case more."""
    with tempfile.TemporaryDirectory() as name:
        series, arm = _prepared(Path(name) / "result", spec, workload, model, snapshot=snapshot)
        if series.bench.workload.isolate:
            return {case.name: _seconds(series, arm, [case]) for case in series.cases}
        whole, one = (_seconds(series, arm, cases) for cases in (series.cases, series.cases[:1]))
        each = max(0.0, whole - one) / (len(series.cases) - 1)
        return {"guest": whole - each * len(series.cases), "each": each}


def _seconds(series: Series, arm: Arm, cases: Sequence[Case]) -> float:
    return min(_once(series, arm, cases) for _ in range(2))


def _once(series: Series, arm: Arm, cases: Sequence[Case]) -> float:
    guest = series.guest(arm, 1, cases)
    runs.make_folder(guest)
    began = time.thread_time()
    output = runs.boot(guest, RunningGuests())
    runs.save_run(guest, output)
    return output.cpu_s + time.thread_time() - began


if __name__ == "__main__":
    main()
