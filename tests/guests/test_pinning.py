"""The threads of a guest on their host CPUs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from qemu.qmp import legacy

from lab.core.errors import GuestFailed
from lab.guests import live_machine
from lab.guests.topology import CpuSet


def test_vcpus_are_pinned_by_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = [{"cpu-index": 1, "thread-id": 12}, {"cpu-index": 0, "thread-id": 11}]
    for thread in (10, 11, 12, 13):
        (tmp_path / "10" / "task" / str(thread)).mkdir(parents=True)
    done: dict[int, set[int]] = {}

    def place(thread: int, cpus: set[int]) -> None:
        if thread == 13:
            raise ProcessLookupError
        done[thread] = cpus

    monkeypatch.setattr("os.sched_setaffinity", place)
    live_machine.pin(10, live_machine.vcpu_threads(answer), CpuSet(cpus=[4, 6], others=[1, 2], nodes=[]), proc=tmp_path)
    assert done == {11: {4}, 12: {6}, 10: {1, 2}}
    done.clear()
    live_machine.pin(10, [11, 12], CpuSet(cpus=[4, 6], others=[], nodes=[]), proc=tmp_path)
    assert done == {11: {4}, 12: {6}}, "without CPUs left, the others run anywhere"


def test_a_qemu_that_does_not_answer_is_waited_for_as_long_as_a_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits_s = []

    class Silent:
        """A QEMU that listens, and no more."""

        def __init__(self, address: str) -> None: ...
        def __enter__(self) -> Silent:
            return self

        def __exit__(self, *_: object) -> None: ...
        def connect(self) -> None: ...
        def settimeout(self, timeout_s: float) -> None:
            limits_s.append(timeout_s)

        def cmd(self, name: str) -> None:
            raise TimeoutError

    monkeypatch.setattr(legacy, "QEMUMonitorProtocol", Silent)
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(GuestFailed, match="does not answer") as late:
            live_machine.pin_and_start(process, tmp_path, CpuSet(cpus=[0], others=[], nodes=[]), timeout_s=900)
        process.kill()
    assert limits_s == [900] and late.value.hint and "--guest-timeout" in late.value.hint
