"""Microbenchmarks run natively on this host: the program's samples, and the facts of the host.

The program (`machines/measure`, C) gives samples in core cycles; `lab.guests.calibration` makes a machine of them.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from lab.core.errors import HostFailed, UserError
from lab.core.process import run
from lab.core.records import DAMAGED
from lab.guests import hardware, host, topology
from lab.guests.hardware import Guest, Host, Reading
from lab.guests.reach import Unclear, quantile
from lab.guests.topology import HostCpu
from lab.kernels.compilers import Program

PROGRAM = Program(folder="measure", product="measure", label="the program that measures this host")

SCHEMA = 1

TIMEOUT_S = 600.0

_UNDISTURBED = 0.985
"""The share of the best width that a run must have had: with another thread on the core it is less."""

_ENOUGH = 5
"""The number of undisturbed samples that a value needs."""

_STEADY = 0.1
"""The largest relative spread of the clock that measuring bears."""


# --- samples ---


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the program's output."""


class Series(_Line, frozen=True, kw_only=True, tag_field="t", tag="series"):
    """The samples of one benchmark: cycles an event, and beside each the clock and the core's width.

    x: a size, length or number. width: additions in a cycle, which are fewer while another thread uses the core.
    """

    name: str
    x: int
    disturbed: int
    cycles: list[float]
    ghz: list[float]
    width: list[float]
    shared: bool = False  # with another thread on the core, all the time

    def and_another(self, other: Series) -> Series:
        """With the samples of a later round."""
        return msgspec.structs.replace(
            self,
            disturbed=self.disturbed + other.disturbed,
            cycles=self.cycles + other.cycles,
            ghz=self.ghz + other.ghz,
            width=self.width + other.width,
        )

    def undisturbed(self, width: float) -> Series:
        """Without the samples that had less than this width; the widest quarter if hardly any had it."""
        every = sorted(zip(self.width, self.cycles, self.ghz, strict=True), reverse=True)
        kept = [sample for sample in every if sample[0] >= width]
        shared = len(kept) < _ENOUGH
        if shared:
            kept = every[: max(_ENOUGH, len(every) // 4)]
        widths, cycles, ghz = ([sample[i] for sample in kept] for i in range(3))
        return msgspec.structs.replace(self, cycles=cycles, ghz=ghz, width=widths, shared=shared)

    def reading(self, scale: Callable[[float], float] = lambda cycles: cycles, share: float = 0.25) -> Reading:
        """The lower quartile (or another share), and the range from the 5th to the 75th percentile.

        A disturbance makes a run longer, so the median would depend on the neighbours. A minimum would depend on the
        one run whose clock was misjudged.
        """
        ranked = sorted(map(scale, self.cycles))
        return Reading(value=quantile(ranked, share), low=quantile(ranked, 0.05), high=quantile(ranked, 0.75))

    @property
    def value(self) -> float:
        """The lower quartile of its cycles."""
        return self.reading().value


class _Header(_Line, frozen=True, kw_only=True, tag_field="t", tag="header"):
    schema: int


class _Fact(_Line, frozen=True, kw_only=True, tag_field="t", tag="fact"):
    name: str
    value: int


class _Missing(_Line, frozen=True, kw_only=True, tag_field="t", tag="missing"):
    name: str
    reason: str


class _End(_Line, frozen=True, kw_only=True, tag_field="t", tag="end"):
    pass


_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Header | Series | _Fact | _Missing | _End)


@dataclass(frozen=True, kw_only=True)
class Samples:
    """All that the program measured, by name and x."""

    series: dict[str, dict[int, Series]]
    facts: dict[str, int]
    missing: dict[str, str]

    def one(self, name: str) -> Series:
        """A benchmark that is not over sizes; `Unclear` if it gave nothing."""
        return next(iter(self.over(name).values()))

    def over(self, name: str) -> dict[int, Series]:
        """A benchmark over sizes."""
        found = {x: series for x, series in self.series.get(name, {}).items() if len(series.cycles) > 1}
        if not found:
            raise Unclear(self.missing.get(name, "every run was disturbed"))
        return found

    @property
    def shared(self) -> list[str]:
        """The benchmarks that hardly ever ran without another thread on the core."""
        return [
            name
            for name, by_x in self.series.items()
            if statistics.mean(series.shared for series in by_x.values()) > 0.3
        ]

    def clock(self) -> Reading:
        """The clock of all runs that count; `HostFailed` if they give none."""
        ranked = sorted(ghz for by_x in self.series.values() for series in by_x.values() for ghz in series.ghz)
        if len(ranked) < 20 or len(self.shared) > len(self.series) / 2:
            raise HostFailed(
                "measuring is hopeless: nearly every run was disturbed",
                hint="stop other programs, or choose another --cpu",
            )
        clock = Reading(value=statistics.median(ranked), low=quantile(ranked, 0.05), high=quantile(ranked, 0.95))
        if (clock.high - clock.low) / clock.value > _STEADY:
            raise HostFailed(
                f"measuring is hopeless: the core's clock went from {clock.low:.2f} to {clock.high:.2f} GHz meanwhile",
                hint="stop other programs on this host, or choose another --cpu",
            )
        return clock

    @property
    def disturbed(self) -> float:
        """The share of runs that were thrown away."""
        every = [series for by_x in self.series.values() for series in by_x.values()]
        kept, lost = sum(len(series.cycles) for series in every), sum(series.disturbed for series in every)
        return lost / max(1, kept + lost)


def parse(output: bytes) -> Samples:
    """Read the program's lines."""
    try:
        lines = [_decoder.decode(line) for line in output.splitlines()]
    except DAMAGED as error:
        raise HostFailed(f"{PROGRAM.label} wrote a line that cannot be read: {error}") from error
    if not lines or lines[0] != _Header(schema=SCHEMA) or not isinstance(lines[-1], _End):
        raise HostFailed(f"{PROGRAM.label} did not finish")
    every = [line for line in lines if isinstance(line, Series)]
    widths = sorted(width for series in every for width in series.width)
    least = _UNDISTURBED * quantile(widths, 0.99) if widths else 0.0
    series: dict[str, dict[int, Series]] = {}
    for line in every:
        by_x = series.setdefault(line.name, {})
        by_x[line.x] = by_x[line.x].and_another(line) if line.x in by_x else line
    series = {name: {x: one.undisturbed(least) for x, one in by_x.items()} for name, by_x in series.items()}
    facts = {line.name: line.value for line in lines if isinstance(line, _Fact)}
    missing = {line.name: line.reason for line in lines if isinstance(line, _Missing)}
    return Samples(series=series, facts=facts, missing=missing)


def measure(*, cpu: int | None, quick: bool) -> Samples:
    """Compile the program if need be, and run it on one CPU."""
    require_architecture(platform.machine())
    allowed = sorted(os.sched_getaffinity(0))
    if cpu is not None and cpu not in allowed:
        raise UserError(f"CPU {cpu} is not one that this process may use", hint=f"it may use {allowed}")
    arena = _arena_mib(host.available_mb(), quick=quick)
    program = PROGRAM.obtain()
    chosen = _idlest(allowed) if cpu is None else cpu
    partner = _partner(chosen, topology.host_cpus(allowed))
    words = [str(chosen), "-1" if partner is None else str(partner), str(arena)]
    return parse(run([program, *words, *(["quick"] if quick else [])], timeout_s=TIMEOUT_S))


def _partner(cpu: int, known: Sequence[HostCpu]) -> int | None:
    """A CPU of another core, if possible of the same socket and node; None if there is none."""
    own = next(one for one in known if one.cpu == cpu)
    others = [one for one in known if one.core != own.core]
    near = [one for one in others if (one.socket, one.node) == (own.socket, own.node)]
    return next((one.cpu for one in near or others), None)


def require_architecture(architecture: str) -> None:
    """Refuse hosts that the lab does not model."""
    if architecture != hardware.ARCHITECTURE:
        raise HostFailed(f"this host is {architecture}; the lab models and measures {hardware.ARCHITECTURE} only")


def _arena_mib(available_mib: int, *, quick: bool) -> int:
    """Memory to walk through: a power of two, and at most a third of the free memory."""
    arena = 256 if quick else 1024
    while arena > available_mib // 3:
        arena //= 2
    if arena < 128:
        raise HostFailed(
            f"{available_mib} MiB of memory are free, which is too little to measure memory with",
            hint="384 MiB are the least",
        )
    return arena


def _idlest(allowed: Sequence[int]) -> int:
    """The CPU that was idle for longest during a quarter of a second."""
    before = _idle_ticks()
    time.sleep(0.25)
    after = _idle_ticks()
    return max(allowed, key=lambda cpu: after.get(cpu, 0) - before.get(cpu, 0))


def _idle_ticks() -> dict[int, int]:
    rows = (line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu"))
    return {int(row[0][3:]): int(row[4]) for row in rows if row[0] != "cpu"}


# --- this host ---


def this_host() -> Host:
    """The host as the kernel describes it."""
    info = _cpuinfo()
    folder = Path("/sys/devices/system/cpu/vulnerabilities")
    found = {path.name: path.read_text().strip() for path in sorted(folder.glob("*"))}
    return Host(
        architecture=platform.machine(),
        cpu=info.get("model name", "unknown"),
        kernel=platform.release(),
        guest="hypervisor" in info.get("flags", "").split(),
        mitigations={name: text for name, text in found.items() if text != hardware.UNAFFECTED},
    )


def nearest(known: Iterable[str]) -> str:
    """The shipped machine of this CPU's vendor."""
    wanted = {"AuthenticAMD": "zen4"}.get(_cpuinfo().get("vendor_id", ""), hardware.DEFAULT)
    return wanted if wanted in known else hardware.DEFAULT


def guest_of(base: Guest | None) -> Guest | None:
    """The CPU of guests on this host's machine: the base machine's, by this host's name and without features it lacks.

    A kernel chooses its alternatives and mitigations by vendor, family, model and features.
    """
    info = _cpuinfo()
    if base is None or not {"vendor_id", "cpu family", "model", "stepping", "flags"} <= info.keys():
        return base
    own = {"vendor": info["vendor_id"], "family": info["cpu family"], "model": info["model"]}
    own["stepping"] = info["stepping"]
    flags = {flag.replace("_", "") for flag in info["flags"].split()}
    words = [word for word in base.cpu.split(",") if not word.startswith("+") or word[1:] in flags]
    renamed = [f"{key}={own[key]}" if (key := word.partition("=")[0]) in own else word for word in words]
    # The parameters that make a kernel believe in another CPU are not known.
    mitigated = base.mitigated if renamed == words else []
    source = "/proc/cpuinfo, as far as QEMU emulates it"
    return msgspec.structs.replace(base, cpu=",".join(renamed), mitigated=mitigated, source=source)


def _cpuinfo() -> dict[str, str]:
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}


def cpuid_caches() -> dict[str, tuple[int, int]]:
    """KiB and ways of each cache, as CPUID reports them and the kernel shows them; without those it does not."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level = ((folder / name).read_text().strip() for name in ("type", "level"))
            size, ways = ((folder / name).read_text().strip() for name in ("size", "ways_of_associativity"))
        except OSError:
            continue
        name = "l1i" if kind == "Instruction" else {"1": "l1d", "2": "l2", "3": "llc"}.get(level)
        if name and int(ways):
            found[name] = (int(size.removesuffix("K")), int(ways))
    return found
