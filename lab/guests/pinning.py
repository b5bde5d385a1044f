"""Pinning a guest that was started paused: each vCPU's thread to its host CPU, all other threads off those.

Host memory for guests: is there enough, and are there huge pages set aside that all of it fits into.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.core.errors import GuestFailed, GuestFailure, HostFailed
from lab.guests.live_machine import QMP
from lab.guests.topology import Layout, Seat

if TYPE_CHECKING:
    from qemu.qmp.legacy import QEMUMonitorProtocol

_CONNECT_S = 30.0
_ANSWER_S = 10.0
_LOOK_S = 0.01

# That QEMU does not listen yet is no news.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


def pin_and_start(process: subprocess.Popen[bytes], folder: Path, seat: Seat) -> None:
    """Pin the threads of a paused QEMU, then let its guest run. Returns early when QEMU has ended by itself.

    Threads that QEMU starts later inherit the CPUs of the one that started them.
    """
    from qemu.qmp import QMPError  # brings asyncio along: only when there is a guest

    monitor = _connected(process, folder / QMP)
    if monitor is None:
        return
    try:
        with monitor:
            monitor.settimeout(_ANSWER_S)
            threads = vcpu_threads(monitor.cmd("query-cpus-fast"))
            pin(process.pid, threads, seat)
            monitor.cmd("cont")
    except (QMPError, TimeoutError, OSError) as error:
        if process.poll() is None:
            raise GuestFailed(GuestFailure.QEMU_DIED, f"QEMU does not answer on {folder / QMP}: {error}") from error


def vcpu_threads(answer: Any) -> list[int]:
    """The thread of each vCPU, in the order of their numbers, from the answer to `query-cpus-fast`."""
    return [row["thread-id"] for row in sorted(answer, key=lambda row: int(row["cpu-index"]))]


def pin(pid: int, threads: Sequence[int], seat: Seat, *, proc: Path = Path("/proc")) -> None:
    """Put each vCPU's thread on its host CPU, and the others on the rest, if there is a rest."""
    for thread, cpu in zip(threads, seat.cpus, strict=True):
        os.sched_setaffinity(thread, {cpu})
    if not seat.others:
        return
    for path in (proc / str(pid) / "task").iterdir():
        if int(path.name) not in threads:
            with suppress(ProcessLookupError):  # a helper that has ended meanwhile
                os.sched_setaffinity(int(path.name), set(seat.others))


def _connected(process: subprocess.Popen[bytes], socket: Path) -> QEMUMonitorProtocol | None:
    """A connection, as soon as QEMU listens: it takes all of the guest's memory first. None when it has ended.

    By way of the folder, because a socket's path may be 107 bytes long, and a result's is anything.
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


_SYS = Path("/sys")
_MEMINFO = Path("/proc/meminfo")
_HUGE_KB = 2048
_SPARE_MB = 256


def rounded_mb(memory_mb: int, nodes: int) -> int:
    """A guest's memory, rounded up so that every node has whole huge pages."""
    unit = 2 * nodes
    return -(-memory_mb // unit) * unit


def require(memory_mb: int, guests: int, meminfo: Path = _MEMINFO) -> None:
    """Refuse guests that the host has no memory for: all of it is taken before they start."""
    have = next(int(line.split()[1]) >> 10 for line in meminfo.read_text().splitlines() if "MemAvailable" in line)
    need = memory_mb * guests
    if have < need + _SPARE_MB:
        words = f"{guests} guests at once need" if guests > 1 else "the guest needs"
        raise HostFailed(f"{words} {need} MiB of memory, and {have} MiB are available", hint="free some")


def hugepage_kb(memory_mb: int, layout: Layout, sys: Path = _SYS) -> int | None:
    """The size of huge pages to use; None when not all memory of all guests fits into what is set aside and free.

    All or none: memory that is half of huge pages differs from boot to boot.
    """
    need_per_node: dict[int | None, int] = {}
    for seat in layout.seats:
        nodes: Sequence[int | None] = seat.nodes or [None]
        for node in nodes:
            need_per_node[node] = need_per_node.get(node, 0) + memory_mb * 1024 // _HUGE_KB // len(nodes)
    enough = all(_free(sys, node) >= need for node, need in need_per_node.items())
    return _HUGE_KB if enough else None


def _free(sys: Path, node: int | None) -> int:
    folder = sys / "kernel/mm" if node is None else sys / f"devices/system/node/node{node}"
    try:
        return int((folder / f"hugepages/hugepages-{_HUGE_KB}kB/free_hugepages").read_text())
    except (OSError, ValueError):
        return 0
