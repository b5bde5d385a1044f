"""`lab replay`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from lab import ab as comparing
from lab import matrix, matrixresults, records, results, sampling
from lab.commands import options
from lab.errors import GuestFailed
from lab.matrixresults import MatrixResult
from lab.progress import Meter
from lab.results import AbResult
from lab.runs import Run, run_name


@click.command()
@click.argument("result_id", metavar="ID")
@options.jobs
@options.json_output
def replay(result_id: str, jobs: int | None, as_json: bool) -> None:
    """Measure a stored result again, guest by guest, and compare every number to the last digit.

    Exits 4 if a number differs.

    \b
    Example:
      lab replay latest
    """
    folder = results.open_folder(result_id)
    stored = _stored(folder)
    before = [records.load(path, Run) for path in sorted((folder / "runs").glob("*.json"))]
    with tempfile.TemporaryDirectory(prefix="lab-replay-") as scratch, Meter() as meter:
        ready = _prepare(folder, results.new_folder(Path(scratch)), jobs or comparing.default_jobs(), meter)
        _run_again(before, ready, jobs or comparing.default_jobs(), meter)
    differing = [line for run in before for line in _differences(run, _again(run, ready))]
    around = [
        name
        for name in ("qemu", "machine", "cpu", "shift", "cmdline", "settings", "guests")
        if getattr(stored.environment, name) != getattr(ready.environment, name)
    ]
    if as_json:
        document = {"schema": "lab.replay/1", "result": stored.result, "differences": differing, "environment": around}
        click.echo(records.encode(document), nl=False)
    else:
        for line in differing:
            click.echo(line)
        click.echo(f"{stored.result}: {len(before)} guests run again, {len(differing)} numbers differ")
        if around:
            click.echo(f"the environment differs in: {', '.join(around)}")
    if differing:
        raise GuestFailed(
            "malformed",
            f"{len(differing)} numbers of {stored.result} came out differently",
            hint="the environment differs" if around else "the same environment must give the same: please report it",
        )


def _stored(folder: Path) -> AbResult | MatrixResult:
    if results.kind(folder) == matrixresults.KIND:
        return matrixresults.load_result(folder)
    return results.load_result(folder)


def _prepare(folder: Path, scratch: Path, jobs: int, meter: Meter) -> comparing.Prepared:
    if results.kind(folder) == matrixresults.KIND:
        return matrix.prepare(matrixresults.load_plan(folder), scratch, jobs=jobs, meter=meter)
    return comparing.prepare(results.load_plan(folder), scratch, jobs=jobs, meter=meter)


def _run_again(before: list[Run], ready: comparing.Prepared, jobs: int, meter: Meter) -> None:
    """Repeat each stored run: the same arm, seed and cases."""
    series = {one.bench.workload.name: one for one in ready.series}
    arms = {arm.name: arm for arm in ready.arms}
    work: list[sampling.Work] = []
    for run in before:
        one = series[run.workload]
        work.append((one, arms[run.arm], run.seed, [one.bench.workload.case(name) for name in run.cases]))
    limits = sampling.Limits(seeds=0, max_seeds=0, fixed=True, jobs=jobs, deadline=None)
    with meter.task("replaying", 0) as task:
        sampling.run_all(work, limits, task)


def _again(run: Run, ready: comparing.Prepared) -> Run:
    series = next(one for one in ready.series if one.bench.workload.name == run.workload)
    cases = [series.bench.workload.case(name) for name in run.cases]
    return series.done[run_name(series.bench.workload, run.arm, run.seed, cases)]


def _differences(run: Run, again: Run) -> list[str]:
    """Every number that is not the same, one line each."""
    return [
        f"{run.workload}:{case} {name} {run.arm} seed {run.seed}: {value} became {now}"
        for case in run.cases
        for name, value in run.metrics(case).items()
        if (now := again.metrics(case).get(name)) != value
    ]
