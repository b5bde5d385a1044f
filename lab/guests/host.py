"""The host of live guests: its setup, its memory, and its disturbances during a round.

The facts are part of the result, and never decide about one arm alone: a disturbed round is repeated, and kept with
its reasons. Every function reads /proc and /sys below a root, so that tests can read the files of other hosts.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from lab.core.errors import HostFailed
from lab.core.records import Record
from lab.guests.topology import Layout

_ROOT = Path("/")
CPU = "sys/devices/system/cpu"
_TICKS = float(os.sysconf("SC_CLK_TCK"))
_HUGE_KB = 2048
_SPARE_MB = 256
"""Memory that guests leave to the host."""

_GUESTS = ("qemu-system", "qemu-kvm", "kvm", "cloud-hyperviso", "firecracker", "crosvm", "VBoxHeadless", "vmware-vmx")
"""Beginnings of /proc/PID/comm, which the kernel cuts at 15 characters."""


class CpuTimes(NamedTuple):
    """Seconds of CPU time since boot: in all, of running programs, and taken away by a hypervisor."""

    total_s: float
    busy_s: float
    steal_s: float


def read_text(root: Path, path: str) -> str | None:
    """A file's text without the space around it; None if it cannot be read."""
    try:
        return (root / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_number(root: Path, path: str) -> int | None:
    """A file's number; None if there is none."""
    text = read_text(root, path)
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def cpu_list(text: str) -> list[int]:
    """`0-3,8` as numbers; a text of another form is an empty list."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        return []
    spans = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return [cpu for span in spans for cpu in range(span[0], span[-1] + 1)]


def online(root: Path) -> list[int]:
    return cpu_list(read_text(root, f"{CPU}/online") or "")


def cpu_times(root: Path, cpus: Sequence[int] | None = None) -> CpuTimes:
    """The times of some CPUs together, or of all; zeros without a /proc/stat.

    `user` and `nice` include `guest` and `guest_nice` (proc(5)). Steal is not work of this host.
    """
    names = {"cpu"} if cpus is None else {f"cpu{cpu}" for cpu in cpus}
    total = idle = steal = 0
    for line in (read_text(root, "proc/stat") or "").splitlines():
        name, *fields = line.split()
        if name in names and all(map(str.isdigit, fields)):
            ticks = [int(field) for field in fields[:8]] + [0] * (8 - len(fields))
            total, idle, steal = total + sum(ticks), idle + ticks[3] + ticks[4], steal + ticks[7]
    return CpuTimes(total / _TICKS, (total - idle - steal) / _TICKS, steal / _TICKS)


def throttles(root: Path, cpus: Iterable[int]) -> int | None:
    """The number of times that CPUs were slowed down for heat since boot; None if the host has no counters."""
    names = ("core_throttle_count", "package_throttle_count")
    numbers = [read_number(root, f"{CPU}/cpu{cpu}/thermal_throttle/{name}") for cpu in cpus for name in names]
    counts = [number for number in numbers if number is not None]
    return sum(counts) if counts else None


def guests(root: Path, *, parent: int) -> list[tuple[int, str]]:
    """Ids and names of the virtual machines that run here and do not descend from a process."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for path in (root / "proc").glob("[0-9]*/stat"):
        text = read_text(root, str(path.relative_to(root))) or ""
        stat = re.fullmatch(r"(\d+) \((.*)\) (\S) (-?\d+) .*", text, re.DOTALL)
        if stat and stat[3] not in "ZX":
            names[int(stat[1])], parents[int(stat[1])] = stat[2], int(stat[4])
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
    model = re.search(r"^model name\s*:\s*(.+)$", read_text(root, "proc/cpuinfo") or "", re.MULTILINE)
    return model[1].strip() if model else "unknown"


# ---- memory


def memory_gb(root: Path) -> int:
    return round(_meminfo_kb(root, "MemTotal") / 2**20)


def available_mb(root: Path = _ROOT) -> int:
    """Memory that programs can have."""
    return _meminfo_kb(root, "MemAvailable") >> 10


def require_memory(memory_mb: int, guests: int, root: Path = _ROOT) -> None:
    """Refuse guests that the host has no memory for: all of it is allocated before they start."""
    have, need = available_mb(root), memory_mb * guests
    if have < need + _SPARE_MB:
        who = f"{guests} guests at once need" if guests > 1 else "the guest needs"
        raise HostFailed(f"{who} {need} MiB of memory, and {have} MiB are available", hint="free some")


def round_memory(memory_mb: int, nodes: int) -> int:
    """A guest's memory, rounded up so that every node has whole huge pages."""
    unit = nodes * _HUGE_KB // 1024
    return -(-memory_mb // unit) * unit


def hugepage_kb(memory_mb: int, layout: Layout, root: Path = _ROOT) -> int | None:
    """The size of huge pages to use; None if the free ones do not hold all memory of all guests.

    All or none: a guest with both kinds of pages is slower or faster from boot to boot.
    """
    need_per_node: dict[int | None, int] = {}
    for cpu_set in layout.cpu_sets:
        nodes: Sequence[int | None] = cpu_set.nodes or [None]
        for node in nodes:
            need_per_node[node] = need_per_node.get(node, 0) + memory_mb * 1024 // _HUGE_KB // len(nodes)
    enough = all(_huge_pages(root, "free", node) >= need for node, need in need_per_node.items())
    return _HUGE_KB if enough else None


def _meminfo_kb(root: Path, name: str) -> int:
    size = re.search(rf"^{name}:\s+(\d+) kB", read_text(root, "proc/meminfo") or "", re.MULTILINE)
    return int(size[1]) if size else 0


def _huge_pages(root: Path, kind: str, node: int | None = None) -> int:
    """The number of huge pages of the host, or of a node: `nr` for all, or `free`."""
    folder = "sys/kernel/mm" if node is None else f"sys/devices/system/node/node{node}"
    return read_number(root, f"{folder}/hugepages/hugepages-{_HUGE_KB}kB/{kind}_hugepages") or 0


# ---- setup


STEAL_LIMIT = 0.005
"""The share of the guests' CPU time that a hypervisor may take away in a round."""

LOAD_LIMIT = 0.25
"""The CPUs that other programs may keep busy in a round."""

SUSPENDED_LIMIT_S = 0.5
BUSY_LOAD = 0.5
"""The load average above which a host is busy before anything is measured."""

FIX = "lab doctor --fix"
State = Literal["ok", "limited"]


class HostFact(Record, frozen=True, kw_only=True):
    """One line about the host. value: one word, to compare hosts by. state: `limited` if it adds noise, or may."""

    name: str
    value: str
    state: State
    text: str
    remedy: str | None = None


class RoundHost(Record, frozen=True, kw_only=True):
    """The host during a round.

    steal: the share of the guests' CPU time that a hypervisor took away. load: the CPUs that other work kept busy.
    throttled: how often a CPU was slowed down for heat, None if unknown. reasons: the values above their limits.
    """

    steal: float
    load: float
    throttled: int | None
    suspended_s: float
    reasons: list[str]

    @property
    def disturbed(self) -> bool:
        return bool(self.reasons)


def survey(cpus: Sequence[int], root: Path = _ROOT) -> list[HostFact]:
    """Everything about this host that adds noise, with remedies. cpus: the guests'."""
    return [
        _governor(root, cpus), _turbo(root), _smt(root), _thp(root), _ksm(root), _swap(root), _clocksource(root),
        _steal(root), _load(root), _throttling(root, cpus), _other_guests(root),
    ]  # fmt: skip


def setup(facts: Sequence[HostFact]) -> dict[str, str]:
    """The host's settings by name: the facts that stay until a user changes them."""
    return {fact.name: fact.value for fact in facts if fact.name in _SETTINGS}


_SETTINGS = ("governor", "turbo", "SMT", "THP", "KSM", "swap", "clocksource")


def _governor(root: Path, cpus: Sequence[int]) -> HostFact:
    paths = [f"{CPU}/cpu{cpu}/cpufreq/scaling_governor" for cpu in cpus]
    governors = sorted({name for path in paths if (name := read_text(root, path))})
    value = ", ".join(governors) or "none"
    if governors == ["performance"]:
        return _ok("governor", value, "performance on all CPUs of the guests")
    if not governors:
        text = "the frequency of the CPUs is not this system's to choose, nor to know"
        return _limited("governor", value, text, "measure on bare metal, or repeat more")
    return _limited("governor", value, f"{value}: the frequency follows the load", FIX)


def _turbo(root: Path) -> HostFact:
    no_turbo, boost = read_number(root, f"{CPU}/intel_pstate/no_turbo"), read_number(root, f"{CPU}/cpufreq/boost")
    if no_turbo is None and boost is None:
        return _limited("turbo", "unknown", "cannot be read: none, or the hypervisor's", "turn it off in the firmware")
    if no_turbo == 0 or (no_turbo is None and boost == 1):
        return _limited("turbo", "on", "on: frequency depends on heat and on how many CPUs are busy", FIX)
    return _ok("turbo", "off", "off: no CPU runs above its base frequency")


def _smt(root: Path) -> HostFact:
    active = read_number(root, f"{CPU}/smt/active")
    control = read_text(root, f"{CPU}/smt/control") or "unknown"
    if active == 0:
        return _ok("SMT", control, f"no CPU shares a core with another ({control})")
    if active is None:
        return _limited("SMT", control, "cannot be read", "turn it off in the firmware")
    text = "on: a program on a sibling slows its CPU down; the arms never share a core, other programs may"
    return _limited("SMT", control, text, f"{FIX} --without-smt")


def _thp(root: Path) -> HostFact:
    modes = read_text(root, "sys/kernel/mm/transparent_hugepage/enabled") or "none"
    selected = re.search(r"\[([^\]]+)\]", modes)
    value = selected[1] if selected else modes
    if free := _huge_pages(root, "free"):
        pages = _huge_pages(root, "nr")
        return _ok("THP", value, f"{value}; {free} of {pages} huge pages of 2 MiB are free for guests")
    if value in ("never", "none"):
        return _ok("THP", value, f"{value}: guest memory is in small pages at every boot")
    text = f"{value}: guest memory is in huge pages as far as the host finds some, which differs between boots"
    return _limited("THP", value, text, f"{FIX}, or set huge pages aside (sysctl vm.nr_hugepages)")


def _ksm(root: Path) -> HostFact:
    running = read_number(root, "sys/kernel/mm/ksm/run")
    if running == 1:
        return _limited("KSM", "on", "on: it merges equal pages, of guests too, while they run", FIX)
    value = {None: "none", 0: "off", 2: "off, unmerged"}.get(running, str(running))
    return _ok("KSM", value, "does not run")


def _swap(root: Path) -> HostFact:
    rows = [line.split() for line in (read_text(root, "proc/swaps") or "").splitlines()[1:]]
    sizes = [(int(row[2]), int(row[3])) for row in rows if len(row) >= 4 and row[2].isdigit() and row[3].isdigit()]
    if not any(size for size, _ in sizes):
        return _ok("swap", "none", "none")
    size_gb, used_gb = (sum(column) / 2**20 for column in zip(*sizes, strict=True))
    swappiness = read_number(root, "proc/sys/vm/swappiness")
    text = f"{size_gb:.1f} GiB, {used_gb:.1f} used, swappiness {swappiness}"
    if swappiness == 0:
        return _ok("swap", "last resort", text)
    return _limited("swap", "on", f"{text}: guest memory may be swapped out", f"{FIX}, or swapoff -a")


def _clocksource(root: Path) -> HostFact:
    value = read_text(root, "sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    if value == "tsc":
        return _ok("clocksource", value, "tsc")
    text = f"{value}: reading the time is slow or goes through a hypervisor"
    return _limited("clocksource", value, text, "see `dmesg | grep -i tsc` for why it is not tsc")


def _steal(root: Path) -> HostFact:
    times = cpu_times(root)
    share = times.steal_s / times.total_s if times.total_s else 0.0
    value = f"{100 * share:.2f} %"
    if share <= STEAL_LIMIT:
        return _ok("steal", value, f"{value} of all CPU time since boot")
    text = f"{value} of all CPU time since boot: a hypervisor runs others on these CPUs"
    return _limited("steal", value, text, "rounds with steal are repeated; better a dedicated machine")


def _load(root: Path) -> HostFact:
    first = (read_text(root, "proc/loadavg") or "").partition(" ")[0]
    average = float(first) if re.fullmatch(r"\d+(\.\d+)?", first) else None
    value = "unknown" if average is None else f"{average:.2f}"
    if average is not None and average <= BUSY_LOAD:
        return _ok("load", value, f"{value} over the last minute")
    return _limited("load", value, f"{value} over the last minute: others are at work here", "stop other programs")


def _throttling(root: Path, cpus: Sequence[int]) -> HostFact:
    count = throttles(root, cpus)
    if count is None:
        return _limited(
            "throttling", "unknown", "no counter here says how often CPUs get too hot", "measure on bare metal"
        )
    if count == 0:
        return _ok("throttling", "0", "no CPU was ever too hot")
    text = f"CPUs were slowed down for heat {count} times since boot"
    return _limited("throttling", str(count), text, f"rounds with throttling are repeated; cool it, or {FIX}")


def _other_guests(root: Path) -> HostFact:
    others = guests(root, parent=os.getpid())
    if not others:
        return _ok("other guests", "0", "none")
    names = ", ".join(f"{name} ({pid})" for pid, name in others[:4]) + (", ..." if len(others) > 4 else "")
    return _limited("other guests", str(len(others)), f"{len(others)} run here: {names}", "stop them, or wait for them")


def _ok(name: str, value: str, text: str) -> HostFact:
    return HostFact(name=name, value=value, state="ok", text=text)


def _limited(name: str, value: str, text: str, remedy: str) -> HostFact:
    return HostFact(name=name, value=value, state="limited", text=text, remedy=remedy)


# ---- rounds


class Clocks(NamedTuple):
    """Seconds: of the clock that stops while the host is suspended, of the clock that does not, and of our own work."""

    monotonic_s: float
    boot_s: float
    own_s: float


def clocks() -> Clocks:
    """The clocks now. Own work is that of this process, and of children that have ended and were waited for."""
    own = os.times()
    return Clocks(
        monotonic_s=time.clock_gettime(time.CLOCK_MONOTONIC),
        boot_s=time.clock_gettime(time.CLOCK_BOOTTIME),
        own_s=own.user + own.system + own.children_user + own.children_system,
    )


class Watch:
    """Compares the host at the start of a round with the host at its end.

    The round's guests must have ended before `stop()`: their work counts as that of children that have ended.
    """

    def __init__(self, cpus: Sequence[int], root: Path = _ROOT, *, clock: Callable[[], Clocks] = clocks) -> None:
        self.cpus = list(cpus)
        self._root = root
        self._clock = clock
        self._begun: _Moment | None = None

    def start(self) -> None:
        self._begun = self._look()

    def stop(self) -> RoundHost:
        """End the round. ValueError if none was begun."""
        if self._begun is None:
            raise ValueError("a watch is started before it is stopped")
        before, after = self._begun, self._look()
        self._begun = None
        wall_s = max(after.clocks.monotonic_s - before.clocks.monotonic_s, 1e-9)
        work_s = after.all.busy_s - before.all.busy_s - (after.clocks.own_s - before.clocks.own_s)
        guests_s = after.guests.total_s - before.guests.total_s
        steal_s = after.guests.steal_s - before.guests.steal_s
        throttled = None
        if before.throttles is not None and after.throttles is not None:
            throttled = after.throttles - before.throttles
        steal = max(0.0, steal_s / guests_s) if guests_s > 0 else 0.0
        load = max(0.0, work_s / wall_s)
        suspended_s = max(0.0, after.clocks.boot_s - before.clocks.boot_s - wall_s)
        return RoundHost(
            steal=round(steal, 5),
            load=round(load, 3),
            throttled=throttled,
            suspended_s=round(suspended_s, 3),
            reasons=list(_reasons(steal, load, throttled, suspended_s)),
        )

    def _look(self) -> _Moment:
        return _Moment(
            self._clock(),
            cpu_times(self._root, self.cpus),
            cpu_times(self._root),
            throttles(self._root, self.cpus),
        )


class _Moment(NamedTuple):
    """The host at one moment: its clocks, the times of the guests' CPUs and of all, and the count of throttles."""

    clocks: Clocks
    guests: CpuTimes
    all: CpuTimes
    throttles: int | None


def _reasons(steal: float, load: float, throttled: int | None, suspended_s: float) -> Iterator[str]:
    if steal > STEAL_LIMIT:
        yield f"steal {100 * steal:.1f} % (limit {100 * STEAL_LIMIT:g} %)"
    if load > LOAD_LIMIT:
        yield f"others kept {load:.1f} CPUs busy (limit {LOAD_LIMIT:g})"
    if throttled:
        yield f"CPUs were slowed down for heat {throttled} times"
    if suspended_s > SUSPENDED_LIMIT_S:
        yield f"the host was suspended for {suspended_s:.0f} s"
