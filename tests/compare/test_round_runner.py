"""Rounds as they are taken: order, repeats, deaths, budgets, and going on, with guests that never boot."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lab.compare import boots, judge, round_runner
from lab.compare.boots import BootRecord, GuestSetup, Job
from lab.compare.round_runner import RoundRunner
from lab.compare.rounds import Design, Rounds
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure
from lab.guests.host import RoundHost
from lab.guests.live_machine import LiveGuest
from lab.guests.run import Arm
from lab.guests.topology import CpuSet, Shape
from lab.kernels.architecture import MachineType
from lab.stats.sequential import RoundPlan
from lab.stats.verdict import Outcome
from lab.workloads import selection

from ..fakes import live as fakelive
from ..fakes.guest import WORKLOAD, Formula, kernel, write_workload
from ..fakes.live import QUIET, LiveHost


class Host(LiveHost):
    """Its guests have a `speed`: the throughput of an arm, a round, a case; or it raises. Its watch sees troubles.

    lacking: cases that an arm's kernel does not offer.
    """

    def __init__(self, speed: Formula) -> None:
        super().__init__()
        self.speed = speed
        self.cpu_sets: dict[str, list[int]] = {}
        self.lacking: dict[str, list[str]] = {}
        self.troubles: Iterator[list[str]] = iter(())
        self.now_s = self.try_s = 0.0

    def boot(self, bench: GuestSetup, arm: Arm, job: Job, **how: Any) -> BootRecord:
        values: fakelive.Values = {
            case.name: {
                "throughput": [self.speed(arm.name, job.seed, case.name)] * job.iterations,
                "faults": [None] * job.iterations,
            }
            for case in job.cases
            if case.name not in self.lacking.get(arm.name, [])
        }
        self.booted.append(how["name"])
        self.cpu_sets[how["name"]] = how["cpu_set"].cpus
        lacking = {case.name: f"{case.name} is not there" for case in job.cases if case.name not in values}
        return fakelive.ran(bench, arm, values, job, unsupported=lacking, **how)

    def stop(self) -> RoundHost:
        """The watch ends, with the next trouble of the list."""
        self.now_s += self.try_s
        return replace(QUIET, reasons=next(self.troubles, []))

    def keep_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A clock of its own, by which a try of a round takes 10 s; and a speed that few rounds do not settle."""
        self.try_s = 10.0
        self.speed = lambda arm, seed, case: 100.0 * (1 + 0.1 * (seed % 3 - 1) * (arm == "test"))
        monkeypatch.setattr(round_runner.time, "monotonic", lambda: self.now_s)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    found = Host(lambda arm, seed, case: (50.0 if arm == "test" else 100.0) + seed % 3)
    fakelive.pretend(monkeypatch, tmp_path, found)
    return found


def runner(
    folder: Path, *, cpu_sets: int = 1, rounds: int = 20, fixed: bool = False, alone: bool = False
) -> RoundRunner:
    """A comparison of two arms over the made-up workload."""
    folder.joinpath("boots").mkdir(parents=True, exist_ok=True)
    text = WORKLOAD.replace("vcpus = 1", "vcpus = 1\nisolate = true") if alone else WORKLOAD
    workload = selection.load(write_workload(folder / "mine", text))
    cpu_set = CpuSet(cpus=[0], others=[1], nodes=[])
    guest = LiveGuest(
        qemu="/q", accelerator="tcg", shape=Shape(cores=1), cpu_set=cpu_set, memory_mb=512, hugepage_kb=None,
        arguments=[],
    )  # fmt: skip
    setup = GuestSetup(
        guest=guest, machine=MachineType.Q35, workload=workload, cases=workload.cases, packed_root=folder / "slice",
        root=folder / "root", cpu_sets=[CpuSet(cpus=[n], others=[], nodes=[]) for n in range(cpu_sets)], timeout_s=10,
        folder=folder, fingerprint="print",
    )  # fmt: skip
    metrics = judge.metrics_of(workload, workload.metrics, modelled=False)
    design = Design(threshold=0.02, alpha=0.01, max_blocks=rounds, seed=1, fixed_iterations=2, fixed_blocks=fixed)
    planned = Rounds({f"mine:{case.name}": metrics for case in workload.cases}, design, boot_s=2, sample_s=1)
    arms = [Arm(name=name, kernel=kernel(name), settings={}) for name in ("base", "test")]
    return RoundRunner(setups=[setup], arms=arms, rounds=planned, folder=folder, deadline=None)


def all_of(one: RoundRunner) -> None:
    while one.run_round() is not None:
        pass


def test_rounds_are_taken_until_every_case_is_decided(tmp_path: Path, host: Host) -> None:
    one = runner(tmp_path)
    all_of(one)
    verdicts = [found[0].verdict for found in one.rounds.standing().values()]
    assert verdicts == [Outcome.REGRESSION, Outcome.REGRESSION]
    assert 6 <= len(one.tried) < 20
    assert [found.state for found in one.tried] == ["kept"] * len(one.tried)
    assert [name.split("-")[3] for name in host.booted[:2]] == one.tried[0].order
    assert sorted(path.name for path in (tmp_path / "rounds").iterdir())[0] == "0001-1.json"
    assert one.rounds.boot_s == 3.0 and one.rounds.sample_s == 1.0


def test_nothing_is_measured_twice(tmp_path: Path, host: Host) -> None:
    first = runner(tmp_path)
    for _ in range(4):
        first.run_round()
    booted = len(host.booted)
    again = runner(tmp_path)
    for _ in range(4):
        again.run_round()
    assert len(host.booted) == booted
    assert again.tried == first.tried and again.rounds.standing() == first.rounds.standing()
    all_of(again)
    assert len(host.booted) == len(set(host.booted))


def test_a_round_that_was_cut_short_is_completed(tmp_path: Path, host: Host) -> None:
    speed = host.speed

    def killed_at_the_second(arm: str, seed: int, case: str) -> float:
        if host.booted:
            raise KeyboardInterrupt
        return speed(arm, seed, case)

    host.speed = killed_at_the_second
    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path).run_round()
    host.speed = speed
    runner(tmp_path).run_round()
    assert [name.split("-")[:3] for name in host.booted] == [["0001", "1", "1"], ["0001", "1", "2"]]


@pytest.mark.parametrize(
    ("field", "value", "of_a_whole_round"),
    [
        ("kernel", "of another time", True), ("fingerprint", "of another time", True), ("iterations", 3, False),
        ("failure", "it died", False),
    ],
)  # fmt: skip
def test_a_boot_of_something_else_is_not_used(
    tmp_path: Path, host: Host, field: str, value: object, of_a_whole_round: bool
) -> None:
    runner(tmp_path).run_round()
    first, _ = host.booted
    path = boots.record_path(tmp_path, first)
    records.save(path, {**records.load(path, dict), field: value})
    if not of_a_whole_round:
        (tmp_path / "rounds" / "0001-1.json").unlink()
    host.booted.clear()
    runner(tmp_path).run_round()
    assert host.booted == [first]


def test_a_disturbed_round_is_repeated_and_kept(tmp_path: Path, host: Host) -> None:
    host.troubles = iter([["steal 3 %"], []])
    one = runner(tmp_path)
    counted = one.run_round()
    assert [(found.state, found.attempt, found.reasons) for found in one.tried] == [
        ("repeated", 1, ["steal 3 %"]), ("kept", 2, []),
    ]  # fmt: skip
    assert counted is one.tried[1]
    assert len(one.rounds.blocks) == 1
    assert all(boot.values for boot in one.tried[0].boots), "what was measured stays in the record"


def test_on_a_host_that_is_never_quiet_rounds_are_taken_as_they_are(tmp_path: Path, host: Host) -> None:
    host.troubles = iter([["load"]] * 50)
    one = runner(tmp_path, rounds=6, fixed=True)
    all_of(one)
    assert [found.state for found in one.tried] == ["repeated", "repeated", "disturbed", *["disturbed"] * 5]
    again = runner(tmp_path, rounds=6, fixed=True)
    all_of(again)
    assert again.tried == one.tried


def test_an_arm_that_dies_three_times_in_a_round_is_broken(tmp_path: Path, host: Host) -> None:
    speed = host.speed

    def broken(arm: str, seed: int, case: str) -> float:
        if (arm, seed) == ("test", 2):
            raise GuestFailed(GuestFailure.PANIC, "the guest's kernel panicked: why")
        return speed(arm, seed, case)

    host.speed = broken
    one = runner(tmp_path)
    one.run_round()
    with pytest.raises(GuestFailed, match="panicked") as error:
        one.run_round()
    assert error.value.message.startswith("the test arm is broken: its guest died 3 times in round 2, last: the guest")
    assert (error.value.exit_status, error.value.kind) == (4, "panic")
    host.speed = speed
    again = runner(tmp_path)
    all_of(again)
    assert [found.attempt for found in again.tried if found.number == 2] == [1, 2, 3, 4], "mended, and gone on with"


def test_a_duet_swaps_sides(tmp_path: Path, host: Host) -> None:
    one = runner(tmp_path, cpu_sets=2, rounds=2, fixed=True)
    all_of(one)
    cpu_sets = {
        arm: [host.cpu_sets[name] for name in sorted(host.booted) if f"-{arm}-" in name] for arm in ("base", "test")
    }
    assert sorted(cpu_sets["base"]) == [[0], [1]] and sorted(cpu_sets["test"]) == [[0], [1]]
    assert cpu_sets["base"][0] != cpu_sets["test"][0]


def test_isolated_cases_have_a_guest_each_and_are_one_boot(tmp_path: Path, host: Host) -> None:
    one = runner(tmp_path, alone=True)
    one.run_round()
    assert len(host.booted) == 4
    assert len(one.rounds.blocks[0][1]) == 2
    assert one.rounds.boot_s == 6.0, "of both guests"
    assert set(one.rounds.blocks[0][1][0].values) == {"mine:small", "mine:large"}


def test_the_budget_ends_it_between_rounds(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    one = runner(tmp_path)
    one.deadline = 0.0
    assert one.run_round() is not None, "the first is always done"
    assert one.run_round() is None


def test_rounds_are_planned_once_and_for_good(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 10 s on a clock of their own: 4 of 9 done, and 10 more seconds come too late."""
    host.keep_time(monkeypatch)
    one = runner(tmp_path, fixed=True)
    one.deadline = 99.0
    for number in range(4):
        assert one.rounds.round_plan is None, number
        one.run_round()
    assert one.rounds.round_plan == RoundPlan(rounds=9, iterations=2)
    assert records.load(tmp_path / "horizon.json", RoundPlan) == one.rounds.round_plan
    all_of(one)
    assert (host.now_s, len(one.rounds.blocks)) == (90.0, 9)

    again = runner(tmp_path, fixed=True)
    again.deadline = 1000.0
    all_of(again)
    assert again.rounds.round_plan == RoundPlan(rounds=9, iterations=2)
    assert len(again.rounds.blocks) == 20
    assert {found[0].method for found in again.rounds.standing().values()} == {"planned"}
