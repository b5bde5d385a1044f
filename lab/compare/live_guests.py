"""Guests of live mode: the accelerator and layout of this host, and the guests around a plan's kernels."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.compare.boots import GuestSetup
from lab.compare.live_results import Command
from lab.compare.measurement import Measurement
from lab.compare.plan import LivePlan
from lab.compare.results import GuestShape, ResultEnvironment
from lab.compare.sampling import Chosen
from lab.core import records
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.guests import host, kvm, live_machine, perf_stat, topology
from lab.guests import image as guest_image
from lab.guests.exact import Qemu
from lab.guests.live_machine import Accelerator, LiveGuest, live_parameters
from lab.guests.perf_stat import Event
from lab.guests.run import Arm
from lab.guests.topology import Layout
from lab.kernels.kernel import common_machine
from lab.workloads.spec import Case, Workload


@dataclass(frozen=True, kw_only=True)
class LiveGuests:
    """The guests of every workload, and the arms that they boot. commands: by workload and arm."""

    arms: tuple[Arm, ...]
    setups: list[GuestSetup]
    environment: ResultEnvironment
    commands: dict[str, dict[str, Command]]


def measurable(chosen: Chosen) -> list[tuple[Workload, list[Case]]]:
    """The cases that say something in live mode; `UserError` if none does."""
    split = [(workload, [case for case in cases if not workload.only_exact(case)]) for workload, cases in chosen]
    if kept := [(workload, cases) for workload, cases in split if cases]:
        return kept
    workload, cases = chosen[0]
    raise UserError(
        f"{workload.name}:{cases[0].name} says nothing in live mode: {workload.only_exact(cases[0])}",
        hint="measure it with --mode exact",
    )


def check(chosen: Chosen, plan: LivePlan) -> None:
    """Refuse guests that this host cannot run, before anything is built: virtme-ng, CPUs, memory."""
    live_machine.find_vng()
    for workload, _ in measurable(chosen):
        layout = layout_of(workload, plan)
        host.require_memory(_memory_mb(workload, layout, plan), len(layout.cpu_sets))


def _memory_mb(workload: Workload, layout: Layout, plan: LivePlan) -> int:
    """The memory of a guest: the workload's, and some for perf."""
    for_perf = perf_stat.MEMORY_MB if plan.perf or plan.perf_record else 0
    return host.round_memory(workload.memory_mb + for_perf, layout.shape.nodes)


def plan(chosen: Chosen, accelerator: Accelerator, cpus: int | None, **more: Any) -> LivePlan:
    """A plan of live mode for this host, refused if the host is too small. cpus: a guest's; 0 for the host's."""
    seed = random.SystemRandom().randrange(1 << 31)
    made = LivePlan(accelerator=accelerator, vcpus=cpus or None, mirror=cpus == 0, seed=seed, **more)
    check(chosen, made)
    return made


def layout_of(workload: Workload, plan: LivePlan) -> Layout:
    cpus = topology.host_cpus(sorted(os.sched_getaffinity(0)))
    vcpus = None if plan.mirror else plan.vcpus or workload.vcpus
    return topology.plan(cpus, vcpus=vcpus, nodes=plan.nodes, duet=plan.duet)


def prepare(measurement: Measurement, arms: tuple[Arm, ...], live: LivePlan, progress: Progress) -> LiveGuests:
    """The guests of every workload around arms whose kernels are at hand."""
    qemu, timeout_s = measurement.qemu, measurement.plan.guest_timeout_s
    own = guest_image.obtain(progress)
    root = live_machine.obtain_root(own[1])
    machine = common_machine(*(arm.kernel for arm in arms))
    counted = _events(live, own[1])
    cpu = kvm.require(qemu.path, guest_timeout_s=timeout_s) if live.accelerator == "kvm" else "max"
    setups, shapes, commands, images = [], {}, {}, []
    extra = perf_stat.PROGRAMS if counted or live.perf_record else ()  # not in exact mode's root
    measured = replace(measurement, selected=measurable(measurement.selected))
    for workload, cases, image, packed_root in measured.roots(arms, progress, extra):
        images.append(image)
        layout = layout_of(workload, live)
        memory_mb = _memory_mb(workload, layout, live)
        guest = LiveGuest(
            qemu=qemu.path,
            accelerator=live.accelerator,
            shape=layout.shape,
            cpu_set=layout.cpu_sets[0],
            memory_mb=memory_mb,
            hugepage_kb=host.hugepage_kb(memory_mb, layout),
            arguments=[],
            cpu=cpu,
        )
        shape = shapes[workload.name] = _shape(guest, qemu, workload, cases, packed_root, counted)
        setup = GuestSetup(
            guest=guest,
            machine=machine,
            workload=workload,
            cases=cases,
            packed_root=packed_root,
            root=root,
            cpu_sets=layout.cpu_sets,
            timeout_s=timeout_s,
            folder=measurement.folder,
            fingerprint=shape.fingerprint,
            perf=counted,
        )
        setups.append(setup)
        commands[workload.name] = {arm.name: setup.command(arm, guest.cpu_set) for arm in arms}
    environment = ResultEnvironment.around(
        shapes,
        guest_image.digest_of(images),
        qemu=qemu.version,
        machine=f"{live_parameters().machine}, {live.accelerator}",
        cpu=cpu,
        shift=0,
        cmdline=live_parameters().cmdline,
        settings=live_parameters().settings,
    )
    return LiveGuests(arms=arms, setups=setups, environment=environment, commands=commands)


def _events(plan: LivePlan, image: Path) -> tuple[Event, ...]:
    """The events that perf counts around every case."""
    if not plan.perf:
        return ()
    if plan.accelerator == "tcg" or not perf_stat.has_pmu():
        return perf_stat.SOFTWARE
    return perf_stat.events(perf_stat.known_events(image / "root"))


def _shape(
    guest: LiveGuest, qemu: Qemu, workload: Workload, cases: Sequence[Case], packed_root: Path, counted: Sequence[Event]
) -> GuestShape:
    parameters, initrd_sha256 = live_parameters(), records.file_digest(packed_root)
    settings = workload.guest_settings(parameters.settings, {})
    facts = [
        qemu.version, guest.accelerator, guest.shape, guest.memory_mb, guest.hugepage_kb, parameters, settings,
        workload.cmdline, workload.env, workload.setup, initrd_sha256, *([counted] if counted else []),
        *live_machine.cpu_options(guest.cpu if guest.accelerator == "kvm" else "host"),
    ]  # fmt: skip
    return GuestShape.of(
        workload,
        cases,
        parameters.settings,
        vcpus=guest.shape.vcpus,
        memory_mb=guest.memory_mb,
        initrd_sha256=initrd_sha256,
        fingerprint=records.digest(facts)[:16],
    )
