"""What /proc and /sys say of a host, as numbers and words. Every function reads below a root, so that any host's
recorded files can be read as well as this one's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

CPU = "sys/devices/system/cpu"
_GUESTS = ("qemu-system", "qemu-kvm", "kvm", "cloud-hyperviso", "firecracker", "crosvm", "VBoxHeadless", "vmware-vmx")
"""Beginnings of /proc/PID/comm, which the kernel cuts at 15 characters."""


class Times(NamedTuple):
    """Seconds that CPUs spent since boot: all of them, running something, and waiting for a hypervisor (steal)."""

    total_s: float
    busy_s: float
    steal_s: float


class Swap(NamedTuple):
    """Swap space in MiB, and how much of it is in use."""

    size_mb: float
    used_mb: float


def word(root: Path, path: str) -> str | None:
    """A file's text without the space around it; None where it cannot be read."""
    try:
        return (root / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number(root: Path, path: str) -> int | None:
    """A file's number; None where there is none."""
    text = word(root, path)
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def selected(text: str | None) -> str | None:
    """The word in brackets of a choice such as `always [madvise] never`; a plain word as it is."""
    if text is None:
        return None
    found = re.search(r"\[([^\]]+)\]", text)
    return found[1] if found else text


def cpu_list(text: str) -> list[int]:
    """`0-3,8` as numbers; what is no such list is empty."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        return []
    spans = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return [cpu for span in spans for cpu in range(span[0], span[-1] + 1)]


def online(root: Path) -> list[int]:
    """The CPUs that run."""
    return cpu_list(word(root, f"{CPU}/online") or "")


def governors(root: Path, cpus: Iterable[int]) -> set[str]:
    """The frequency governors of CPUs; none where the frequency is not this system's to choose."""
    found = (word(root, f"{CPU}/cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus)
    return {name for name in found if name}


def turbo(root: Path) -> bool | None:
    """Whether CPUs may go above their base frequency; None where that cannot be read."""
    if (off := number(root, f"{CPU}/intel_pstate/no_turbo")) is not None:
        return off == 0
    if (boost := number(root, f"{CPU}/cpufreq/boost")) is not None:
        return boost == 1
    return None


def cpu_times(root: Path, cpus: Sequence[int] | None = None, *, ticks_per_s: float) -> Times:
    """What /proc/stat says of some CPUs together, or of all; zeros where there is none.

    `guest` and `guest_nice` are in `user` and `nice` already (proc(5)), and steal is nobody's work here.
    """
    names = {"cpu"} if cpus is None else {f"cpu{cpu}" for cpu in cpus}
    total = idle = steal = 0
    for line in (word(root, "proc/stat") or "").splitlines():
        name, *fields = line.split()
        if name in names and all(map(str.isdigit, fields)):
            ticks = [int(field) for field in fields[:8]] + [0] * (8 - len(fields))
            total, idle, steal = total + sum(ticks), idle + ticks[3] + ticks[4], steal + ticks[7]
    return Times(total / ticks_per_s, (total - idle - steal) / ticks_per_s, steal / ticks_per_s)


def load(root: Path) -> float | None:
    """The load average of the last minute."""
    first = (word(root, "proc/loadavg") or "").split()[:1]
    return float(first[0]) if first and re.fullmatch(r"\d+(\.\d+)?", first[0]) else None


def swap(root: Path) -> Swap:
    """All swap spaces together."""
    rows = [line.split() for line in (word(root, "proc/swaps") or "").splitlines()[1:]]
    sizes = [(int(row[2]), int(row[3])) for row in rows if len(row) >= 4 and row[2].isdigit() and row[3].isdigit()]
    return Swap(sum(size for size, _ in sizes) / 1024, sum(used for _, used in sizes) / 1024)


def huge_pages(root: Path) -> tuple[int, int]:
    """The 2 MiB pages that are set aside, and those of them that are free."""
    folder = "sys/kernel/mm/hugepages/hugepages-2048kB"
    return number(root, f"{folder}/nr_hugepages") or 0, number(root, f"{folder}/free_hugepages") or 0


def throttles(root: Path, cpus: Iterable[int]) -> int | None:
    """How often CPUs or their packages were slowed down for being hot, since boot; None where nobody counts."""
    names = ("core_throttle_count", "package_throttle_count")
    found = [number(root, f"{CPU}/cpu{cpu}/thermal_throttle/{name}") for cpu in cpus for name in names]
    counts = [count for count in found if count is not None]
    return sum(counts) if counts else None


def guests(root: Path, *, parent: int) -> list[tuple[int, str]]:
    """Virtual machines that run here and are not descendants of a process: their ids and names."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for path in (root / "proc").glob("[0-9]*/stat"):
        stat = word(root, str(path.relative_to(root))) or ""
        found = re.fullmatch(r"(\d+) \((.*)\) (\S) (-?\d+) .*", stat, re.DOTALL)
        if found and found[3] not in "ZX":
            names[int(found[1])], parents[int(found[1])] = found[2], int(found[4])
    return sorted(
        (pid, name) for pid, name in names.items() if name.startswith(_GUESTS) and not _descends(pid, parent, parents)
    )


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    seen = set()
    while pid and pid not in seen:
        if pid == ancestor:
            return True
        seen.add(pid)
        pid = parents.get(pid, 0)
    return False


def cpu_model(root: Path) -> str:
    """The processor's name."""
    found = re.search(r"^model name\s*:\s*(.+)$", word(root, "proc/cpuinfo") or "", re.MULTILINE)
    return found[1].strip() if found else "unknown"


def memory_gb(root: Path) -> int:
    """Memory in whole GiB."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", word(root, "proc/meminfo") or "", re.MULTILINE)
    return round(int(found[1]) / 2**20) if found else 0
