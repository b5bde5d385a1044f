"""The topology of a guest, and the host CPUs that it runs on. Pure: data in, data out.

A guest's cores are whole host cores, so two guests never share a core, and the other threads of a core stay idle if
the guest does not use them. QEMU's own threads (I/O, the main loop) run on the CPUs that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lab.core.errors import HostFailed, UserError
from lab.core.process import run
from lab.core.records import Record
from lab.core.text import plural

LSCPU = ("lscpu", "--json", "--extended=CPU,CORE,SOCKET,NODE,ONLINE")


class HostCpu(Record, frozen=True, kw_only=True):
    """One logical CPU of the host. core: a number unique in the host, as in lscpu."""

    cpu: int
    core: int
    socket: int = 0
    node: int = 0


class Shape(Record, frozen=True, kw_only=True):
    """The topology that a guest's kernel sees: nodes, each a socket with cores and threads."""

    nodes: int = 1
    cores: int
    threads: int = 1

    @property
    def vcpus(self) -> int:
        return self.nodes * self.cores * self.threads

    @property
    def smp(self) -> str:
        """The value of QEMU's `-smp`, which numbers vCPUs by socket, core, thread."""
        return f"{self.vcpus},sockets={self.nodes},cores={self.cores},threads={self.threads}"

    def __str__(self) -> str:
        parts = [plural(self.nodes, "socket"), f"{plural(self.cores, 'core')} each", plural(self.threads, "thread")]
        return f"{plural(self.vcpus, 'vCPU')} ({', '.join(parts)})"


class CpuSet(Record, frozen=True, kw_only=True):
    """The host CPUs of one guest. cpus: that of each vCPU. others: for QEMU's other threads; empty: any.

    nodes: the host's memory node of each of the guest's; empty if the host has no nodes to match.
    """

    cpus: list[int]
    others: list[int]
    nodes: list[int]


class Layout(Record, frozen=True, kw_only=True):
    """The shape of both arms' guests, and their CPUs: one set that they use in turn, or two in a duet."""

    shape: Shape
    cpu_sets: list[CpuSet]


def host_cpus(allowed: Sequence[int]) -> list[HostCpu]:
    """The CPUs of this machine that this process may use."""
    return [cpu for cpu in read(run(list(LSCPU))) if cpu.cpu in set(allowed)]


def read(document: bytes) -> list[HostCpu]:
    """The online CPUs in the output of `lscpu --json --extended`. Old versions print numbers as strings."""
    try:
        rows = msgspec.json.decode(document)["cpus"]
        cpus = [_host_cpu(row) for row in rows if str(row.get("online", True)).lower() in ("true", "yes")]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise HostFailed(f"lscpu's list of CPUs cannot be read: {error}") from error
    if not cpus:
        raise HostFailed("lscpu lists no CPU that is online")
    return sorted(cpus, key=lambda cpu: cpu.cpu)


def _host_cpu(row: dict[str, Any]) -> HostCpu:
    cpu = int(row["cpu"])
    # Some virtual machines do not show their cores: each CPU counts as one.
    known = {name: int(row[name]) for name in ("core", "socket", "node") if row.get(name) not in (None, "-", "")}
    return HostCpu(cpu=cpu, **{"core": cpu, **known})


def plan(cpus: Sequence[HostCpu], *, vcpus: int | None, nodes: int | None = None, duet: bool = False) -> Layout:
    """The guests' shape and CPUs. `UserError` if the host has too few CPUs.

    vcpus: of one guest; None mirrors the host (half of it in a duet). nodes: NUMA nodes of the guest; None: as few as
    the CPUs need.
    """
    guests = 2 if duet else 1
    by_node = _cores(cpus)
    alike = _alike(by_node)
    if vcpus is None:
        shape = _mirrored(alike, nodes, guests)
    else:
        fitting = _fitting(alike, vcpus, nodes, guests) or (None if duet else _fitting(by_node, vcpus, nodes, guests))
        if fitting is None:
            wanted = f"{plural(guests, 'guest')} with {plural(vcpus, 'vCPU')} each"
            raise _too_few(by_node, f"{wanted}, on {nodes} NUMA nodes," if nodes else wanted, guests)
        shape = fitting
    usable = alike if _choose(alike, shape, guests) else by_node
    return Layout(shape=shape, cpu_sets=_cpu_sets(usable, cpus, shape, guests))


Cores = dict[int, list[list[int]]]
"""The cores of each node, each with its CPUs."""


def _cores(cpus: Sequence[HostCpu]) -> Cores:
    nodes: dict[int, dict[tuple[int, int], list[int]]] = {}
    for cpu in cpus:
        nodes.setdefault(cpu.node, {}).setdefault((cpu.socket, cpu.core), []).append(cpu.cpu)
    return {node: [sorted(cores[key]) for key in sorted(cores)] for node, cores in sorted(nodes.items())}


def _alike(by_node: Cores) -> Cores:
    """The cores with most threads: on a hybrid CPU the others are of another kind, and arms must not differ."""
    most = max(len(core) for cores in by_node.values() for core in cores)
    return {node: kept for node, cores in by_node.items() if (kept := [core for core in cores if len(core) == most])}


def _mirrored(by_node: Cores, nodes: int | None, guests: int) -> Shape:
    """The largest shape that fits all guests. A duet on several nodes gives each guest half of them."""
    threads = min(len(core) for cores in by_node.values() for core in cores)
    smallest = min(len(cores) for cores in by_node.values())
    if nodes is None and len(by_node) % guests == 0:
        return Shape(nodes=len(by_node) // guests, cores=smallest, threads=threads)
    shape = Shape(nodes=nodes or len(by_node), cores=smallest // guests, threads=threads)
    if shape.cores < 1 or shape.nodes > len(by_node):
        raise _too_few(by_node, f"{plural(guests, 'guest')} like itself", guests)
    return shape


def _fitting(by_node: Cores, vcpus: int, nodes: int | None, guests: int) -> Shape | None:
    """A shape with this number of vCPUs: a core for each if there are enough, else threads, else more nodes."""
    if nodes and vcpus % nodes:
        raise UserError(f"{vcpus} vCPUs cannot be shared out evenly among {nodes} NUMA nodes", hint="choose a multiple")
    siblings = min(len(core) for cores in by_node.values() for core in cores)
    for count in [nodes] if nodes else [n for n in range(1, len(by_node) + 1) if vcpus % n == 0]:
        each = vcpus // count
        for threads in sorted({1, siblings}):
            shape = Shape(nodes=count, cores=each // threads, threads=threads)
            if each % threads == 0 and _choose(by_node, shape, guests):
                return shape
    return None


Choice = list[tuple[int, list[list[int]]]]
"""For each node of a guest: the host's node, and the cores there."""


def _choose(by_node: Cores, shape: Shape, guests: int) -> list[Choice] | None:
    """The nodes and cores of each guest, None if they do not fit; guests are on different nodes if there are enough.

    All nodes of a guest can be on a host's only node, but no node of a guest is split over two of the host.
    """
    free = {node: list(cores) for node, cores in by_node.items()}
    chosen: list[Choice] = []
    for _ in range(guests):
        choice: Choice = []
        for _ in range(shape.nodes):
            used = {node for node, _ in choice}
            fitting = [n for n in free if len(free[n]) >= shape.cores and (n not in used or len(by_node) == 1)]
            if not fitting:
                return None
            # The node with most free cores, so that a second guest gets a node of its own, if there is one.
            node = max(fitting, key=lambda n: (len(free[n]), -n))
            choice.append((node, free[node][: shape.cores]))
            free[node] = free[node][shape.cores :]
        chosen.append(choice)
    return chosen


def _cpu_sets(by_node: Cores, cpus: Sequence[HostCpu], shape: Shape, guests: int) -> list[CpuSet]:
    chosen = _choose(by_node, shape, guests)
    if chosen is None:
        raise _too_few(by_node, f"{plural(guests, 'guest')} of {shape}", guests)
    taken = {cpu for guest in chosen for _, cores in guest for core in cores for cpu in core}
    left = [cpu for cpu in cpus if cpu.cpu not in taken]
    cpu_sets = []
    for guest in chosen:
        nodes = [node for node, _ in guest]
        near = [cpu.cpu for cpu in left if cpu.node in nodes]
        # If every core is taken, the idle threads of the guest's own cores are better than its vCPUs' CPUs.
        idle = [cpu for _, cores in guest for core in cores for cpu in core[shape.threads :]]
        cpu_sets.append(
            CpuSet(
                cpus=[cpu for _, cores in guest for core in cores for cpu in core[: shape.threads]],
                others=sorted(near or [cpu.cpu for cpu in left] or idle),
                nodes=nodes if len(set(nodes)) == len(nodes) and len(by_node) > 1 else [],
            )
        )
    return cpu_sets


def _too_few(by_node: Cores, wanted: str, guests: int) -> UserError:
    cores = [core for node in by_node.values() for core in node]
    counts = plural(sum(map(len, cores)), "CPU"), plural(len(cores), "core"), plural(len(by_node), "NUMA node")
    have = "{} on {} in {}".format(*counts)
    hint = "ask for fewer with --cpus" + (", or measure one after the other, without --duet" if guests > 1 else "")
    return UserError(f"not enough CPUs for {wanted}: this machine has {have}, and guests share no core", hint=hint)
