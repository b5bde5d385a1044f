"""Pin the threads of a guest that was started paused: each vCPU's to its host CPU, all others off those."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.core.errors import GuestFailed, GuestFailure
from lab.guests.live_machine import QMP
from lab.guests.topology import CpuSet

if TYPE_CHECKING:
    from qemu.qmp.legacy import QEMUMonitorProtocol

_CONNECT_S = 30.0
_ANSWER_S = 10.0
_LOOK_S = 0.01

# It logs an error for each attempt while QEMU does not listen yet.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


def pin_and_start(process: subprocess.Popen[bytes], folder: Path, cpu_set: CpuSet) -> None:
    """Pin the threads of a paused QEMU, then let its guest run. Returns early if QEMU has ended.

    Threads that QEMU starts later inherit the CPUs of the thread that starts them.
    """
    from qemu.qmp import QMPError  # imports asyncio: only when there is a guest

    monitor = _connected(process, folder / QMP)
    if monitor is None:
        return
    try:
        with monitor:
            monitor.settimeout(_ANSWER_S)
            threads = vcpu_threads(monitor.cmd("query-cpus-fast"))
            pin(process.pid, threads, cpu_set)
            monitor.cmd("cont")
    except (QMPError, TimeoutError, OSError) as error:
        if process.poll() is None:
            raise GuestFailed(GuestFailure.QEMU_DIED, f"QEMU does not answer on {folder / QMP}: {error}") from error


def vcpu_threads(answer: Any) -> list[int]:
    """The thread of each vCPU by number, from the answer to `query-cpus-fast`."""
    return [row["thread-id"] for row in sorted(answer, key=lambda row: int(row["cpu-index"]))]


def pin(pid: int, threads: Sequence[int], cpu_set: CpuSet, *, proc: Path = Path("/proc")) -> None:
    """Put each vCPU's thread on its host CPU, and the others on the CPUs that are left, if any are."""
    for thread, cpu in zip(threads, cpu_set.cpus, strict=True):
        os.sched_setaffinity(thread, {cpu})
    if not cpu_set.others:
        return
    for path in (proc / str(pid) / "task").iterdir():
        if int(path.name) not in threads:
            with suppress(ProcessLookupError):  # a helper that has ended meanwhile
                os.sched_setaffinity(int(path.name), set(cpu_set.others))


def _connected(process: subprocess.Popen[bytes], socket: Path) -> QEMUMonitorProtocol | None:
    """A connection, as soon as QEMU listens, which allocates the guest's memory first. None if it has ended.

    The path goes through the folder's descriptor: a socket's path has at most 107 bytes, a result's can have more.
    """
    from qemu.qmp import ConnectError
    from qemu.qmp.legacy import QEMUMonitorProtocol

    deadline = time.monotonic() + _CONNECT_S
    folder = os.open(socket.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        while process.poll() is None:
            with suppress(ConnectError):
                monitor = QEMUMonitorProtocol(f"/proc/self/fd/{folder}/{socket.name}")
                monitor.connect()
                return monitor
            if time.monotonic() > deadline:
                raise GuestFailed(GuestFailure.QEMU_DIED, f"QEMU did not listen on {socket} within {_CONNECT_S:.0f} s")
            time.sleep(_LOOK_S)
    finally:
        os.close(folder)
    return None
