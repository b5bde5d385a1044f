"""The cost model: a QEMU plugin that counts instructions, TLB and cache misses of a modelled machine.

The plugin (`machines/plugin`) is C, and is built on first use. It needs no files of QEMU's, and one binary runs under
every version of the plugin interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Self

import msgspec

from lab.core.errors import GuestFailed, GuestFailure, UserError
from lab.core.records import DAMAGED
from lab.guests import hardware, model_version
from lab.guests.hardware import Machine
from lab.kernels.architecture import Architecture
from lab.kernels.compilers import Compiler, Program

SCHEMA = 4
"""The schema that the plugin writes."""

_OLDEST = 2
"""The oldest schema that can be read: without events, and up to 3 without softirqs, idle and steps."""

NAME = "libcost.so"
PROGRAM = Program(folder="plugin", product=NAME, label="the cost plugin")
COSTS = "costs.jsonl"
"""The plugin's output in a guest's folder."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Address = Annotated[int, msgspec.Meta(ge=0)]

Events = dict[str, _Count]
"""The terms of a sum of cycles: counts by the name of their price (see `costs.price`). Zeros are left out."""


class Model(StrEnum):
    """The extent of the model: each includes the one before it, and takes longer."""

    COUNT = "count"  # instructions, profile
    TLB = "tlb"  # and loads, stores, TLBs
    FULL = "full"  # and caches


class Brackets(StrEnum):
    """The begin and the end of a measurement."""

    BOTH = "both"  # the case's, until its program opens a window of its own
    WINDOW = "window"  # the program's own only: nothing is modelled while it sets up
    CASE = "case"  # the case's only
    BOOT = "boot"  # power-on, and the guest's first program


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Straight-line code and its cost in a window. An address can occur more than once."""

    address: _Address
    instructions: _Count
    cycles: _Count  # thousandths
    executions: _Count

    @property
    def kernel(self) -> bool:
        """True in the upper half of the address space."""
        return self.address >> 63 == 1


class Spent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a window. Counters that are not modelled are missing.

    millicycles, events: in user and in kernel mode.
    """

    millicycles: tuple[_Count, _Count]
    user: dict[str, _Count]
    kernel: dict[str, _Count]
    events: tuple[Events, Events] = msgspec.field(default_factory=lambda: ({}, {}))

    @property
    def instructions(self) -> int:
        """Of user and kernel."""
        return self.user["instructions"] + self.kernel["instructions"]


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """One operation: the program's cost in user and in kernel mode, and how often something interrupted it.

    kind: the place of its events in those of its window.
    """

    user_millicycles: _Count
    kernel_millicycles: _Count
    user_instructions: _Count
    interruptions: _Count
    kind: _Count = 0

    @property
    def millicycles(self) -> int:
        """Of user and kernel."""
        return self.user_millicycles + self.kernel_millicycles


class Calls(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="chains", forbid_unknown_fields=True):
    """The calls that led to the blocks of a window's profile.

    calls: each with the number of the call before it (from 1, 0: none is known), its site and its target.
    executions: the number of a call, the place of a block in the profile, and how often it was executed there.
    """

    sequence: int
    calls: list[tuple[_Count, _Address, _Address]]
    executions: list[tuple[_Count, _Count, _Count]]


class Use(msgspec.Struct, frozen=True, array_like=True):
    """An instruction at a line. essential: moves after which its vCPU used another one's writes.

    vcpus: the vCPUs that executed it, one bit each. bytes: the accessed bytes of the line, one bit each.
    """

    address: _Address
    loads: _Count
    stores: _Count
    essential: _Count
    atomics: _Count
    vcpus: _Count
    bytes: _Address


class Owner(msgspec.Struct, frozen=True, array_like=True):
    """An object's place in its slab, and where the call that got it returned to."""

    object: _Count
    back: _Address


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that moved between vCPUs in operations of a window: its physical address, and a virtual one.

    held, holds: of a lock, thousandths of cycles that it was held in all, and how often.
    cache, size, slab: of a slab's object, the name of its cache, its bytes, and where the slab begins.
    owners: of objects of general caches that were got while the guest was watched.
    readers, writers: vCPUs, one bit each. queued, waited: thousandths of cycles until it had arrived, and until a loop
    that looked at it continued.
    """

    line: _Address
    address: _Address
    readers: _Count
    writers: _Count
    moves: _Count
    essential: _Count
    queued: _Count
    waited: _Count
    uses: list[Use]
    held: _Count = 0
    holds: _Count = 0
    cache: str = ""
    size: _Count = 0
    slab: _Address = 0
    owners: list[Owner] = []


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A time for which the vCPU took no interrupts, or its kernel no other task.

    It begins behind the instruction that forbids it, and ends with the instruction that allows it.
    begin, end: the addresses of both.
    """

    millicycles: _Count
    instructions: _Count
    begin: _Address
    end: _Address


class Window(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="window", forbid_unknown_fields=True):
    """One measurement: all executed work by context.

    With several vCPUs all counts as the program's; if they contend, the work in its operations. Counters
    that are not part of the model are missing, not zero.
    """

    sequence: int
    case: int  # from 1, in the order in which the guest ran the cases
    kind: str  # `own`: the program marked it; else a whole case
    complete: bool  # else it was cut off: the program or the guest died
    millicycles: _Count
    user: dict[str, _Count]
    kernel: dict[str, _Count]
    in_program: Spent  # by tasks that run user code, and by the kernel on their behalf
    in_interrupts: Spent  # with the softirqs that run when they end
    in_threads: Spent  # of the kernel, idle included
    in_softirqs: Spent | None = None  # the part of in_interrupts after they have allowed others
    in_idle: Spent | None = None  # of in_threads
    steps: _Count | None = None  # of the guest's clock: instructions, and each iteration of a string
    unprofiled: tuple[_Count, _Count]  # thousandths of cycles and instructions of the program's, in no block
    interruptions: _Count  # of the program, by either of these
    operations: list[Operation]
    kinds: list[tuple[Events, Events]] = []  # the events of operations, in user and kernel mode
    blocks: list[Block] = []  # the program's profile, from a line of its own
    irqs_off: Span | None = None  # the longest one; None if it is not known
    preempt_off: Span | None = None  # likewise
    of_vcpus: list[_Count] = []  # if vCPUs contend: the operations of each
    lines: list[Line] = []  # if vCPUs contend: from a line of its own, the most moves first
    cpus: list[_Address] = []  # the distances of each CPU's variables from their symbols
    chains: Calls | None = None  # from a line of its own, if requested

    @property
    def own(self) -> bool:
        """True for a window that the program itself marked."""
        return self.kind == "own"

    @property
    def instructions(self) -> int:
        """Of user and kernel."""
        return self.user["instructions"] + self.kernel["instructions"]


# --- building ---


def obtain(*, compiler: Compiler | None = None) -> Path:
    """The plugin for the sources as they are, built when it is not there."""
    return PROGRAM.obtain(compiler)


# --- the command line ---


def argument(plugin: Path, machine: Machine, *, model: Model, brackets: Brackets, out: Path) -> str:
    """The value of QEMU's `-plugin`."""
    parts = [escape(plugin), f"out={escape(out)}", f"model={model}", f"brackets={brackets}"]
    return ",".join([*parts, *machine.arguments()])


def escape(path: Path) -> str:
    """A path for one of QEMU's comma-separated options."""
    return str(path).replace(",", ",,")


# --- the output ---


class _Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="header", forbid_unknown_fields=True):
    schema: int
    interface: int  # version of QEMU's plugin interface
    model: Model
    vcpus: int


class _Profile(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="profile", forbid_unknown_fields=True):
    sequence: int
    blocks: list[Block]


class _Lines(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="lines", forbid_unknown_fields=True):
    sequence: int
    lines: list[Line]
    cpus: list[_Address] = []


class _End(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="end", forbid_unknown_fields=True):
    pass


_Line = _Header | Window | _Profile | _Lines | Calls | _End
_decoder: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


def read(path: Path) -> list[Window]:
    """The windows that a guest's plugin wrote. `GuestFailed` when its output is missing or cut off."""
    try:
        with path.open("rb") as lines:
            return parse(lines)
    except OSError as error:
        raise GuestFailed(
            GuestFailure.MALFORMED, f"the cost plugin left no output: {error.strerror}", log=path
        ) from error
    except GuestFailed as error:
        error.log = path
        raise


def parse(content: Iterable[bytes]) -> list[Window]:
    """Read the plugin's JSON lines."""
    lines = _decode(content)
    header = next(lines, None)
    if not isinstance(header, _Header):
        raise _malformed(1, "it does not begin with a header")
    if not _OLDEST <= header.schema <= SCHEMA:
        raise _malformed(1, f"schema {header.schema} is not known; this lab reads {_OLDEST} to {SCHEMA}")
    windows: list[Window] = []
    pending: Window | None = None
    number = 1
    for number, line in enumerate(lines, start=2):
        match line:
            case Window() if pending is None:
                pending = line
            case _Profile() if pending is not None and line.sequence == pending.sequence:
                windows.append(_with_profile(number, pending, line.blocks))
                pending = None
            case _Lines() if pending is None and windows and windows[-1].sequence == line.sequence:
                windows[-1] = msgspec.structs.replace(windows[-1], lines=line.lines, cpus=line.cpus)
            case Calls() if pending is None and windows and windows[-1].sequence == line.sequence:
                windows[-1] = _with_chains(number, windows[-1], line)
            case _End() if pending is None:
                return windows
            case _:
                raise _malformed(number, "a line is out of order")
    raise _malformed(number, "its end is missing")


def _decode(content: Iterable[bytes]) -> Iterator[_Line]:
    for number, line in enumerate(content, start=1):
        try:
            record: _Line = _decoder.decode(line)
        except DAMAGED as error:
            raise _malformed(number, str(error)) from error
        yield record


def _with_profile(number: int, window: Window, blocks: list[Block]) -> Window:
    """A window with its profile. Their sums are equal to the last digit, or one of them is wrong."""
    own = window.in_program
    for part in (window, own, window.in_interrupts, window.in_threads):
        for mode, counters in (("user", part.user), ("kernel", part.kernel)):
            if "instructions" not in counters:
                raise _malformed(number, f"the {mode} counters have no instructions")
    if window.kinds and any(operation.kind >= len(window.kinds) for operation in window.operations):
        raise _malformed(number, "an operation is of a kind that has no events")
    cycles, instructions = window.unprofiled
    if sum(block.cycles for block in blocks) + cycles != sum(own.millicycles):
        raise _malformed(number, "the profile's cycles do not add up to the program's")
    if sum(block.instructions for block in blocks) + instructions != own.instructions:
        raise _malformed(number, "the profile's instructions do not add up to the program's")
    return msgspec.structs.replace(window, blocks=blocks)


def _with_chains(number: int, window: Window, chains: Calls) -> Window:
    """A window with the calls that led to its blocks: of each call, the one before it came earlier."""
    if any(before > place for place, (before, _, _) in enumerate(chains.calls)):
        raise _malformed(number, "a call was made by a later one")
    if any(call > len(chains.calls) or block >= len(window.blocks) for call, block, _ in chains.executions):
        raise _malformed(number, "a chain is of a call or a block that is not there")
    return msgspec.structs.replace(window, chains=chains)


def _malformed(number: int, why: str) -> GuestFailed:
    return GuestFailed(GuestFailure.MALFORMED, f"line {number} of the cost plugin's output cannot be used: {why}")


class Marks(IntEnum):
    """Numbers of marks, as workloads/include/lab/mark.h has them."""

    WINDOW_BEGIN = 1
    MEASURES_BOOT = 9
    OPERATION_BEGIN = 11


def has_mark(mark: Marks, root: Path, guests: Architecture) -> bool:
    """True if a program in a guest's archive, uncompressed, has a mark."""
    return _contains(root, root.stat().st_mtime_ns, guests.mark.numbered(mark))


@cache
def _contains(root: Path, _: int, mark: bytes) -> bool:
    """Search an archive once: it may have 70 MB, and each of a measurement's guests asks."""
    return mark in root.read_bytes()


def _brackets(root: Path, guests: Architecture) -> Brackets:
    """From the marks in a guest's archive. A program that marks a window need not be modelled while it sets up."""
    if has_mark(Marks.MEASURES_BOOT, root, guests):
        return Brackets.BOOT
    return Brackets.WINDOW if has_mark(Marks.WINDOW_BEGIN, root, guests) else Brackets.BOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """The plugin as a comparison uses it: with a machine, and the extent of the model.

    brackets: None for the choice by the guest's programs.
    version: the model version of the numbers of its guests.
    quantum: cycles of a turn of vCPUs that contend (docs/contention.md); 0 for QEMU's own turns.
    chains: True to record the calls that led to each block, which changes no number.
    """

    library: Path
    machine: Machine
    model: Model
    version: int = 0
    brackets: Brackets | None = None
    quantum: int = 0
    chains: bool = False

    def of(self, workload: str) -> Self:
        """The instrument of a workload's guests."""
        return replace(self, version=model_version.current([workload]))

    def contending(self, quantum: int) -> Self:
        """The instrument of guests whose vCPUs contend; `UserError` if the machine has no costs for that."""
        if self.machine.coherence is None:
            raise UserError(
                f"the machine {self.machine.name} says nothing of several CPUs",
                hint="add [coherence] with the cost of a move, as machines/sapphire-rapids.toml has it",
            )
        if self.model is Model.COUNT:
            raise UserError("--model count counts no cycles, by which vCPUs take turns", hint="leave it out")
        return replace(self, quantum=quantum)

    @property
    def identity(self) -> str:
        """Names all inputs of modelled numbers: part of the fingerprint, and shown with the numbers.

        The version of the numbers stands for the plugin's sources: an edit that changes no number keeps it.
        """
        version = f"v{self.version}"
        if self.model is Model.COUNT:
            return f"{self.model} {version}"
        name = f"{self.model} {self.machine.name} {self.machine.key[:8]} {version}"
        return f"{name}, {' '.join(self._contention)}" if self.quantum else name

    @property
    def _contention(self) -> list[str]:
        """Arguments of the plugin for turns and lines."""
        coherence = self.machine.coherence
        if not self.quantum or coherence is None:
            return []
        return [f"quantum={self.quantum}", f"move={round(coherence.move.cycles * 1000)}"]

    def arguments(self, root: Path, out: Path, guests: Architecture) -> list[str]:
        """QEMU's options. root: the guest's archive, uncompressed."""
        brackets = self.brackets or _brackets(root, guests)
        words = [argument(self.library, self.machine, model=self.model, brackets=brackets, out=out), *self._contention]
        if self.quantum and has_mark(Marks.OPERATION_BEGIN, root, guests):
            words.append("between=1")
        if self.chains:
            words.append("chains=1")
        return ["-plugin", ",".join(words)]


def load_instrument(machine: str | None, model: str) -> Instrument | None:
    """The instrument of a plan; None without a model."""
    if model == "none":
        return None
    return Instrument(library=obtain(), machine=hardware.load(machine or hardware.DEFAULT), model=Model(model))


def by_case(path: Path) -> dict[int, list[Window]]:
    """A guest's windows by case number, from 1: the windows that the program marked, or else the whole case."""
    cases: dict[int, list[Window]] = {}
    for window in read(path):
        cases.setdefault(window.case, []).append(window)
    return {number: [window for window in windows if window.own] or windows for number, windows in cases.items()}
