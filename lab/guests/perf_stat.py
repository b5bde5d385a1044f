"""`perf stat` around a case in its guest: the events, and perf's counts of them.

perf's JSON lines (`perf stat -j`, tools/perf/Documentation/perf-stat.txt, "JSON FORMAT") are among the program's own
lines on stderr. An event that the guest's PMU lacks is `<not supported>`; an event that never got a counter is `<not
counted>`. perf scales up the count of an event that had a counter for a part of the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lab.core.records import DAMAGED, Record
from lab.guests.initrd import BUSYBOX, run_inside
from lab.guests.live_machine import Accelerator
from lab.stats.verdict import Metric
from lab.workloads.spec import Better

PERF = "/usr/bin/perf"
PROGRAMS = (PERF, BUSYBOX)
MEMORY_MB = 64
"""Memory of the guest for perf: 32 MiB for it and its libraries, because the root is in RAM, and as much to run."""

# perf exits with 0 when a signal killed its program; a shell exits with 128 + signal.
KEEP_STATUS = '"$@"; exit $?'


class Event(NamedTuple):
    """An event of perf: its name there, the unit of its count, and the better direction."""

    name: str
    unit: str
    better: Better

    @property
    def metric(self) -> Metric:
        """The metric of a case, beside the program's own."""
        return Metric(name=metric_name(self.name), unit=self.unit, better=self.better)


SOFTWARE = (
    Event("task-clock", "ms", "lower"),
    Event("page-faults", "faults", "lower"),
    Event("context-switches", "switches", "neither"),
    Event("cpu-migrations", "migrations", "neither"),
)
HARDWARE = (
    Event("cycles", "cycles", "lower"),
    Event("instructions", "instructions", "neither"),
    Event("instructions:u", "instructions", "neither"),
    Event("instructions:k", "instructions", "neither"),
    Event("dTLB-load-misses", "misses", "lower"),
    Event("dTLB-store-misses", "misses", "lower"),
    Event("iTLB-load-misses", "misses", "lower"),
)
SIDES = ("instructions:u", "instructions:k")
"""The events of user and kernel mode, which `lab.compare.live` puts beside exact mode's counts."""

#: Cycles during page walks. perf has these names for some processors only (tools/perf/pmu-events).
WALKS = (
    Event("dtlb_load_misses.walk_active", "cycles", "lower"),
    Event("dtlb_store_misses.walk_active", "cycles", "lower"),
    Event("itlb_misses.walk_active", "cycles", "lower"),
)


def metric_name(event: str) -> str:
    """A metric's name: `perf-dtlb-load-misses`."""
    return f"perf-{re.sub('[_:]', '-', event.lower())}"


def events(known: Iterable[str]) -> tuple[Event, ...]:
    """The events to count with a PMU, which TCG does not give its guests. known: perf's names for this processor."""
    names = set(known)
    return (*SOFTWARE, *HARDWARE, *(event for event in WALKS if event.name in names))


def has_pmu(root: Path = Path("/")) -> bool:
    """True if this host has a PMU. Permission to use it does not matter: guests get theirs from KVM."""
    return any((root / "sys/bus/event_source/devices").glob("cpu*"))


def by_default(accelerator: Accelerator) -> bool:
    """True if guests count events unless the user says otherwise: perf is large, and unpacked in each boot."""
    return accelerator == "kvm" and has_pmu()


def known_events(root: Path) -> set[str]:
    """The names that the image's perf has for this host's processor, which under KVM is the guest's."""
    return set(run_inside(root, PERF, ["list", "--raw-dump"]).split())


def wrap(command: Sequence[str], events: Sequence[Event]) -> list[str]:
    """A case's command with perf around it. Its status and output stay the same."""
    names = ",".join(event.name for event in events)
    return [PERF, "stat", "-j", "-e", names, "--", BUSYBOX, "sh", "-c", KEEP_STATUS, "sh", *command]


# ---- perf's output


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One case's events, the summary of how they were counted, and the lines that are not perf's."""

    values: Mapping[str, float]
    summary: PerfSummary
    rest: Sequence[str]


def read(lines: Sequence[str]) -> Reading:
    """The counts of perf, and the other lines, of a program's stderr."""
    values: dict[str, float] = {}
    shares: dict[str, float] = {}
    not_counted, not_supported, rest = list[str](), list[str](), list[str]()
    for line in lines:
        event = _event(line)
        if event is None:
            rest.append(line)
            continue
        name, text, share = event
        value = _number(text)
        if value is None:
            (not_supported if text == "<not supported>" else not_counted).append(name)
        else:
            values[name] = value
            if share < 100:
                shares[name] = share
    software = {event.name for event in SOFTWARE}
    summary = PerfSummary(
        events=list(values),
        shares=shares,
        not_counted=not_counted,
        not_supported=not_supported,
        pmu=not software.issuperset((*values, *not_counted)),
    )
    return Reading(values=values, summary=summary, rest=rest)


def _event(line: str) -> tuple[str, str, float] | None:
    """Event, counter value as text, and percent of the time that it had a counter; None for any other line."""
    if not line.startswith("{"):
        return None
    try:
        row: Any = msgspec.json.decode(line)
    except DAMAGED:
        return None
    if not isinstance(row, dict) or not {"event", "counter-value"} <= set(row):
        return None
    share = row.get("pcnt-running", 100.0)
    return str(row["event"]), str(row["counter-value"]), float(share) if isinstance(share, int | float) else 100.0


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# ---- over a whole comparison


class PerfSummary(Record, frozen=True, kw_only=True):
    """The counts of `perf stat` in a comparison. Whole programs are counted, with their preparations.

    shares: the smallest percent of the time that an event had a counter, if not all of it; perf scaled
    its counts up. not_counted: events that had no counter in some boot, which has no number of them.
    not_supported: events that no guest's PMU has. pmu: false if the guests had none.
    """

    events: list[str]
    shares: dict[str, float] = msgspec.field(default_factory=dict)
    not_counted: list[str] = msgspec.field(default_factory=list)
    not_supported: list[str] = msgspec.field(default_factory=list)
    pmu: bool

    def __str__(self) -> str:
        parts = [] if self.pmu else ["no PMU in the guest: software events only"]
        if self.pmu and self.not_supported:
            parts.append(f"not in the guest's PMU: {', '.join(self.not_supported)}")
        if self.shares:
            shares = ", ".join(f"{name} {share:.0f} %" for name, share in self.shares.items())
            parts.append(f"counted in turns and scaled up: {shares} of the time")
        if self.not_counted:
            parts.append(f"got no counter in some boots: {', '.join(self.not_counted)}")
        return "; ".join(parts) or f"{len(self.events)} events counted all the time"


def merge(summaries: Iterable[PerfSummary]) -> PerfSummary:
    """One summary of several."""
    shares: dict[str, float] = {}
    counted, uncounted, unsupported = dict[str, None](), dict[str, None](), dict[str, None]()
    pmu = False
    for summary in summaries:
        counted |= dict.fromkeys(summary.events)
        uncounted |= dict.fromkeys(summary.not_counted)
        unsupported |= dict.fromkeys(summary.not_supported)
        pmu = pmu or summary.pmu
        for name, share in summary.shares.items():
            shares[name] = min(share, shares.get(name, 100.0))
    return PerfSummary(
        events=list(counted),
        shares=shares,
        not_counted=list(uncounted),
        not_supported=[name for name in unsupported if name not in counted],
        pmu=pmu,
    )
