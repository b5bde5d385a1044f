"""Replays a stored result of exact mode: runs every guest once more, and compares every number."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lab.compare import matrix_results, result_folders, runs, sampling
from lab.compare.measurement import ExactGuests, prepare
from lab.compare.results import AbResult, ResultEnvironment
from lab.compare.runs import Run
from lab.core import process, records
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.records import Record
from lab.guests import costs, model_version

Numbers = Mapping[str, Mapping[str, float]]


class Replay(Record, frozen=True, kw_only=True):
    """`lab replay --json`. differences: one line for each number; environment: the names of the facts that differ."""

    schema: str = "lab.replay/1"
    result: str
    guests: int
    differences: list[str]
    environment: list[str]


def differences(workload: str, arm: str, seed: int, before: Numbers, after: Numbers) -> list[str]:
    """Every number of a guest, by case and metric, that is not the same. Older records do not have all of them."""
    lines = []
    for case, numbers in before.items():
        now = after.get(case, {})
        for name in dict.fromkeys([*numbers, *now]):
            if now.get(name) != numbers.get(name) and (name in numbers or name not in costs.LATER):
                where = f"{workload}:{case} {name} {arm} seed {seed}"
                lines.append(f"{where}: {numbers.get(name)} became {now.get(name)}")
    return lines


def replay(result_id: str, work: Work, *, guest_timeout_s: float | None = None) -> Replay:
    """Run all guests of a stored comparison or matrix once more. guest_timeout_s: another than in its plan."""
    folder = result_folders.open_folder(result_id)
    is_matrix = result_folders.kind(folder) == matrix_results.KIND
    stored = matrix_results.load_result(folder) if is_matrix else result_folders.load_result(folder)
    if isinstance(stored, AbResult) and stored.live is not None:
        raise UserError(
            f"{stored.result} was measured in live mode, in which no two runs are equal to the last digit",
            hint=f"measure again: {stored.reproduce}",
        )
    before = runs.load_all(folder)
    with process.scratch("lab-replay-") as scratch:
        into = result_folders.new_folder(scratch)
        plan = matrix_results.load_plan(folder) if is_matrix else result_folders.load_plan(folder)
        if guest_timeout_s is not None:
            plan = msgspec.structs.replace(plan, guest_timeout_s=guest_timeout_s)
        guests = prepare(plan, into, work)
        after = _run_again(before, guests, work)
    differing: list[str] = []
    for old, new in zip(before, after, strict=True):
        differing += differences(old.workload, old.arm, old.seed, _numbers(old), _numbers(new))
    environment = environment_changes(stored.environment, guests.environment)
    return Replay(result=stored.result, guests=len(before), differences=differing, environment=environment)


def environment_changes(then: ResultEnvironment, now: ResultEnvironment) -> list[str]:
    """The facts that differ between a stored result's environment and the one here; none if their guests are equal."""
    if then.fingerprint == now.fingerprint:
        return []
    facts = ("qemu", "machine", "cpu", "shift", "cmdline", "settings")
    names = [name for name in facts if getattr(then, name) != getattr(now, name)]
    if version := model_version.changes(then.model_version, now.guests):
        names.append(version)
    before, after = map(_guest_facts, (then, now))
    if of_guests := [name for name in before if before[name] != after.get(name)]:
        names.append(f"guests ({', '.join(of_guests)})")
    return names or ["fingerprint"]


def _guest_facts(environment: ResultEnvironment) -> dict[str, list[object]]:
    """Each fact of all guests by its name, without the model's version."""
    shapes = [records.plain(shape) for _, shape in sorted(environment.guests.items())]
    facts = {name: [shape[name] for shape in shapes] for name in shapes[0] if name != "fingerprint"}
    # The last word is the version; before there were versions, it was the digest of the plugin's sources.
    return {**facts, "model": [shape["model"].rpartition(" ")[0] for shape in shapes]}


def _run_again(before: list[Run], guests: ExactGuests, work: Work) -> list[Run]:
    """Repeat each stored run: the same arm, seed and cases."""
    series = {one.bench.workload.name: one for one in guests.series}
    arms = {arm.name: arm for arm in guests.arms}
    again = []
    for run in before:
        one = series[run.workload]
        cases = [one.bench.workload.case(name) for name in run.cases]
        again.append((one, one.guest(arms[run.arm], run.seed, cases, windows=run.repeats)))
    with work.progress.task("replaying", None) as task:
        sampling.run_all(again, work, task, loss="arm")
    if died := [error for one in series.values() for _, error in one.died]:
        raise died[0]
    return [one.done[guest.name] for one, guest in again]


def _numbers(run: Run) -> Numbers:
    return {case: run.metrics(case) for case in run.cases}
