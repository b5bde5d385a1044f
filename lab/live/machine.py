"""Live mode's virtual machine: what `vng` is asked for, and the QEMU command line that it gives. Pure.

virtme-ng puts the guest together (`vng --dry-run` prints the command), the lab starts it: paused, so that its
threads are pinned before the guest's first instruction, and as its own child, so that no guest outlives the lab.
All paths are relative to the guest's folder, which makes the command the same for every boot of an arm.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Literal

import msgspec

from lab.core.errors import HostFailed
from lab.core.paths import room
from lab.core.records import Record
from lab.live.topology import Seat, Shape

Accelerator = Literal["kvm", "tcg"]

# In a guest's folder.
KERNEL, ROOM, INITRD, QMP = "kernel", "room", "initrd.cpio", "qmp.sock"
CONSOLE, REPORT = "console.log", "report.jsonl"


class LiveMachine(Record, frozen=True, kw_only=True):
    """`machines/live.toml`."""

    schema: int
    machine: str
    cmdline: list[str]
    settings: dict[str, str]


class Guest(Record, frozen=True, kw_only=True):
    """Everything that a guest's command line depends on, besides the names of its files."""

    qemu: str
    accelerator: Accelerator
    shape: Shape
    seat: Seat
    memory_mb: int
    hugepage_kb: int | None
    arguments: list[str]


@cache
def live_machine() -> LiveMachine:
    """The parameters of live mode's guest."""
    path = room("machines") / "live.toml"
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), LiveMachine)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise HostFailed(f"{path}: {error}") from error


def vng_words(guest: Guest, *, kernel: str = KERNEL) -> list[str]:
    """The arguments of `vng`, without the program: no network, no balloon, the image's root and never the host's."""
    return [
        *("--run", f"./{kernel}", "--root", f"./{ROOM}", "--cwd", f"./{ROOM}", "--user", "root"),
        # The root's transport is not measured; one that needs no daemon on the host is the same everywhere.
        *("--force-9p", "--disable-microvm", "--disable-monitor"),
        *(["--disable-kvm"] if guest.accelerator == "tcg" else []),
        *("--qemu", guest.qemu, "--cpus", guest.shape.smp, "--memory", f"{guest.memory_mb}M", "--verbose"),
        *("--append", shlex.join([*live_machine().cmdline, *guest.arguments])),
        f"--qemu-opts={' '.join(qemu_words(guest))}",
        *("--exec", "true"),
    ]


def qemu_words(guest: Guest) -> list[str]:
    """What QEMU is given beside virtme-ng's own: memory, accelerator, the root in RAM, report, control socket."""
    machine = [live_machine().machine, "mem-merge=off", "dump-guest-core=off"]
    if guest.accelerator == "kvm":
        machine.append("accel=kvm")  # over virtme-ng's kvm:tcg: a guest that falls back to TCG measures nothing
    if guest.shape.nodes == 1:
        machine.append("memory-backend=mem0")
    return [
        *("-machine", ",".join(machine)),
        *(["-accel", "tcg,thread=multi"] if guest.accelerator == "tcg" else []),
        *_memory(guest),
        *("-initrd", INITRD),
        *("-chardev", f"file,id=report,path={REPORT}", "-device", "isa-serial,chardev=report"),
        *("-qmp", f"unix:{QMP},server=on,wait=off", "-S"),
    ]


def _memory(guest: Guest) -> Iterator[str]:
    """Memory that is there before the guest starts: bound to the host's nodes, of huge pages where there are some."""
    nodes = guest.shape.nodes
    each = guest.memory_mb // nodes
    per_node = guest.shape.cores * guest.shape.threads
    for node in range(nodes):
        kind = "memory-backend-ram"
        options = [f"id=mem{node}", f"size={each}M", "prealloc=on", "merge=off", "dump=off"]
        if guest.hugepage_kb:
            kind = "memory-backend-memfd"
            options += ["hugetlb=on", f"hugetlbsize={guest.hugepage_kb}K"]
        if guest.seat.nodes:
            options += [f"host-nodes={guest.seat.nodes[node]}", "policy=bind"]
        yield from ("-object", ",".join([kind, *options]))
        if nodes > 1:
            first = node * per_node
            cpus = f"{first}-{first + per_node - 1}" if per_node > 1 else f"{first}"
            yield from ("-numa", f"node,nodeid={node},memdev=mem{node},cpus={cpus}")


def qemu_argv(printed: str) -> list[str]:
    """QEMU's argument list from what `vng --dry-run` printed, with the guest's output where the lab looks for it."""
    lines = [line for line in printed.splitlines() if line.strip()]
    words = shlex.split(lines[-1]) if lines else []
    if "-kernel" not in words or "-append" not in words:
        raise HostFailed(f"vng --dry-run printed no QEMU command: {lines[-1] if lines else 'nothing'}")
    at = words.index("-append") + 1
    # What virtme-ng's own root would start goes unused, and is in a file whose name is drawn by lot.
    words[at] = words[at].partition(" init=")[0]
    return [_here(word) for word in words]


def _here(word: str) -> str:
    """The console goes into a file of its own; nothing comes in, and what a script would say goes nowhere."""
    kind, _, rest = word.partition(",id=")
    name, _, options = rest.partition(",")
    if kind not in ("file", "stdio") or name == "report":
        return word
    if name == "console":
        return f"file,id=console,path={CONSOLE}"
    return f"null,id={name}" if options else word
