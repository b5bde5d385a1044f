"""Which host CPUs each arm's guest runs on, and the topology that it shows its kernel. Pure: data in, data out.

A guest's cores are whole host cores, so two guests never share a core, and a core's other threads stay idle where
the guest does not ask for them. What is left over is for QEMU's own threads: I/O, the main loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lab.core.errors import HostFailed, UserError
from lab.core.process import run
from lab.core.records import Record

LSCPU = ("lscpu", "--json", "--extended=CPU,CORE,SOCKET,NODE,ONLINE")


class HostCpu(Record, frozen=True, kw_only=True):
    """One logical CPU of the host. core: of the whole host, as lscpu counts them."""

    cpu: int
    core: int
    socket: int = 0
    node: int = 0


class Shape(Record, frozen=True, kw_only=True):
    """What a guest looks like to its kernel: so many nodes, each a socket of so many cores and threads."""

    nodes: int = 1
    cores: int
    threads: int = 1

    @property
    def vcpus(self) -> int:
        """All vCPUs."""
        return self.nodes * self.cores * self.threads

    @property
    def smp(self) -> str:
        """The value of QEMU's `-smp`, which numbers vCPUs by socket, core, thread."""
        return f"{self.vcpus},sockets={self.nodes},cores={self.cores},threads={self.threads}"

    def __str__(self) -> str:
        words = [_many(self.nodes, "socket"), f"{_many(self.cores, 'core')} each", _many(self.threads, "thread")]
        return f"{_many(self.vcpus, 'vCPU')} ({', '.join(words)})"


class Seat(Record, frozen=True, kw_only=True):
    """Where one guest runs. cpus: the host CPU of each vCPU. others: for QEMU's other threads; empty: anywhere.

    nodes: the host's memory node of each of the guest's; empty where the guest's nodes are only make-believe.
    """

    cpus: list[int]
    others: list[int]
    nodes: list[int]


class Layout(Record, frozen=True, kw_only=True):
    """The same shape for both arms, and their seats: one that they take in turn, or two at once (a duet)."""

    shape: Shape
    seats: list[Seat]


def host_cpus(allowed: Sequence[int]) -> list[HostCpu]:
    """The CPUs of this machine that this process may use."""
    return [one for one in read(run(list(LSCPU))) if one.cpu in set(allowed)]


def read(document: bytes) -> list[HostCpu]:
    """What `lscpu --json --extended` printed, without CPUs that are offline. Old versions print words for numbers."""
    try:
        rows = msgspec.json.decode(document)["cpus"]
        found = [_host_cpu(row) for row in rows if str(row.get("online", True)).lower() in ("true", "yes")]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise HostFailed(f"lscpu's list of CPUs cannot be read: {error}") from error
    if not found:
        raise HostFailed("lscpu lists no CPU that is online")
    return sorted(found, key=lambda one: one.cpu)


def _host_cpu(row: dict[str, Any]) -> HostCpu:
    cpu = int(row["cpu"])
    # Some virtual machines tell nothing of their cores: each CPU is one, then.
    core, socket, node = (_number(row.get(name)) for name in ("core", "socket", "node"))
    return HostCpu(cpu=cpu, core=cpu if core is None else core, socket=socket or 0, node=node or 0)


def _number(value: Any) -> int | None:
    return None if value in (None, "-", "") else int(value)


def plan(cpus: Sequence[HostCpu], *, vcpus: int | None, nodes: int | None = None, duet: bool = False) -> Layout:
    """The guests' shape and seats. `UserError` where the host has too few CPUs for what is asked.

    vcpus: of one guest; None mirrors the host (half of it in a duet). nodes: NUMA nodes of the guest; None: as few as
    the CPUs need.
    """
    guests = 2 if duet else 1
    by_node = _cores(cpus)
    alike = _alike(by_node)
    if vcpus is None:
        shape = _mirrored(alike, nodes, guests)
    else:
        found = _asked(alike, vcpus, nodes, guests) or (None if duet else _asked(by_node, vcpus, nodes, guests))
        if found is None:
            words = f"{_many(guests, 'guest')} with {_many(vcpus, 'vCPU')} each"
            raise _too_few(by_node, f"{words}, on {nodes} NUMA nodes," if nodes else words, guests)
        shape = found
    usable = alike if _fits(alike, shape, guests) else by_node
    return Layout(shape=shape, seats=_seats(usable, cpus, shape, guests))


Cores = dict[int, list[list[int]]]


def _cores(cpus: Sequence[HostCpu]) -> Cores:
    """Of each node, its cores, each with its CPUs."""
    found: dict[int, dict[tuple[int, int], list[int]]] = {}
    for one in cpus:
        found.setdefault(one.node, {}).setdefault((one.socket, one.core), []).append(one.cpu)
    return {node: [sorted(cores[key]) for key in sorted(cores)] for node, cores in sorted(found.items())}


def _alike(by_node: Cores) -> Cores:
    """Only the cores with most threads: on a hybrid CPU the others are of another kind, and arms must not differ."""
    most = max(len(core) for cores in by_node.values() for core in cores)
    return {node: kept for node, cores in by_node.items() if (kept := [core for core in cores if len(core) == most])}


def _mirrored(by_node: Cores, nodes: int | None, guests: int) -> Shape:
    """As much of the host as all guests can have alike. A duet on several nodes gives each guest half of them."""
    threads = min(len(core) for cores in by_node.values() for core in cores)
    smallest = min(len(cores) for cores in by_node.values())
    if nodes is None and len(by_node) % guests == 0:
        return Shape(nodes=len(by_node) // guests, cores=smallest, threads=threads)
    shape = Shape(nodes=nodes or len(by_node), cores=smallest // guests, threads=threads)
    if shape.cores < 1 or shape.nodes > len(by_node):
        raise _too_few(by_node, f"{_many(guests, 'guest')} like itself", guests)
    return shape


def _asked(by_node: Cores, vcpus: int, nodes: int | None, guests: int) -> Shape | None:
    """So many vCPUs: a core for each while there are enough of them, then threads of cores, then more nodes."""
    if nodes and vcpus % nodes:
        raise UserError(f"{vcpus} vCPUs cannot be shared out evenly among {nodes} NUMA nodes", hint="choose a multiple")
    siblings = min(len(core) for cores in by_node.values() for core in cores)
    for count in [nodes] if nodes else [n for n in range(1, len(by_node) + 1) if vcpus % n == 0]:
        each = vcpus // count
        for threads in sorted({1, siblings}):
            shape = Shape(nodes=count, cores=each // threads, threads=threads)
            if each % threads == 0 and _fits(by_node, shape, guests):
                return shape
    return None


def _fits(by_node: Cores, shape: Shape, guests: int) -> bool:
    return _choose(by_node, shape, guests) is not None


Chosen = list[list[tuple[int, list[list[int]]]]]


def _choose(by_node: Cores, shape: Shape, guests: int) -> Chosen | None:
    """Of each guest, for each of its nodes: the host's node, and its cores. Guests on nodes apart where that works.

    A host of one node can make believe that it has several; none of a guest's nodes is split over two of the host.
    """
    free = {node: list(cores) for node, cores in by_node.items()}
    chosen: Chosen = []
    for _ in range(guests):
        mine: list[tuple[int, list[list[int]]]] = []
        for _ in range(shape.nodes):
            used = {node for node, _ in mine}
            fitting = [n for n in free if len(free[n]) >= shape.cores and (n not in used or len(by_node) == 1)]
            if not fitting:
                return None
            # The emptiest node first: so a second guest gets a node of its own, if there is one.
            node = max(fitting, key=lambda n: (len(free[n]), -n))
            mine.append((node, free[node][: shape.cores]))
            free[node] = free[node][shape.cores :]
        chosen.append(mine)
    return chosen


def _seats(by_node: Cores, cpus: Sequence[HostCpu], shape: Shape, guests: int) -> list[Seat]:
    chosen = _choose(by_node, shape, guests)
    if chosen is None:
        raise _too_few(by_node, f"{_many(guests, 'guest')} of {shape}", guests)
    taken = {cpu for guest in chosen for _, cores in guest for core in cores for cpu in core}
    left = [one for one in cpus if one.cpu not in taken]
    seats = []
    for guest in chosen:
        nodes = [node for node, _ in guest]
        near = [one.cpu for one in left if one.node in nodes]
        # With every core taken, what the guest leaves idle of its own is still better than its vCPUs' CPUs.
        idle = [cpu for _, cores in guest for core in cores for cpu in core[shape.threads :]]
        seats.append(
            Seat(
                cpus=[cpu for _, cores in guest for core in cores for cpu in core[: shape.threads]],
                others=sorted(near or [one.cpu for one in left] or idle),
                nodes=nodes if len(set(nodes)) == len(nodes) and len(by_node) > 1 else [],
            )
        )
    return seats


def _too_few(by_node: Cores, wanted: str, guests: int) -> UserError:
    cores = [core for found in by_node.values() for core in found]
    have = f"{_many(sum(map(len, cores)), 'CPU')} on {_many(len(cores), 'core')} in {_many(len(by_node), 'NUMA node')}"
    hint = "ask for fewer with --cpus" + (", or measure one after the other, without --duet" if guests > 1 else "")
    return UserError(f"not enough CPUs for {wanted}: this machine has {have}, and guests share no core", hint=hint)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
