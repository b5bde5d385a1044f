"""The hardware that exact mode models: machine files with geometry and costs, each with its source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import msgspec

from lab.core import records
from lab.core.errors import UserError, suggestion
from lab.core.paths import data_folder
from lab.core.records import Record
from lab.core.toml import TomlFile

DEFAULT = "sapphire-rapids"

OVERLAP_MAX = 64

ARCHITECTURE = "x86_64"

UNAFFECTED = "Not affected"

#: The parameters of guests and the versions of numbers, not modelled machines.
_OTHERS = frozenset({"live", "model"})

Source = Annotated[str, msgspec.Meta(min_length=1)]


class Array(Record, frozen=True, kw_only=True):
    """A set-associative TLB array."""

    entries: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    ways: Annotated[int, msgspec.Meta(ge=1)]
    source: Source
    estimate: bool = False


class Cache(Record, frozen=True, kw_only=True):
    """A set-associative cache of 64-byte lines."""

    kib: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    ways: Annotated[int, msgspec.Meta(ge=1)]
    source: Source
    estimate: bool = False

    @property
    def lines(self) -> int:
        return self.kib * 1024 // 64


class Number(Record, frozen=True, kw_only=True):
    """A count of something."""

    count: Annotated[int, msgspec.Meta(ge=0, le=1024)]
    source: Source
    estimate: bool = False


class Divisor(Number, frozen=True, kw_only=True):
    """A count that costs are divided by. low, high: its range."""

    low: Annotated[int, msgspec.Meta(ge=1, le=OVERLAP_MAX)] | None = None
    high: Annotated[int, msgspec.Meta(ge=1, le=OVERLAP_MAX)] | None = None

    @property
    def range(self) -> tuple[int, int]:
        """The range in the file; of an estimate without one, half to twice the count."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        return (max(1, self.count // 2), min(OVERLAP_MAX, 2 * self.count)) if self.estimate else (self.count,) * 2


class Cost(Record, frozen=True, kw_only=True):
    """The cost of an event. The plugin counts in thousandths of a cycle. low, high: its range."""

    cycles: Annotated[float, msgspec.Meta(ge=0, le=100_000)]
    low: Annotated[float, msgspec.Meta(ge=0, le=100_000)] | None = None
    high: Annotated[float, msgspec.Meta(ge=0, le=100_000)] | None = None
    source: Source
    estimate: bool = False

    @property
    def range(self) -> tuple[float, float]:
        """The range in the file; of an estimate without one, half to twice the cost."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        return (self.cycles / 2, 2 * self.cycles) if self.estimate else (self.cycles, self.cycles)


class Tlb(Record, frozen=True, kw_only=True):
    """First levels for data and code, and a second level. Huge pages without an array of their own use the other."""

    dtlb_4k: Array
    itlb_4k: Array
    stlb: Array
    dtlb_2m: Array | None = None
    itlb_2m: Array | None = None
    istlb: Array | None = None


class Caches(Record, frozen=True, kw_only=True):
    """Caches, nearest first; l2 and llc hold code and data."""

    l1i: Cache
    l1d: Cache
    l2: Cache
    llc: Cache


class Flush(Record, frozen=True, kw_only=True):
    """The extent of a flush of one page. all: all pages, as on an Intel CPU with pages that a hypervisor split."""

    all: bool = False
    source: Source


class Prefetch(Record, frozen=True, kw_only=True):
    """The streams of sequential misses that the prefetcher follows."""

    streams: Number


class Overlap(Record, frozen=True, kw_only=True):
    """The cache misses that overlap, if none waits for another."""

    misses: Divisor


class Costs(Record, frozen=True, kw_only=True):
    """Costs in cycles; docs/cost-model.md defines the events. Costs from `atomic` on are of a class of instructions.

    The costs from `dsb` on are of arm64 alone.
    """

    instruction: Cost
    stlb_hit: Cost
    walk_4k: Cost
    walk_2m: Cost
    walk_fetch: Cost
    l2_hit: Cost
    llc_hit: Cost
    memory: Cost
    prefetched: Cost
    rep_start: Cost
    rep_long: Cost
    rep_byte: Cost
    rep_line: Cost
    rep_memory: Cost
    atomic: Cost
    fence: Cost
    division: Cost
    pause: Cost
    indirect_branch: Cost
    return_branch: Cost
    misprediction: Cost
    interrupt_flag: Cost
    user_access: Cost
    segment: Cost
    state: Cost
    vector: Cost
    time: Cost
    cpuid: Cost
    msr: Cost
    swapgs: Cost
    cr3: Cost
    cr4: Cost
    invlpg: Cost
    syscall: Cost
    exception: Cost
    dsb: Cost | None = None
    isb: Cost | None = None
    tlb_invalidation: Cost | None = None
    zeroed_line: Cost | None = None

    def given(self) -> dict[str, Cost]:
        """The costs that the machine has, by name."""
        return {name: cost for name in self.__struct_fields__ if (cost := getattr(self, name))}


class Coherence(Record, frozen=True, kw_only=True):
    """The costs of several CPUs. move: of a line that another CPU has."""

    move: Cost


class Guest(Record, frozen=True, kw_only=True):
    """The CPU that guests see, as QEMU's `-cpu`: by it a kernel chooses its alternatives and mitigations.

    lacks: features of the modelled CPU, by the kernel's names, that QEMU's TCG lacks. off: features of it that TCG has
    and the guest does not, each with the reason.
    mitigated: parameters of kernels whose mitigations are on. They say more than TCG can: the flaws that the CPU does
    not have, and its means against the others. Kernels that do not know one of them do without it.
    """

    cpu: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9,+=_.-]*\Z", description="a CPU as -cpu takes it")]
    lacks: list[str] = msgspec.field(default_factory=list)
    off: dict[str, Source] = msgspec.field(default_factory=dict)
    mitigated: list[str] = msgspec.field(default_factory=list)
    source: Source


class Mitigation(Record, frozen=True, kw_only=True):
    """The text of a file of /sys/devices/system/cpu/vulnerabilities, as a kernel of today writes it on the machine."""

    says: Annotated[str, msgspec.Meta(min_length=1)]
    source: Source


class Clock(Record, frozen=True, kw_only=True):
    """The core's clock, by which cycles become time."""

    ghz: Annotated[float, msgspec.Meta(gt=0, le=20)]
    source: Source


class Host(Record, frozen=True, kw_only=True):
    """The machine that the numbers were measured on."""

    architecture: str
    cpu: str
    kernel: str
    guest: bool = False
    mitigations: dict[str, str] = msgspec.field(default_factory=dict)


class Reading(Record, frozen=True, kw_only=True):
    """A measured number, and the range of most samples; its name ends in the unit."""

    value: float
    low: float
    high: float


class Machine(Record, frozen=True, kw_only=True):
    """`machines/<name>.toml`. guest: None for the CPU of the `exact.toml` of its architecture.

    mitigations: with `mitigations=auto`, by vulnerability; the machine is not affected by any other.
    """

    schema: int
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*\Z", description="a name of a-z, 0-9 and '-'")]
    description: str
    architecture: str = ARCHITECTURE
    tlb: Tlb
    cache: Caches
    prefetch: Prefetch
    overlap: Overlap
    cost: Costs
    clock: Clock | None = None
    host: Host | None = None
    measured: dict[str, Reading] = msgspec.field(default_factory=dict)
    guest: Guest | None = None
    flush: Flush | None = None
    coherence: Coherence | None = None
    mitigations: dict[str, Mitigation] = msgspec.field(default_factory=dict)

    def reports(self) -> Mapping[str, str]:
        """The text of each file of vulnerabilities on the machine; none if it is not known."""
        if self.mitigations:
            return {name: one.says for name, one in self.mitigations.items()}
        return self.host.mitigations if self.host else {}

    @property
    def key(self) -> str:
        """The digest of all numbers of the machine; sources and descriptions do not count."""
        return records.digest(self.arguments())

    def arguments(self) -> list[str]:
        """The plugin's arguments for this machine, as NAME=VALUE."""
        arrays = {name: getattr(self.tlb, name) for name in self.tlb.__struct_fields__}
        caches = {name: getattr(self.cache, name) for name in self.cache.__struct_fields__}
        return [
            *(f"{name}={array.entries}:{array.ways}" for name, array in arrays.items() if array),
            *(f"{name}={cache.kib * 1024}:{cache.ways}" for name, cache in caches.items()),
            f"streams={self.prefetch.streams.count}",
            *(["flushes_all=1"] if self.flush and self.flush.all else []),
            f"overlap={self.overlap.misses.count}",
            *(f"{name}={round(cost.cycles * 1000)}" for name, cost in self.cost.given().items()),
        ]


def names(guests: str | None = ARCHITECTURE) -> list[str]:
    """The machines of an architecture that come with the lab; None: all of them."""
    found = sorted(path for path in data_folder("machines").glob("*.toml") if path.stem not in _OTHERS)
    return [path.stem for path in found if guests in (None, _architecture_of(path))]


@cache
def _architecture_of(path: Path) -> str:
    return read(path).architecture


def require_architecture(ref: str, guests: str) -> None:
    """Refuse a machine of another architecture than the guests'."""
    machine = load(ref)
    if machine.architecture != guests:
        raise UserError(
            f"--machine {ref}: it is of {machine.architecture}, and the guests are of {guests}",
            hint=f"there is {', '.join(names(guests)) or 'none'}",
        )


def load(ref: str = DEFAULT) -> Machine:
    """A machine by its name, or by the path of a file (`./mine.toml`)."""
    return read(path_of(ref))


def path_of(ref: str) -> Path:
    """The file of a machine's name, or of a path."""
    if "/" in ref or ref.endswith(".toml"):
        return Path(ref)
    known = names(None)
    if ref not in known:
        hint = suggestion(ref, known) or f"there is {', '.join(known)}; a file is given as ./{ref}.toml"
        raise UserError(f"no machine is called {ref!r}", hint=hint)
    return data_folder("machines") / f"{ref}.toml"


def read(path: Path) -> Machine:
    """The machine in a file."""
    file = TomlFile(path)
    machine = file.convert(Machine)
    for name in machine.tlb.__struct_fields__:
        array = getattr(machine.tlb, name)
        if array and array.entries % array.ways:
            raise file.error(f"tlb.{name}: {array.ways} ways do not divide {array.entries} entries", "tlb", name)
    for name in machine.cache.__struct_fields__:
        cache = getattr(machine.cache, name)
        if cache.lines % cache.ways:
            message = f"cache.{name}: {cache.ways} ways do not divide {cache.lines} lines of 64 bytes"
            raise file.error(message, "cache", name)
    overlap = machine.overlap.misses
    if not 1 <= overlap.count <= OVERLAP_MAX:
        message = f"overlap.misses: {overlap.count} is not between 1 and {OVERLAP_MAX}"
        raise file.error(message, "overlap", "misses")
    _check_range(file, overlap.count, overlap.low, overlap.high, "overlap", "misses")
    _check_costs(file, machine.cost)
    if machine.coherence:
        move = machine.coherence.move
        _check_range(file, move.cycles, move.low, move.high, "coherence", "move")
    if machine.host and machine.host.architecture != machine.architecture:
        message = f"measured on {machine.host.architecture}, and the model is of {machine.architecture}"
        raise file.error(message, "host", "architecture")
    return machine


def _check_costs(file: TomlFile, cost: Costs) -> None:
    """Refuse costs that no CPU has: they are a slip, such as nanoseconds for cycles or a level left out."""
    for name, value in cost.given().items():
        if not math.isfinite(value.cycles):
            raise file.error(f"cost.{name}: {value.cycles} is no number of cycles", "cost", name)
    for cycles in (cost.instruction.cycles, cost.instruction.low, cost.instruction.high):
        if cycles is not None and not 0 < cycles <= 10:
            message = f"cost.instruction: {cycles:g} cycles; between 0 and 10 is possible"
            raise file.error(message, "cost", "instruction")
    levels = ("l2_hit", "llc_hit", "memory")
    for near, far in pairwise(levels):
        if getattr(cost, near).cycles >= getattr(cost, far).cycles:
            raise file.error(f"cost.{far}: must cost more than cost.{near}", "cost", far)
    for name, value in cost.given().items():
        _check_range(file, value.cycles, value.low, value.high, "cost", name)


def _check_range(file: TomlFile, value: float, low: float | None, high: float | None, *place: str) -> None:
    """Refuse half a range, and a range without the value."""
    name = ".".join(place)
    if (low is None) != (high is None):
        given, missing = ("high", "low") if low is None else ("low", "high")
        raise file.error(f"{name}: {given} without {missing}", *place)
    if low is not None and high is not None and not low <= value <= high:
        raise file.error(f"{name}: {value:g} is not between low = {low:g} and high = {high:g}", *place)


def to_toml(machine: Machine, comment: Iterable[str] = ()) -> str:
    """A machine file as text, with lines of comment above."""
    lines = [*(f"# {line}" for line in comment), "schema = 1"]
    lines += [f"name = {_toml(machine.name)}", f"description = {_toml(machine.description)}"]
    if machine.architecture != ARCHITECTURE:
        lines.append(f"architecture = {_toml(machine.architecture)}")
    for table in machine.__struct_fields__[4:]:
        values = msgspec.to_builtins(getattr(machine, table)) or {}
        rows = [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None]
        lines += ["", f"[{table}]", *rows] if rows else []
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """A value as TOML, which takes JSON's strings and numbers. Values that are off or missing are left out."""
    if isinstance(value, dict):
        items = {name: item for name, item in value.items() if item is not False and item is not None}
        return f"{{ {', '.join(f'{name} = {_toml(item)}' for name, item in items.items())} }}"
    return msgspec.json.encode(value).decode()
