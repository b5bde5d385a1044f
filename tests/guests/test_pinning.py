"""The threads of a guest on their host CPUs."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
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


@pytest.fixture
def mute(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a QEMU that listens in the test's folder, and does not answer."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / live_machine.QMP))
        listener.listen()
        yield listener


_GREETING = b'{"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}}, "capabilities": []}}\r\n'
_STOPPED = """\
import asyncio, gc, subprocess, sys
from pathlib import Path
from lab.guests import live_machine
from lab.guests.topology import CpuSet

with subprocess.Popen(["sleep", "60"]) as process:
    print("waits", flush=True)
    try:
        cpu_set = CpuSet(cpus=[0], others=[], nodes=[])
        live_machine.pin_and_start(process, Path(sys.argv[1]), cpu_set, timeout_s=60)
    except KeyboardInterrupt:
        print("stopped")
    process.kill()
asyncio.set_event_loop(None)
gc.collect()
"""
"""What is left over of a connection complains as it is collected, which the end of a process may do or not."""


_CANCELLED = """\
import logging
from qemu.qmp import QMPClient

async def disconnect(client):
    raise asyncio.CancelledError

QMPClient.disconnect = disconnect
logging.basicConfig()  # as the lab does
"""
"""The library logs a fault of its own then: Ctrl-C may come once more while it disconnects."""


@pytest.mark.parametrize("also", ["", _CANCELLED])
def test_ctrl_c_while_qemu_is_connected_to_is_quiet(also: str, tmp_path: Path, mute: socket.socket) -> None:
    program = _STOPPED.replace("\n\n", f"\n{also}\n", 1)
    with subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout and process.stdout.readline() == "waits\n"
        connection, _ = mute.accept()
        connection.sendall(_GREETING)
        assert b"qmp_capabilities" in connection.recv(4096), "it waits for the answer now"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        connection.close()
    assert (out, err) == ("stopped\n", "")
