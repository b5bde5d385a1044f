"""Host memory for guests: is there enough, and are there huge pages set aside that all of it fits into."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.core.errors import HostFailed
from lab.live.topology import Layout

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
