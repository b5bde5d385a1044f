"""Whether a host is fit to measure on: how it is set up, and what disturbed it during a round.

What is found is told, in the result, and never decides about one arm alone: a round that was disturbed is repeated,
and kept with its reasons.

What /proc and /sys say of a host, as numbers and words. Every function reads below a root, so that any host's
recorded files can be read as well as this one's.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from lab.core.records import Record

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


STEAL_LIMIT = 0.005
"""Share of the guests' CPUs' time that a hypervisor took away in a round."""

LOAD_LIMIT = 0.25
"""CPUs' worth of work that others did on this host in a round."""

SUSPENDED_LIMIT_S = 0.5
BUSY_LOAD = 0.5
"""Load average before anything is measured above which a host is called busy."""

FIX = "lab doctor --fix"
_TICKS = float(os.sysconf("SC_CLK_TCK"))
_ROOT = Path("/")

State = Literal["ok", "limited"]


class HostFact(Record, frozen=True, kw_only=True):
    """One line about the host. value: in a word, as it can be compared. `limited`: it adds noise, or may."""

    name: str
    value: str
    state: State
    text: str
    remedy: str | None = None


class RoundHost(Record, frozen=True, kw_only=True):
    """What happened on the host during a round.

    steal: share of the guests' CPUs' time. load: CPUs' worth of work by others. throttled: how often a CPU was slowed
    down for heat, None where nobody counts. reasons: which of these were above their limits.
    """

    steal: float
    load: float
    throttled: int | None
    suspended_s: float
    reasons: list[str]

    @property
    def disturbed(self) -> bool:
        """Whether the round should be repeated."""
        return bool(self.reasons)


# ---- before


def survey(cpus: Sequence[int], root: Path = _ROOT) -> list[HostFact]:
    """Everything about this host that makes measurements scatter, with what to do about it. cpus: the guests'."""
    facts = (
        _governor(root, cpus), _turbo(root), _smt(root), _thp(root), _ksm(root), _swap(root), _clocksource(root),
        _steal(root), _load(root), _throttling(root, cpus), _other_guests(root),
    )  # fmt: skip
    return list(facts)


def setup(facts: Sequence[HostFact]) -> dict[str, str]:
    """Of a survey, what stays as it is until somebody changes it: the host's settings by name."""
    return {fact.name: fact.value for fact in facts if fact.name in _SETTINGS}


_SETTINGS = ("governor", "turbo", "SMT", "THP", "KSM", "swap", "clocksource")


def _governor(root: Path, cpus: Sequence[int]) -> HostFact:
    found = sorted(governors(root, cpus))
    value = ", ".join(found) or "none"
    if found == ["performance"]:
        return _ok("governor", value, "performance on all CPUs of the guests")
    if not found:
        text = "the frequency of the CPUs is not this system's to choose, nor to know"
        return _limited("governor", value, text, "measure on bare metal, or repeat more")
    return _limited("governor", value, f"{value}: the frequency follows the load", FIX)


def _turbo(root: Path) -> HostFact:
    match turbo(root):
        case False:
            return _ok("turbo", "off", "off: no CPU runs above its base frequency")
        case True:
            return _limited("turbo", "on", "on: frequency depends on heat and on how many CPUs are busy", FIX)
    return _limited("turbo", "unknown", "cannot be read: none, or the hypervisor's", "turn it off in the firmware")


def _smt(root: Path) -> HostFact:
    active = number(root, f"{CPU}/smt/active")
    control = word(root, f"{CPU}/smt/control") or "unknown"
    if active == 0:
        return _ok("SMT", control, f"no CPU shares a core with another ({control})")
    if active is None:
        return _limited("SMT", control, "cannot be read", "turn it off in the firmware")
    text = "on: what runs on a sibling slows its CPU down; the arms never share a core, other programs may"
    return _limited("SMT", control, text, f"{FIX} --without-smt")


def _thp(root: Path) -> HostFact:
    value = selected(word(root, "sys/kernel/mm/transparent_hugepage/enabled")) or "none"
    pages, free = huge_pages(root)
    if free:
        return _ok("THP", value, f"{value}; {free} of {pages} huge pages of 2 MiB are free for guests")
    if value in ("never", "none"):
        return _ok("THP", value, f"{value}: guest memory is in small pages at every boot")
    text = f"{value}: guest memory is in huge pages as far as the host finds some, which differs between boots"
    return _limited("THP", value, text, f"{FIX}, or set huge pages aside (sysctl vm.nr_hugepages)")


def _ksm(root: Path) -> HostFact:
    running = number(root, "sys/kernel/mm/ksm/run")
    if running == 1:
        return _limited("KSM", "on", "on: it merges equal pages, of guests too, while they run", FIX)
    value = {None: "none", 0: "off", 2: "off, unmerged"}.get(running, str(running))
    return _ok("KSM", value, "does not run")


def _swap(root: Path) -> HostFact:
    size_mb, used_mb = swap(root)
    if not size_mb:
        return _ok("swap", "none", "none")
    swappiness = number(root, "proc/sys/vm/swappiness")
    text = f"{size_mb / 1024:.1f} GiB, {used_mb / 1024:.1f} used, swappiness {swappiness}"
    if swappiness == 0:
        return _ok("swap", "last resort", text)
    return _limited("swap", "on", f"{text}: guest memory may be swapped out", f"{FIX}, or swapoff -a")


def _clocksource(root: Path) -> HostFact:
    value = word(root, "sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    if value == "tsc":
        return _ok("clocksource", value, "tsc")
    text = f"{value}: reading the time is slow or goes through a hypervisor"
    return _limited("clocksource", value, text, "see `dmesg | grep -i tsc` for why it is not tsc")


def _steal(root: Path) -> HostFact:
    times = cpu_times(root, ticks_per_s=_TICKS)
    share = times.steal_s / times.total_s if times.total_s else 0.0
    value = f"{100 * share:.2f} %"
    if share <= STEAL_LIMIT:
        return _ok("steal", value, f"{value} of all CPU time since boot")
    text = f"{value} of all CPU time since boot: a hypervisor runs others on these CPUs"
    return _limited("steal", value, text, "rounds with steal are repeated; better a machine of one's own")


def _load(root: Path) -> HostFact:
    average = load(root)
    value = "unknown" if average is None else f"{average:.2f}"
    if average is not None and average <= BUSY_LOAD:
        return _ok("load", value, f"{value} over the last minute")
    return _limited("load", value, f"{value} over the last minute: others are at work here", "stop what else runs")


def _throttling(root: Path, cpus: Sequence[int]) -> HostFact:
    count = throttles(root, cpus)
    if count is None:
        return _limited(
            "throttling", "unknown", "nobody counts here how often CPUs get too hot", "measure on bare metal"
        )
    if count == 0:
        return _ok("throttling", "0", "no CPU was ever too hot")
    text = f"CPUs were slowed down for heat {count} times since boot"
    return _limited("throttling", str(count), text, f"rounds with throttling are repeated; cool it, or {FIX}")


def _other_guests(root: Path) -> HostFact:
    found = guests(root, parent=os.getpid())
    if not found:
        return _ok("other guests", "0", "none")
    named = ", ".join(f"{name} ({pid})" for pid, name in found[:4]) + (", ..." if len(found) > 4 else "")
    return _limited("other guests", str(len(found)), f"{len(found)} run here: {named}", "stop them, or wait for them")


def _ok(name: str, value: str, text: str) -> HostFact:
    return HostFact(name=name, value=value, state="ok", text=text)


def _limited(name: str, value: str, text: str, remedy: str) -> HostFact:
    return HostFact(name=name, value=value, state="limited", text=text, remedy=remedy)


# ---- during


class Clocks(Record, frozen=True, kw_only=True):
    """Seconds: by the clock that stops while the host is suspended, by the one that does not, and of our own work."""

    monotonic_s: float
    boot_s: float
    own_s: float


def clocks() -> Clocks:
    """Now. Own work is that of this process and of children that have ended and were waited for."""
    own = os.times()
    return Clocks(
        monotonic_s=time.clock_gettime(time.CLOCK_MONOTONIC),
        boot_s=time.clock_gettime(time.CLOCK_BOOTTIME),
        own_s=own.user + own.system + own.children_user + own.children_system,
    )


class Watch:
    """Looks at the host when a round begins and when it is over, and says what happened in between.

    The round's guests have to be over by `stop()`: their work is known as that of children that have ended.
    """

    def __init__(
        self, cpus: Sequence[int], root: Path = _ROOT, *, clock: Callable[[], Clocks] = clocks, ticks: float = _TICKS
    ) -> None:
        """cpus: of the guests."""
        self.cpus = list(cpus)
        self._root = root
        self._clock = clock
        self._ticks = ticks
        self._begun: tuple[Clocks, Times, Times, int | None] | None = None

    def start(self) -> None:
        """A round begins."""
        self._begun = self._look()

    def stop(self) -> RoundHost:
        """It is over. ValueError: it never began."""
        if self._begun is None:
            raise ValueError("a watch is started before it is stopped")
        (clock, mine, everyone, hot), (clock1, mine1, everyone1, hot1) = self._begun, self._look()
        self._begun = None
        wall_s = max(clock1.monotonic_s - clock.monotonic_s, 1e-9)
        work_s = everyone1.busy_s - everyone.busy_s - (clock1.own_s - clock.own_s)
        return _judged(
            steal=_share(mine1.steal_s - mine.steal_s, mine1.total_s - mine.total_s),
            load=max(0.0, work_s / wall_s),
            throttled=None if hot is None or hot1 is None else hot1 - hot,
            suspended_s=max(0.0, clock1.boot_s - clock.boot_s - wall_s),
        )

    def _look(self) -> tuple[Clocks, Times, Times, int | None]:
        return (
            self._clock(),
            cpu_times(self._root, self.cpus, ticks_per_s=self._ticks),
            cpu_times(self._root, ticks_per_s=self._ticks),
            throttles(self._root, self.cpus),
        )


def _share(part: float, whole: float) -> float:
    return max(0.0, part / whole) if whole > 0 else 0.0


def _judged(*, steal: float, load: float, throttled: int | None, suspended_s: float) -> RoundHost:
    def reasons() -> Iterator[str]:
        if steal > STEAL_LIMIT:
            yield f"steal {100 * steal:.1f} % (limit {100 * STEAL_LIMIT:g} %)"
        if load > LOAD_LIMIT:
            yield f"others kept {load:.1f} CPUs busy (limit {LOAD_LIMIT:g})"
        if throttled:
            yield f"CPUs were slowed down for heat {throttled} times"
        if suspended_s > SUSPENDED_LIMIT_S:
            yield f"the host was suspended for {suspended_s:.0f} s"

    return RoundHost(
        steal=round(steal, 5),
        load=round(load, 3),
        throttled=throttled,
        suspended_s=round(suspended_s, 3),
        reasons=list(reasons()),
    )
