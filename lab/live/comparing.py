"""`lab ab --mode live`: both arms in real time, round by round, until every case is decided."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from lab import __version__, ab, certificates, exact, images, kernels, records, results, slices, verdict, workloads
from lab.errors import HostFailed
from lab.exact import Qemu
from lab.guests import Running
from lab.live import boots, hostgate, memory, perfrecord, perfstat, rootfolder, topology, vng
from lab.live.boots import LiveBench
from lab.live.document import Command, Live, LivePlan
from lab.live.machine import Guest, live_machine
from lab.live.measuring import Stand, Taking
from lab.live.narration import Narrator
from lab.live.perfrecord import Difference, Profile
from lab.live.perfstat import Event
from lab.live.rounds import Rounds, primary_of
from lab.live.topology import Layout
from lab.progress import Meter
from lab.requirements import check_guest
from lab.results import AbResult, CaseResult, GuestShape, Plan, ResultEnvironment
from lab.runs import Arm
from lab.verdict import CaseVerdict, Comparison, Outcome
from lab.workload import Case, Workload

_CHANGED = (Outcome.REGRESSION, Outcome.IMPROVEMENT)

# What a boot and an iteration take, before the first round has shown it.
_BOOT_S, _SAMPLE_S = 2.0, 0.5


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
    vng.find()
    for workload, _ in chosen:
        layout = layout_of(workload, plan)
        memory.require(_memory_mb(workload, layout, plan), len(layout.seats))


def _memory_mb(workload: Workload, layout: Layout, plan: LivePlan) -> int:
    """What a guest gets: the workload's memory, and room for perf."""
    return memory.rounded_mb(
        workload.memory_mb + (perfstat.MEMORY_MB if plan.perf or plan.perf_record else 0), layout.shape.nodes
    )


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
    meter: Meter,
) -> Ready:
    """The guests of every workload around arms whose kernels are at hand."""
    image = images.obtain(meter)
    room = rootfolder.obtain(image[1])
    board = kernels.common_machine(*(arm.kernel for arm in arms))
    counted = _events(plan, image[1])
    stands, shapes, layouts, commands = [], {}, {}, {}
    for workload, cases in chosen:
        check_guest(workload, cases, arms, image)
        layout = layouts[workload.name] = layout_of(workload, plan)
        memory_mb = _memory_mb(workload, layout, plan)
        guest = Guest(
            qemu=qemu.path,
            accelerator=plan.accelerator,
            shape=layout.shape,
            seat=layout.seats[0],
            memory_mb=memory_mb,
            hugepage_kb=memory.hugepage_kb(memory_mb, layout),
            arguments=[],
        )
        packed = slices.slice_for(image, _with_perf(workload) if counted or plan.perf_record else workload)
        shape = _shape(guest, qemu, workload, cases, packed, counted)
        bench = LiveBench(
            guest=guest, machine=board, workload=workload, cases=cases, slice=packed, room=room,
            timeout_s=timeout_s, folder=folder, fingerprint=shape.fingerprint, perf=counted,
        )  # fmt: skip
        stands.append(Stand(bench=bench, seats=layout.seats))
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
    known = perfstat.known_events(image / "root") if plan.accelerator == "kvm" else ()
    return perfstat.events(plan.accelerator, known)


def _with_perf(workload: Workload) -> Workload:
    """The workload as its guest's root is cut for: exact mode's root has no perf, and stays as it is."""
    return msgspec.structs.replace(workload, extra_files=(*workload.extra_files, *perfstat.PROGRAMS))


def command(bench: LiveBench, arm: Arm) -> Command:
    """What makes and starts an arm's guest of a workload, on its first seat."""
    composed, argv = vng.compose(bench.guest_of(arm, bench.guest.seat), arm.kernel.image(bench.machine), bench.room)
    return Command(vng=composed, qemu=argv)


def rounds_of(stands: Sequence[Stand], plan: Plan) -> Rounds:
    """The rounds of a comparison over every case of every workload."""
    assert plan.live is not None  # noqa: S101
    measured = {
        f"{stand.bench.workload.name}:{case.name}": [
            *ab.metrics_of(stand.bench.workload.metrics, modelled=False),
            *(event.metric for event in stand.bench.perf),
        ]
        for stand in stands
        for case in stand.bench.cases
    }
    return Rounds(
        measured,
        threshold=plan.threshold,
        alpha=plan.alpha,
        max_blocks=plan.live.max_rounds,
        seed=plan.live.seed,
        boot_s=_BOOT_S,
        sample_s=_SAMPLE_S,
        fixed_iterations=plan.live.iterations,
        fixed_blocks=plan.live.fixed_rounds,
    )


def draw_seed() -> int:
    """A seed for the order of boots, kept in the plan."""
    return random.SystemRandom().randrange(1 << 31)


def measure(plan: Plan, folder: Path, *, jobs: int, deadline: float | None, meter: Meter) -> AbResult:
    """Do what a plan says, in its result folder; what is already there is not done again. jobs: of builds."""
    assert plan.live is not None  # noqa: S101
    started, clock = datetime.now(UTC), time.monotonic()
    workloads.require_unchanged(plan.files)
    chosen = workloads.select_all(plan.workloads)
    qemu = exact.find_qemu(plan.qemu)
    ready = prepare(
        ab.obtain_arms(plan, jobs, meter), chosen, plan.live, folder, qemu=qemu, timeout_s=plan.guest_timeout_s,
        meter=meter,
    )  # fmt: skip
    facts = hostgate.survey(sorted({cpu for stand in ready.stands for seat in stand.seats for cpu in seat.cpus}))
    taking = Taking(
        stands=ready.stands, arms=ready.arms, rounds=rounds_of(ready.stands, plan), folder=folder, deadline=deadline
    )
    _announce(plan.live, ready.stands, facts, meter)
    with Narrator(taking, meter) as narrator:
        while (one := taking.take()) is not None:
            narrator.tell(one)
            if plan.live.perf and one.number == 1:
                meter.say(f"perf: {taking.counted()}")
    profiles = _profiles(ready, folder, meter) if plan.live.perf_record else {}
    name = results.reference(folder)
    if not taking.rounds.blocks:
        raise HostFailed("no round was measured", hint=f"go on by `lab ab --resume {name}`")
    cases, overall = judge(taking.rounds, ready.stands, plan)
    result = AbResult(
        mode=plan.mode,
        threshold=plan.threshold,
        alpha=plan.alpha,
        base=ab.arm_result(ready.arms[0], live_machine().settings),
        test=ab.arm_result(ready.arms[1], live_machine().settings),
        environment=ready.environment,
        seeds=[block.number + 1 for block, _ in taking.rounds.blocks],
        cases=cases,
        verdict=overall.verdict,
        reason=overall.reason,
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 3),
        result=name,
        reproduce=_again(plan),
        live=_live(plan.live, ready, taking, facts, profiles),
    )
    records.save(folder / "result.json", result)
    return result


def _announce(plan: LivePlan, stands: Sequence[Stand], facts: Sequence[hostgate.HostFact], meter: Meter) -> None:
    """Say what will be run and where, and what about the host makes it noisier than it need be."""
    cases = sum(len(stand.bench.cases) for stand in stands)
    guests = 2 * sum(len(stand.bench.workload.by_guest(stand.bench.cases)) for stand in stands)
    where = "; ".join(", ".join(map(str, seat.cpus)) for seat in stands[0].seats)
    most = f"{plan.max_rounds}" if plan.fixed_rounds else f"up to {plan.max_rounds}"
    meter.say(
        f"cases: {cases}; {most} rounds of {guests} guests by {plan.accelerator} on CPUs {where}; "
        "the first round shows how long one takes"
    )
    noisy = [f"{fact.name} {fact.value}" for fact in facts if fact.state == "limited"]
    if noisy:
        meter.say(f"this host adds noise: {', '.join(noisy)}; `lab doctor` says what to do about it")


def judge(rounds: Rounds, stands: Sequence[Stand], plan: Plan) -> tuple[list[CaseResult], verdict.Overall]:
    """Every case as it stands, and the verdict over all of them."""
    standing = rounds.standing()
    cases = [
        CaseResult(
            workload=stand.bench.workload.name,
            case=case.name,
            control=case.control,
            verdict=_decided(standing[f"{stand.bench.workload.name}:{case.name}"]),
            metrics=_there(standing[f"{stand.bench.workload.name}:{case.name}"], stand),
        )
        for stand in stands
        for case in stand.bench.cases
    ]
    overall = verdict.overall(
        [
            CaseVerdict(name=name, verdict=_decided(found), p_value=primary_of(found).p_value)
            for name, found in standing.items()
        ],
        plan.alpha,
    )
    return cases, overall


def _there(found: Sequence[Comparison], stand: Stand) -> list[Comparison]:
    """Without the events that no guest's PMU has."""
    events = {event.metric.name for event in stand.bench.perf}
    return [one for one in found if one.name not in events or any(v is not None for v in (*one.base, *one.test))]


def _decided(found: Sequence[Comparison]) -> Outcome:
    outcome = primary_of(found).verdict
    assert outcome is not None  # noqa: S101
    return outcome


def _profiles(ready: Ready, folder: Path, meter: Meter) -> dict[str, Difference]:
    """Each case's profiles of both arms, from a boot of each that is in no verdict."""
    meter.say("recording profiles")
    found: dict[str, dict[str, Profile]] = {}
    for stand in ready.stands:
        workload = stand.bench.workload
        bench = replace(stand.bench, perf=(), profiled=True)
        for cases in workload.by_guest(stand.bench.cases):
            for arm in ready.arms:
                alone = f"+{cases[0].name}" if workload.isolate else ""
                record = boots.boot(
                    bench, arm, cases, name=f"profile-{arm.name}-{workload.name}{alone}", seed=1, iterations=1,
                    seat=stand.seats[0], running=Running(),
                )  # fmt: skip
                for case in cases:
                    of_case = found.setdefault(f"{workload.name}:{case.name}", {})
                    of_case |= {arm.name: record.profiles[case.name]} if case.name in record.profiles else {}
    return {case: perfrecord.difference(both.get("base"), both.get("test")) for case, both in found.items()}


def _live(
    plan: LivePlan,
    ready: Ready,
    taking: Taking,
    facts: list[hostgate.HostFact],
    profiles: dict[str, Difference],
) -> Live:
    return Live(
        accelerator=plan.accelerator,
        virtme_ng=vng.version(),
        duet=plan.duet,
        shapes={name: layout.shape for name, layout in ready.shapes.items()},
        seats={name: layout.seats for name, layout in ready.shapes.items()},
        hugepage_kb=ready.hugepage_kb,
        commands=ready.commands,
        host=facts,
        rounds=taking.tried,
        sampling=taking.rounds.sampling(),
        certificates=_quotes(plan, ready, taking),
        perf=taking.counted() if plan.perf else None,
        profiles=profiles,
    )


def _quotes(plan: LivePlan, ready: Ready, taking: Taking) -> dict[str, str]:
    """What this host's noise certificates say to the cases."""
    present = certificates.setup(ready.environment.qemu)
    rounds = len(taking.rounds.blocks)
    found = {
        case: certificates.quote(case, present, accelerator=plan.accelerator, duet=plan.duet, rounds=rounds)
        for case in taking.rounds.metrics
    }
    return {case: told for case, told in found.items() if told}


def _shape(
    guest: Guest, qemu: Qemu, workload: Workload, cases: Sequence[Case], packed: Path, counted: Sequence[Event]
) -> GuestShape:
    settings = workload.guest_settings(live_machine().settings, {})
    initrd_sha256 = records.file_digest(packed)
    facts = [
        qemu.version, guest.accelerator, guest.shape, guest.memory_mb, guest.hugepage_kb, live_machine(), settings,
        workload.cmdline, workload.env, workload.setup, initrd_sha256, *([counted] if counted else []),
    ]  # fmt: skip
    return GuestShape(
        settings={name: value for name, value in settings.items() if live_machine().settings.get(name) != value},
        cmdline=list(workload.cmdline),
        env=dict(workload.env),
        setup=list(workload.setup),
        commands={case.name: workload.command(case) for case in cases},
        vcpus=guest.shape.vcpus,
        memory_mb=guest.memory_mb,
        initrd_sha256=initrd_sha256,
        fingerprint=records.digest(facts)[:16],
    )


def _environment(guest: Guest, qemu: Qemu, shapes: dict[str, GuestShape], image: str) -> ResultEnvironment:
    return ResultEnvironment(
        fingerprint=records.digest({name: shape.fingerprint for name, shape in shapes.items()})[:16],
        qemu=qemu.version,
        machine=f"{live_machine().machine}, {guest.accelerator}",
        cpu="host" if guest.accelerator == "kvm" else "max",
        shift=0,
        cmdline=live_machine().cmdline,
        settings=live_machine().settings,
        image=image,
        lab=__version__,
        guests=shapes,
    )


def _again(plan: Plan) -> str:
    words = ["lab ab --mode live", f"--base '{plan.base.spec.text}'", f"--test '{plan.test.spec.text}'"]
    return " ".join([*words, *(f"-w {name}" for name in plan.workloads)])
