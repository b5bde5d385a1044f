"""Boots of live mode: the values of every iteration, and a disk that is full."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
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
from lab.guests.run import Arm, RunningGuests
from lab.guests.topology import CpuSet
from lab.workloads import selection

from ..fakes.guest import WORKLOAD, kernel, write_workload


def outcome(name: str, *lines: str, status: int = 0) -> CaseOutcome:
    return CaseOutcome(name=name, begin_ns=0, end_ns=1, ended=True, status=status, stdout=list(lines))


def printed(**metrics: float) -> str:
    return json.dumps({"metrics": metrics})


def test_each_iteration_is_read_by_itself(tmp_path: Path) -> None:
    workload = selection.load(write_workload(tmp_path / "mine"))
    report = GuestReport(
        cases=[
            outcome("small", printed(throughput=1, faults=10)),
            outcome("large", printed(throughput=5, faults=50)),
            outcome("small", printed(throughput=2, faults=20)),
            outcome("large", printed(throughput=6, faults=60)),
        ]
    )
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


def test_no_guest_is_started_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1 << 20})())
    bench = cast(GuestSetup, SimpleNamespace(folder=tmp_path))
    with pytest.raises(DiskFull, match="1 MiB free, a guest needs 32 MiB"):
        boots.boot(
            bench,
            cast(Arm, None),
            Job(cases=[], seed=1, iterations=1),
            name="n",
            cpu_set=cast(CpuSet, None),
            running=RunningGuests(),
        )
    assert not list(tmp_path.iterdir())


def test_vng_and_qemu_have_the_time_that_the_guest_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s = []

    def compose(guest: object, kernel: Path, root: Path, timeout_s: float) -> tuple[list[str], list[str]]:
        limits_s.append(timeout_s)
        return [], ["qemu"]

    def boot(argv: list[str], *, timeout_s: float, on_start: Callable[[None], None], **how: object) -> None:
        limits_s.append(timeout_s)
        on_start(None)
        raise GuestFailed(GuestFailure.HANG, "enough")

    monkeypatch.setattr(live_machine, "compose", compose)
    monkeypatch.setattr(live_machine, "link_files", lambda *_: None)
    monkeypatch.setattr(live_machine, "pin_and_start", lambda *_, timeout_s: limits_s.append(timeout_s))
    monkeypatch.setattr(boots, "_initrd", lambda *_: b"")
    monkeypatch.setattr(run, "boot", boot)
    setup = SimpleNamespace(
        folder=tmp_path, timeout_s=900.0, machine="q35", root=tmp_path, guest_of=lambda *_: None, fingerprint="f",
        workload=selection.load(write_workload(tmp_path / "mine")),
    )  # fmt: skip
    before = os.umask(0)
    with pytest.raises(GuestFailed, match="enough"):
        boots.boot(
            cast(GuestSetup, setup),
            Arm(name="base", kernel=kernel("base"), settings={}),
            Job(cases=[], seed=1, iterations=1),
            name="n",
            cpu_set=CpuSet(cpus=[0], others=[], nodes=[]),
            running=RunningGuests(),
        )
    os.umask(before)
    assert limits_s == [900] * 3
    (folder,) = (tmp_path / "guests").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700, "the socket by which QEMU is controlled is in it"
