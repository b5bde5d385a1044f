"""`perf stat` around a case in its guest: which events are asked for, and what comes back.

perf's JSON lines (`perf stat -j`, tools/perf/Documentation/perf-stat.txt, "JSON FORMAT") arrive between what the
program itself prints to stderr. An event that the guest's PMU does not have is `<not supported>`, one that never got
a counter `<not counted>`; one that had a counter for a part of the time was scaled up by perf, and its share says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lab.core.records import Record
from lab.guests import initrd
from lab.guests.live_machine import Accelerator
from lab.stats.verdict import Metric
from lab.workloads.spec import Better

PERF = "/usr/bin/perf"
SHELL = "/bin/busybox"
PROGRAMS = (PERF, SHELL)
MEMORY_MB = 64
"""What perf and its libraries take of a guest's memory, its root being there: 32 MiB, and room to run."""

# perf itself exits with 0 when its program was killed by a signal; a shell tells (128 + signal).
TELLS = '"$@"; exit $?'


class Event(NamedTuple):
    """What perf calls it, what it counts, and which side of it is better."""

    name: str
    unit: str
    better: Better

    @property
    def metric(self) -> Metric:
        """As a metric of a case, beside those that the program prints."""
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
    Event("dTLB-load-misses", "misses", "lower"),
    Event("dTLB-store-misses", "misses", "lower"),
    Event("iTLB-load-misses", "misses", "lower"),
)
#: Cycles in which a page walk was under way: names that perf has for some processors only (tools/perf/pmu-events).
WALKS = (
    Event("dtlb_load_misses.walk_active", "cycles", "lower"),
    Event("dtlb_store_misses.walk_active", "cycles", "lower"),
    Event("itlb_misses.walk_active", "cycles", "lower"),
)


def metric_name(event: str) -> str:
    """A metric's name: `perf-dtlb-load-misses`."""
    return f"perf-{event.lower().replace('_', '-')}"


def events(accelerator: Accelerator, known: Iterable[str] = ()) -> tuple[Event, ...]:
    """What is asked for. known: all names that perf has for this processor; TCG gives its guests no PMU."""
    if accelerator == "tcg":
        return SOFTWARE
    names = set(known)
    return (*SOFTWARE, *HARDWARE, *(event for event in WALKS if event.name in names))


def known_events(root: Path) -> set[str]:
    """The names that the image's perf has for this host's processor, which under KVM is the guest's."""
    return set(initrd.run_inside(root, PERF, ["list", "--raw-dump"]).split())


def wrapped(command: Sequence[str], asked: Sequence[Event]) -> list[str]:
    """A case's command with perf around it; its own status and output stay what they are."""
    names = ",".join(event.name for event in asked)
    return [PERF, "stat", "-j", "-e", names, "--", SHELL, "sh", "-c", TELLS, "sh", *command]


# ---- what came back


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One case's events. shares: of those that had a counter for a part of the time, in percent.

    rest: what else was printed.
    """

    values: Mapping[str, float]
    shares: Mapping[str, float]
    not_counted: tuple[str, ...]
    not_supported: tuple[str, ...]
    rest: tuple[str, ...]


_NUMBERS = {"<not counted>": "not_counted", "<not supported>": "not_supported"}


def read(lines: Sequence[str]) -> Reading:
    """What perf said among a program's own lines of stderr."""
    values: dict[str, float] = {}
    shares: dict[str, float] = {}
    missing: dict[str, list[str]] = {"not_counted": [], "not_supported": []}
    rest = []
    for line in lines:
        found = _event(line)
        if found is None:
            rest.append(line)
            continue
        name, text, share = found
        if text in _NUMBERS:
            missing[_NUMBERS[text]].append(name)
        elif (value := _number(text)) is None:
            missing["not_counted"].append(name)
        else:
            values[name] = value
            if share < 100:
                shares[name] = share
    return Reading(
        values=values,
        shares=shares,
        not_counted=tuple(missing["not_counted"]),
        not_supported=tuple(missing["not_supported"]),
        rest=tuple(rest),
    )


def _event(line: str) -> tuple[str, str, float] | None:
    """Event, counter value as text, and percent of the time that it had a counter; None for any other line."""
    if not line.startswith("{"):
        return None
    try:
        found: Any = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    if not isinstance(found, dict) or not {"event", "counter-value"} <= set(found):
        return None
    share = found.get("pcnt-running", 100.0)
    return str(found["event"]), str(found["counter-value"]), float(share) if isinstance(share, int | float) else 100.0


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# ---- over a whole comparison


class PerfSummary(Record, frozen=True, kw_only=True):
    """What `perf stat` counted in a comparison. Whole programs are counted, their preparations too.

    shares: the least percent of the time that an event had a counter, where that was not all of it; perf scaled those
    up. not_counted: events that got none in some boot, which then has no number of them. not_supported: those that
    no guest's PMU has. pmu: whether there was one at all.
    """

    events: list[str]
    shares: dict[str, float] = msgspec.field(default_factory=dict)
    not_counted: list[str] = msgspec.field(default_factory=list)
    not_supported: list[str] = msgspec.field(default_factory=list)
    pmu: bool

    def __str__(self) -> str:
        """For people, in one line."""
        parts = [] if self.pmu else ["no PMU in the guest: software events only"]
        if self.pmu and self.not_supported:
            parts.append(f"not in the guest's PMU: {', '.join(self.not_supported)}")
        if self.shares:
            told = ", ".join(f"{name} {share:.0f} %" for name, share in self.shares.items())
            parts.append(f"counted in turns and scaled up: {told} of the time")
        if self.not_counted:
            parts.append(f"got no counter in some boots: {', '.join(self.not_counted)}")
        return "; ".join(parts) or f"{len(self.events)} events counted all the time"


def summary(readings: Iterable[Reading]) -> PerfSummary:
    """The cases of one boot together."""
    soft = {event.name for event in SOFTWARE}
    return together(
        PerfSummary(
            events=list(one.values),
            shares=dict(one.shares),
            not_counted=list(one.not_counted),
            not_supported=list(one.not_supported),
            pmu=not soft.issuperset((*one.values, *one.not_counted)),
        )
        for one in readings
    )


def together(found: Iterable[PerfSummary]) -> PerfSummary:
    """Several boots together."""
    shares: dict[str, float] = {}
    counted, uncounted, unsupported = dict[str, None](), dict[str, None](), dict[str, None]()
    pmu = False
    for one in found:
        counted |= dict.fromkeys(one.events)
        uncounted |= dict.fromkeys(one.not_counted)
        unsupported |= dict.fromkeys(one.not_supported)
        pmu = pmu or one.pmu
        for name, share in one.shares.items():
            shares[name] = min(share, shares.get(name, 100.0))
    return PerfSummary(
        events=list(counted),
        shares=shares,
        not_counted=list(uncounted),
        not_supported=[name for name in unsupported if name not in counted],
        pmu=pmu,
    )
