"""The threads of a guest on their host CPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

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
