"""Boots of live mode: the values of every iteration, and a disk that is full."""

import json
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from lab.compare import boots
from lab.compare.boots import BootRecord, GuestSetup, Job
from lab.core.errors import DiskFull, GuestFailed, GuestFailure
from lab.guests import live_machine, run
from lab.guests.channel import CaseOutcome, GuestReport
from lab.guests.run import Arm, GuestExit, RunningGuests
from lab.guests.topology import CpuSet
from lab.workloads import selection

from ..fakes.guest import WORKLOAD, kernel, write_workload


def outcome(name: str, *lines: str, status: int = 0) -> CaseOutcome:
    return CaseOutcome(name=name, begin_ns=0, end_ns=1, ended=True, status=status, stdout=list(lines))


def printed(**metrics: float) -> str:
    return json.dumps({"metrics": metrics})


def test_each_iteration_is_read_by_itself(tmp_path: Path) -> None:
    workload = selection.load(write_workload(tmp_path / "mine"))
    speeds = (("small", 1), ("large", 5), ("small", 2), ("large", 6))
    report = GuestReport(cases=[outcome(name, printed(throughput=n, faults=10 * n)) for name, n in speeds])
    found = boots.collect(report, workload, workload.cases, 2, tmp_path)
    assert found["small"] == {"throughput": [1.0, 2.0], "faults": [10.0, 20.0]}
    assert found["large"] == {"throughput": [5.0, 6.0], "faults": [50.0, 60.0]}
    with pytest.raises(GuestFailed, match="never ended"):
        boots.collect(report, workload, workload.cases, 3, tmp_path)
    report.cases[2].status = 3
    with pytest.raises(GuestFailed, match="exited with status 3"):
        boots.collect(report, workload, workload.cases, 2, tmp_path)


def test_a_case_that_the_kernel_does_not_offer_is_named(tmp_path: Path) -> None:
    workload = selection.load(write_workload(tmp_path / "mine"))
    small = outcome("small", "not supported on this kernel: mmap: Invalid argument", status=4)
    large = outcome("large", "not supported on this kernel: it says so, and runs", status=0)
    assert boots._lacking(GuestReport(cases=[small, large, small]), workload) == {
        "small": "mine:small is not supported on this kernel: mmap: Invalid argument"
    }


def test_a_metric_that_only_some_iterations_print_has_holes(tmp_path: Path) -> None:
    optional = WORKLOAD.replace('description = "page faults"', 'description = "page faults"\noptional = true')
    workload = selection.load(write_workload(tmp_path / "mine", optional))
    (small,) = [case for case in workload.cases if case.name == "small"]
    lines = [printed(throughput=1), printed(throughput=1, faults=7), printed(throughput=1)]
    report = GuestReport(cases=[outcome("small", line) for line in lines])
    found = boots.collect(report, workload, [small], 3, tmp_path)
    assert found["small"]["faults"] == [None, 7.0, None]
    record = BootRecord(
        name="n", arm="base", workload="mine", cases=["small"], iterations=3, seed=1, kernel="k", fingerprint="f",
        started="now", cpus=[0], others=[], vng=[], argv=[], values=found,
    )  # fmt: skip
    kept = msgspec.json.decode(msgspec.json.encode(record), type=BootRecord)
    assert [math.isnan(value) for value in kept.reading()["small"]["faults"]] == [True, False, True]


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GuestSetup:
    """That of guests which are never composed."""
    monkeypatch.setattr(live_machine, "compose", lambda *_: ([], ["qemu"]))
    monkeypatch.setattr(live_machine, "link_files", lambda *_: None)
    monkeypatch.setattr(boots, "_initrd", lambda *_: b"")
    setup = SimpleNamespace(
        folder=tmp_path, timeout_s=900.0, machine="q35", root=tmp_path, guest_of=lambda *_: None, fingerprint="f",
        workload=selection.load(write_workload(tmp_path / "mine")), perf=(), profiled=False,
    )  # fmt: skip
    setup.command = partial(GuestSetup.command, setup)
    return cast(GuestSetup, setup)


def boot(setup: GuestSetup) -> BootRecord:
    job, arm = Job(cases=[], seed=1, iterations=1), Arm(name="base", kernel=kernel("base"), settings={})
    cpu_set = CpuSet(cpus=[0], others=[], nodes=[])
    return boots.boot(setup, arm, job, name="n", cpu_set=cpu_set, running=RunningGuests())


@pytest.mark.parametrize(("free", "booted"), [([63], 0), ([999, 63], 1)])
def test_a_full_disk_is_no_kernels_failure(
    setup: GuestSetup, monkeypatch: pytest.MonkeyPatch, free: list[int], booted: int
) -> None:
    """free: MiB before and after the guest, whose report is missing."""
    left, guests = iter(free), []

    def cut(argv: list[str], *, folder: Path, **how: object) -> GuestExit:
        guests.append(argv)
        return GuestExit(
            status=0, timed_out=False, stderr="", wall_s=1, console=folder / run.CONSOLE, report=folder / run.REPORT
        )

    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=next(left) << 20))
    monkeypatch.setattr(run, "boot", cut)
    with pytest.raises(DiskFull, match="63 MiB free, a guest needs 64 MiB"):
        boot(setup)
    assert len(guests) == booted
    assert not list((setup.folder / "boots").iterdir())


def test_vng_and_qemu_have_the_time_that_the_guest_has(setup: GuestSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s = []

    def compose(guest: object, kernel: Path, root: Path, timeout_s: float) -> tuple[list[str], list[str]]:
        limits_s.append(timeout_s)
        return [], ["qemu"]

    def start(argv: list[str], *, timeout_s: float, on_start: Callable[[None], None], **how: object) -> None:
        limits_s.append(timeout_s)
        on_start(None)
        raise GuestFailed(GuestFailure.HANG, "enough")

    monkeypatch.setattr(live_machine, "compose", compose)
    monkeypatch.setattr(live_machine, "pin_and_start", lambda *_, timeout_s: limits_s.append(timeout_s))
    monkeypatch.setattr(run, "boot", start)
    before = os.umask(0)
    with pytest.raises(GuestFailed, match="enough"):
        boot(setup)
    os.umask(before)
    assert limits_s == [900] * 3
    (folder,) = (setup.folder / "guests").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700, "the socket by which QEMU is controlled is in it"
