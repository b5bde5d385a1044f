"""The guests of live mode around kernels that are at hand: what this host can do, and how they are put together."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from lab import __version__
from lab.compare.boots import LiveBench
from lab.compare.plan import LivePlan
from lab.compare.requirements import check_guest
from lab.compare.results import Command, GuestShape, ResultEnvironment
from lab.compare.round_runner import Stand
from lab.core import records
from lab.core.progress import Progress
from lab.guests import host, initrd, live_machine, perf_stat, topology
from lab.guests import image as guest_image
from lab.guests.exact import Qemu
from lab.guests.live_machine import Accelerator, LiveGuest, live_parameters
from lab.guests.perf_stat import Event
from lab.guests.run import Arm
from lab.guests.topology import Layout
from lab.kernels.kernel import common_machine
from lab.workloads.spec import Case, Workload


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Guests at hand: what is booted, around which arms."""

    arms: tuple[Arm, ...]
    stands: list[Stand]
    environment: ResultEnvironment
    commands: dict[str, dict[str, Command]]
    shapes: dict[str, Layout]
    hugepage_kb: int | None


def check(chosen: Sequence[tuple[Workload, Sequence[Case]]], plan: LivePlan) -> None:
    """Refuse what this machine cannot do before anything is built: virtme-ng, CPUs, memory."""
    live_machine.find_vng()
    for workload, _ in chosen:
        layout = layout_of(workload, plan)
        host.require_memory(_memory_mb(workload, layout, plan), len(layout.cpu_sets))


def _memory_mb(workload: Workload, layout: Layout, plan: LivePlan) -> int:
    """What a guest gets: the workload's memory, and room for perf."""
    return host.round_memory(
        workload.memory_mb + (perf_stat.MEMORY_MB if plan.perf or plan.perf_record else 0), layout.shape.nodes
    )


def plan(
    chosen: Sequence[tuple[Workload, Sequence[Case]]], accelerator: Accelerator, cpus: int | None, **more: Any
) -> LivePlan:
    """A plan of live mode for this host, refused where the host is too small. cpus: of a guest; 0 for the host's."""
    seed = random.SystemRandom().randrange(1 << 31)
    made = LivePlan(accelerator=accelerator, vcpus=cpus or None, mirror=cpus == 0, seed=seed, **more)
    check(chosen, made)
    return made


def layout_of(workload: Workload, plan: LivePlan) -> Layout:
    """A workload's guests on this host."""
    cpus = topology.host_cpus(sorted(os.sched_getaffinity(0)))
    vcpus = None if plan.mirror else plan.vcpus or workload.vcpus
    return topology.plan(cpus, vcpus=vcpus, nodes=plan.nodes, duet=plan.duet)


def prepare(
    arms: tuple[Arm, ...],
    chosen: Sequence[tuple[Workload, Sequence[Case]]],
    plan: LivePlan,
    folder: Path,
    *,
    qemu: Qemu,
    timeout_s: float,
    progress: Progress,
) -> Ready:
    """The guests of every workload around arms whose kernels are at hand."""
    image = guest_image.obtain(progress)
    root = live_machine.obtain_root(image[1])
    board = common_machine(*(arm.kernel for arm in arms))
    counted = _events(plan, image[1])
    stands, shapes, layouts, commands = [], {}, {}, {}
    for workload, cases in chosen:
        check_guest(workload, cases, arms, image)
        layout = layouts[workload.name] = layout_of(workload, plan)
        memory_mb = _memory_mb(workload, layout, plan)
        guest = LiveGuest(
            qemu=qemu.path,
            accelerator=plan.accelerator,
            shape=layout.shape,
            cpu_set=layout.cpu_sets[0],
            memory_mb=memory_mb,
            hugepage_kb=host.hugepage_kb(memory_mb, layout),
            arguments=[],
        )
        packed = initrd.pack_initrd(image, _with_perf(workload) if counted or plan.perf_record else workload)
        shape = _shape(guest, qemu, workload, cases, packed, counted)
        bench = LiveBench(
            guest=guest, machine=board, workload=workload, cases=cases, packed_root=packed, root=root,
            timeout_s=timeout_s, folder=folder, fingerprint=shape.fingerprint, perf=counted,
        )  # fmt: skip
        stands.append(Stand(bench=bench, cpu_sets=layout.cpu_sets))
        shapes[workload.name] = shape
        commands[workload.name] = {arm.name: command(bench, arm) for arm in arms}
    return Ready(
        arms=arms,
        stands=stands,
        environment=_environment(guest, qemu, shapes, image[0].sha256),
        commands=commands,
        shapes=layouts,
        hugepage_kb=guest.hugepage_kb,
    )


def _events(plan: LivePlan, image: Path) -> tuple[Event, ...]:
    """What perf is asked to count around every case."""
    if not plan.perf:
        return ()
    known = perf_stat.known_events(image / "root") if plan.accelerator == "kvm" else ()
    return perf_stat.events(plan.accelerator, known)


def _with_perf(workload: Workload) -> Workload:
    """The workload as its guest's root is cut for: exact mode's root has no perf, and stays as it is."""
    return msgspec.structs.replace(workload, extra_files=(*workload.extra_files, *perf_stat.PROGRAMS))


def command(bench: LiveBench, arm: Arm) -> Command:
    """The commands that make and start an arm's guest of a workload, on its first CPUs."""
    composed, argv = live_machine.compose(
        bench.guest_of(arm, bench.guest.cpu_set), arm.kernel.image(bench.machine), bench.root
    )
    return Command(vng=composed, qemu=argv)


def _shape(
    guest: LiveGuest, qemu: Qemu, workload: Workload, cases: Sequence[Case], packed: Path, counted: Sequence[Event]
) -> GuestShape:
    settings = workload.guest_settings(live_parameters().settings, {})
    initrd_sha256 = records.file_digest(packed)
    facts = [
        qemu.version, guest.accelerator, guest.shape, guest.memory_mb, guest.hugepage_kb, live_parameters(), settings,
        workload.cmdline, workload.env, workload.setup, initrd_sha256, *([counted] if counted else []),
    ]  # fmt: skip
    return GuestShape(
        settings={name: value for name, value in settings.items() if live_parameters().settings.get(name) != value},
        cmdline=list(workload.cmdline),
        env=dict(workload.env),
        setup=list(workload.setup),
        commands={case.name: workload.command(case) for case in cases},
        vcpus=guest.shape.vcpus,
        memory_mb=guest.memory_mb,
        initrd_sha256=initrd_sha256,
        fingerprint=records.digest(facts)[:16],
    )


def _environment(guest: LiveGuest, qemu: Qemu, shapes: dict[str, GuestShape], image: str) -> ResultEnvironment:
    return ResultEnvironment(
        fingerprint=records.digest({name: shape.fingerprint for name, shape in shapes.items()})[:16],
        qemu=qemu.version,
        machine=f"{live_parameters().machine}, {guest.accelerator}",
        cpu="host" if guest.accelerator == "kvm" else "max",
        shift=0,
        cmdline=live_parameters().cmdline,
        settings=live_parameters().settings,
        image=image,
        lab=__version__,
        guests=shapes,
    )
