"""Measuring again what was measured: every guest of a stored result once more, and every number compared."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from lab.compare import exact, matrix, matrix_results, results, runs, sampling
from lab.compare.matrix_results import MatrixResult
from lab.compare.results import AbResult
from lab.compare.runs import Run, run_name
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.records import Record

Numbers = Mapping[str, Mapping[str, float]]


class Replay(Record, frozen=True, kw_only=True):
    """`lab replay --json`. differences: one line for each number; environment: what around them is another."""

    schema: str = "lab.replay/1"
    result: str
    guests: int
    differences: list[str]
    environment: list[str]


class _Guest(Protocol):
    """What names a guest's numbers."""

    @property
    def workload(self) -> str: ...
    @property
    def arm(self) -> str: ...
    @property
    def seed(self) -> int: ...


def differences(guest: _Guest, before: Numbers, after: Numbers) -> list[str]:
    """Every number, by case and metric, that is not the same."""
    return list(_differing(guest, before, after))


def _differing(guest: _Guest, before: Numbers, after: Numbers) -> Iterator[str]:
    for case, numbers in before.items():
        now = after.get(case, {})
        for name in [*numbers, *(name for name in now if name not in numbers)]:
            if now.get(name) != numbers.get(name):
                where = f"{guest.workload}:{case} {name} {guest.arm} seed {guest.seed}"
                yield f"{where}: {numbers.get(name)} became {now.get(name)}"


def replay(result_id: str, work: Work) -> Replay:
    """All guests of a stored comparison or matrix once more."""
    folder = results.open_folder(result_id)
    stored = _stored(folder)
    if isinstance(stored, AbResult) and stored.live is not None:
        raise UserError(
            f"{stored.result} is of live mode, and real time never comes out alike to the last digit",
            hint=f"measure again: {stored.reproduce}",
        )
    before = runs.load_all(folder)
    with tempfile.TemporaryDirectory(prefix="lab-replay-") as scratch:
        ready = _prepare(folder, results.new_folder(Path(scratch)), work)
        _run_again(before, ready, work)
    return Replay(
        result=stored.result,
        guests=len(before),
        differences=[line for run in before for line in differences(run, _numbers(run), _numbers(_again(run, ready)))],
        environment=[
            name
            for name in ("qemu", "machine", "cpu", "shift", "cmdline", "settings", "guests")
            if getattr(stored.environment, name) != getattr(ready.environment, name)
        ],
    )


def _stored(folder: Path) -> AbResult | MatrixResult:
    if results.kind(folder) == matrix_results.KIND:
        return matrix_results.load_result(folder)
    return results.load_result(folder)


def _prepare(folder: Path, scratch: Path, work: Work) -> exact.Prepared:
    if results.kind(folder) == matrix_results.KIND:
        return matrix.prepare(matrix_results.load_plan(folder), scratch, work)
    return exact.prepare(results.load_plan(folder), scratch, work)


def _run_again(before: list[Run], ready: exact.Prepared, work: Work) -> None:
    """Repeat each stored run: the same arm, seed and cases."""
    series = {one.bench.workload.name: one for one in ready.series}
    arms = {arm.name: arm for arm in ready.arms}
    guests = []
    for run in before:
        one = series[run.workload]
        cases = [one.bench.workload.case(name) for name in run.cases]
        guests.append((one, one.guest(arms[run.arm], run.seed, cases)))
    with work.progress.task("replaying", 0) as task:
        sampling.run_all(guests, work, task)


def _again(run: Run, ready: exact.Prepared) -> Run:
    series = next(one for one in ready.series if one.bench.workload.name == run.workload)
    cases = [series.bench.workload.case(name) for name in run.cases]
    return series.done[run_name(series.bench.workload, run.arm, run.seed, cases)]


def _numbers(run: Run) -> Numbers:
    return {case: run.metrics(case) for case in run.cases}
