"""`make truth`: operations natively on this host, and in exact mode with it as the machine. Never a test.

make truth                                    the workload syscalls, about 5 minutes
make truth ARGS='--machine ./host.toml'       with a file that `lab machine measure` wrote before
make truth ARGS='--kernel deb:bookworm/6.1'   in the guest, not the package nearest to this host's release
make truth ARGS='getppid fstat pipe'          these cases only; calibrated all the same
make truth ARGS=--chases                      what a pointer chase gains by huge pages, as root, about 5 minutes

The guest has the host's CPU as far as QEMU can show it, its mitigations, huge pages, security modules and preemption,
as far as /sys and /proc/config.gz tell. Native runs are charged to no memory group if root says so, as the guest's are
to none. They count only while nothing else uses the core: chains of additions around each window tell
(tests/scenarios/native). What enters and leaves the kernel cannot be measured from user space, nor can its code's plain
instructions or a move to CR3, so the costs of `syscall`, `exception`, `instruction` and `cr3` are set by four
operations, getppid, fault-anon-read, stat-deep and ctx-2, which are then no longer evidence. The rest of the table is.

A native run takes as long as all that its operations cause: also what the kernel puts off and does on this CPU later,
in softirqs and threads (what RCU frees, for one). So that is in the modelled time here, and the guest's ticks are not.
"""

import argparse
import gzip
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from lab.core.paths import data_folder
from lab.guests import hardware
from lab.guests.hardware import Cost, Machine
from lab.guests.reach import quantile
from lab.workloads import selection

from .stories import lab

WORKLOAD = "syscalls"
FOLDER = Path("build") / "truth"
CALIBRATION = {"instruction": "stat-deep", "syscall": "getppid", "exception": "fault-anon-read", "cr3": "ctx-2"}

QUIET = "getppid"
"""The operation that leaves nothing to do: what interrupts it are ticks."""

WAITS = ("nanosleep", "clock-nanosleep", "timerfd-expire", "unshare-mount", "unshare-net", "unshare-uts", "sched-yield")
"""Operations that wait: for a timer, for all CPUs to pass through the scheduler, for who else is on this CPU."""

BACKED = ("fault-anon-huge",)
"""Operations whose memory a hypervisor may have to back first: 0.2 to 7 ms for a huge page, here."""


SPARED = {"meltdown": "pti", "spec_rstack_overflow": "spec_rstack_overflow", "retbleed": "retbleed"}
"""Vulnerabilities, as /sys names them, and the parameters of the kernel that turn their mitigations off.

The guest's CPU has the host's model, but not the registers by which a CPU of that model says that it is spared."""

CLEARED = ("mds", "mmio_stale_data", "reg_file_data_sampling", "tsx_async_abort")
"""Vulnerabilities that the kernel mitigates by clearing the CPU's buffers on its way out."""

CHASES = tuple(f"chase-{size}" for size in ("64k", "1m", "4m", "16m", "64m", "256m", "1g"))
"""Sizes of memory, from the reach of the first TLB on."""

WIDTH = 3.7
"""Additions in a cycle, of four chains; with another thread on the core it is two to three."""

DRIFT = 0.03
"""The most by which the clock may differ before and after a run."""

LONGEST = 8
"""Runs of a case for each that is wanted."""

_HERE = Path(__file__).resolve().parent


class _Run(NamedTuple):
    """A native run: cycles an operation takes, and the additions that fitted into a cycle then."""

    cycles: float
    width: float


class Native(NamedTuple):
    """An operation on this host. shared: another thread used the core nearly all the time."""

    cycles: float
    shared: bool


class Row(NamedTuple):
    """One operation, the mean of all. native, cycles: of the host's core, and modelled."""

    case: str
    native: float
    cycles: float
    instructions: float
    cr3_writes: float


say = print


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", help="a machine file of this host; measured without it")
    parser.add_argument("--kernel", help="SPEC of the guest's kernel")
    parser.add_argument("--runs", type=int, default=9, help="of each case, natively, undisturbed")
    parser.add_argument("--cpu", type=int, default=1, help="that native runs are pinned to")
    parser.add_argument("--chases", action="store_true", help="huge pages against small ones, instead of operations")
    parser.add_argument("cases", nargs="*")
    asked = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    machine = _of_this_host(asked.machine)
    if machine.clock is None:
        sys.exit("the machine file names no clock: `lab machine measure` writes one that does")
    package = asked.kernel or _nearest_package()
    if asked.chases:
        _print_chases(machine, package, asked.runs, asked.cpu)
        return 0
    kernel = f"{package}{_settings()}"
    known = [case.name for case in selection.load(WORKLOAD).cases]
    cases = asked.cases or [case for case in known if case not in (*WAITS, *BACKED)]
    measured = _native(sorted({*cases, *CALIBRATION.values()}), asked.runs, asked.cpu)
    if shared := [case for case, one in measured.items() if one.shared]:
        say(f"in most runs of {', '.join(shared)} another thread used the core, or its clock changed: they are long")
    native = {case: one.cycles for case, one in measured.items()}
    machine = _calibrated(machine, kernel, native)
    rows = [row for row in _modelled(machine, kernel, native) if row.case in cases]
    _print(rows, machine, kernel)
    return 0


def _of_this_host(chosen: str | None) -> Machine:
    path = Path(chosen or FOLDER / "measured.toml")
    if not chosen:
        lab("machine", "measure", "--output", str(path), "--force")
    return hardware.load(f"{path.parent}/{path.name}")


def _settings() -> str:
    """The settings of a spec that make the guest's kernel do what this host's does, as far as they can be known."""
    settings = [f"thp={_choice('/sys/kernel/mm/transparent_hugepage/enabled', 'never')}"]
    generations = Path("/sys/kernel/mm/lru_gen/enabled")
    settings.append(f"lru_gen={int(generations.read_text(), 0) if generations.exists() else 0}")
    if not re.search(r"\bmitigations=off\b", Path("/proc/cmdline").read_text()):
        settings += ["cmdline.mitigations=auto", *(f"cmdline.{name}=off" for name in _spared())]
    if Path("/proc/pressure").exists():
        settings.append("cmdline.psi=1")
    if Path("/proc/config.gz").exists():
        kconfig = gzip.decompress(Path("/proc/config.gz").read_bytes()).decode()
        settings.append(f"cmdline.lsm={'!'.join(_security_modules(kconfig))}".replace("!", ","))
        if (model := re.search(r"^CONFIG_PREEMPT_(NONE|VOLUNTARY|LAZY)=y", kconfig, re.MULTILINE)) is not None:
            settings.append(f"cmdline.preempt={model[1].lower()}")
    return "@" + ",".join(settings)


def _spared() -> list[str]:
    """The parameters that turn off what this host's kernel does not do, as its CPU does not need it."""
    folder = Path("/sys/devices/system/cpu/vulnerabilities")
    said = {file.name: file.read_text().strip() for file in folder.glob("*")}
    off = [parameter for name, parameter in SPARED.items() if said.get(name) == "Not affected"]
    cleared = any("Clear CPU buffers" in said.get(name, "") for name in CLEARED)
    return off if cleared else [*off, "mds"]


def _choice(path: str, missing: str) -> str:
    """The word in brackets of a file in /sys."""
    file = Path(path)
    found = re.search(r"\[(\w+)\]", file.read_text()) if file.exists() else None
    return found[1] if found else missing


def _security_modules(kconfig: str) -> list[str]:
    """Those that a kernel starts, in order."""
    order = re.search(r'^CONFIG_LSM="([^"]*)"', kconfig, re.MULTILINE)
    built = set(re.findall(r"^CONFIG_(?:SECURITY_)?(\w+?)(?:_LSM)?=y", kconfig, re.MULTILINE))
    return [name for name in (order[1].split(",") if order else []) if name.upper() in built]


def _nearest_package() -> str:
    """Debian's package of the host's series, or of the newest that has one."""
    series = ".".join(platform.release().split(".")[:2])
    listed = lab("kernel", "list", "--available")
    suites = re.findall(rf"^(\S+)\s+linux-image-{re.escape(series)}\.\S*cloud-amd64 ", listed, re.MULTILINE)
    if not suites:
        sys.exit(f"Debian has no cloud kernel of the series {series}: choose one by --kernel")
    return f"deb:{suites[-1]}/{series}"


def _native(cases: Sequence[str], runs: int, cpu: int) -> dict[str, Native]:
    """The cycles that an operation takes on this host, while nothing else uses the core."""
    program = _program(WORKLOAD)
    found: dict[str, list[_Run]] = {case: [] for case in cases}
    with _charged_to_none():
        for turn in range(LONGEST * runs):
            for case in cases:
                if case in found and sum(run.width >= WIDTH for run in found[case]) < runs:
                    if (run := _run(program, case, cpu)) is not None:
                        found[case].append(run)
                    elif turn == 0:
                        del found[case]
    return {case: _least_disturbed(taken, runs) for case, taken in found.items()}


def _program(workload: str) -> Path:
    """A workload's program, compiled to take its time."""
    out = (FOLDER / "native").resolve()
    compiler = f"CC=gcc -I{_HERE / 'native'} -I{data_folder('machines') / 'measure'}"
    subprocess.run(["make", "-s", "-C", selection.load(workload).folder, f"OUT={out}", compiler], check=True)
    return out / workload


def _run(program: Path, case: str, cpu: int) -> _Run | None:
    """One run of a case; None where it cannot run here.

    Addresses are those of the guest, which has `norandmaps`: a heap at a random distance is one more entry of the maple
    tree of mappings, and whether a store crosses two of its nodes (`mas_wr_spanning_store`) halves or doubles it.
    """
    pinned = ["setarch", "--addr-no-randomize", "taskset", "--cpu-list", str(cpu)]
    command = [*pinned, str(program), "--case", case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        return None
    time_ns, ghz, width, drift = map(float, re.findall(r"^window (.*)$", done.stderr, re.MULTILINE)[-1].split())
    operations = json.loads(done.stdout)["metrics"]["ops"]
    return _Run(cycles=time_ns * ghz / operations, width=width if abs(drift - 1) < DRIFT else 0.0)


def _least_disturbed(taken: Sequence[_Run], runs: int) -> Native:
    """The lower quartile of the widest runs: what disturbs makes a run longer."""
    widest = sorted(taken, key=lambda run: -run.width)[:runs]
    shared = sum(run.width < WIDTH for run in widest)
    return Native(cycles=quantile(sorted(run.cycles for run in widest), 0.25), shared=shared > runs / 2)


@contextmanager
def _charged_to_none() -> Iterator[None]:
    """Leave the memory group of this process, where that is allowed: the memory of a group is counted as it is used."""
    own = re.search(r"^\d+:([^:]*\bmemory\b[^:]*|):(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    top = Path("/sys/fs/cgroup/memory" if own and own[1] else "/sys/fs/cgroup")
    members = "cgroup.procs"
    try:
        (top / members).write_text(str(os.getpid()))
    except OSError as error:
        say(f"native runs are charged to the memory group {own[2] if own else '?'}, the guest's to none: {error}")
        yield
        return
    try:
        yield
    finally:
        if own:
            (top / own[2].lstrip("/") / members).write_text(str(os.getpid()))


def _calibrated(machine: Machine, kernel: str, native: dict[str, float]) -> Machine:
    """The machine with those costs, which one operation each lacks beside its native time.

    Twice, since each operation has some of the others' events.
    """
    cost = machine.cost
    for name, case in [*CALIBRATION.items()] * 2:
        (row,) = _modelled(replace(machine, cost=cost), kernel, {case: native[case]})
        events = {"instruction": row.instructions, "cr3": row.cr3_writes}.get(name, 1)
        cycles = max(0.0, round(getattr(cost, name).cycles + (row.native - row.cycles) / events, 3))
        cost = replace(cost, **{name: Cost(cycles=cycles, source=f"measured here: what {case} takes beyond the model")})
    machine = replace(machine, cost=cost)
    (FOLDER / "calibrated.toml").write_text(hardware.to_toml(machine))
    return machine


def _modelled(machine: Machine, kernel: str, native: dict[str, float]) -> list[Row]:
    """The same operations in exact mode, one seed."""
    path = FOLDER / "guest.toml"
    path.write_text(hardware.to_toml(machine))
    cases = sorted({*native, QUIET})
    words = ("--machine", f"./{path}", "--model", "full", "--seeds", "1", "--json")
    document = json.loads(lab("ab", "--base", kernel, "--test", kernel, "-w", f"{WORKLOAD}:{','.join(cases)}", *words))
    values = {
        case["case"]: {metric["name"]: metric["base"][0] for metric in case["metrics"] if metric["base"]}
        for case in document["cases"]
    }
    ticks = values[QUIET]["interrupt_cycles"] / values[QUIET]["instructions_per_op"]
    return [
        Row(
            case,
            native[case],
            value["cycles_per_op"] + _put_off(value, ticks),
            value["instructions_per_op"],
            value["cr3_writes"],
        )
        for case, value in values.items()
        if case in native and value.get("cycles_per_op")
    ]


def _put_off(value: dict[str, float], ticks: float) -> float:
    """The cycles of what an operation leaves to softirqs and threads. ticks: the cycles of ticks in an instruction."""
    return value["thread_cycles"] + max(0.0, value["interrupt_cycles"] - ticks * value["instructions_per_op"])


def _print(rows: Sequence[Row], machine: Machine, kernel: str) -> None:
    assert machine.clock is not None
    ghz = machine.clock.ghz
    evidence = [row for row in rows if row.case not in CALIBRATION.values()]
    ratios = {row.case: row.native / row.cycles for row in evidence}
    say(f"{machine.description}, {ghz:g} GHz; the guest: {kernel}, {machine.guest.cpu if machine.guest else ''}")
    for name in CALIBRATION:
        say(f"{name}: {getattr(machine.cost, name).cycles:g} cycles: {getattr(machine.cost, name).source}")
    say("\n| operation | native ns | modelled ns | native / modelled | instructions |\n|---|---|---|---|---|")
    for row in sorted(evidence, key=lambda row: ratios[row.case]):
        times = f"{row.native / ghz:,.0f} | {row.cycles / ghz:,.0f} | {ratios[row.case]:.2f}"
        say(f"| {row.case} | {times} | {row.instructions:,.0f} |")
    say("\n| what predicts native time | geometric mean | sd of the log | worst, of the mean | within 1.8 of it |")
    say("|---|---|---|---|---|")
    say(_summary("the model", list(ratios.values())))
    say(_summary("instructions, ns each", [row.native / ghz / row.instructions for row in evidence]))


def _print_chases(machine: Machine, package: str, runs: int, cpu: int) -> None:
    """Print how much longer or shorter a chase takes with huge pages, natively and modelled."""
    program = _program("pointer-chase")
    taken: dict[tuple[str, str], list[float]] = {}
    with _huge_pages() as switch, _charged_to_none():
        for case in CHASES:
            for _ in range(runs):
                for pages in ("never", "always"):
                    switch.write_text(pages)
                    if (run := _run(program, case, cpu)) is not None:
                        taken.setdefault((case, pages), []).append(run.cycles)
    path = FOLDER / "guest.toml"
    path.write_text(hardware.to_toml(machine))
    arms = ("--base", f"{package}@thp=never", "--test", f"{package}@thp=always")
    words = ("-w", f"pointer-chase:{','.join(CHASES)}", "--machine", f"./{path}", "--model", "full", "--seeds", "1")
    modelled = {
        case["case"]: metric
        for case in json.loads(lab("ab", *arms, *words, "--json"))["cases"]
        for metric in case["metrics"]
        if metric["name"] == "cycles_per_op"
    }
    say("| chase | native, small pages | huge | modelled | points apart |\n|---|---|---|---|---|")
    for case in dict.fromkeys(case for case, _ in taken):
        small, huge = (quantile(sorted(taken[case, pages]), 0.25) for pages in ("never", "always"))
        ours = modelled[case]["test"][0] / modelled[case]["base"][0] - 1
        gained = huge / small - 1
        say(f"| {case} | {small:,.0f} cycles | {gained:+.1%} | {ours:+.1%} | {100 * abs(gained - ours):.1f} |")


@contextmanager
def _huge_pages() -> Iterator[Path]:
    """The host's switch of huge pages, put back at the end."""
    switch = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    before = _choice(str(switch), "never")
    try:
        switch.write_text(before)
    except OSError as error:
        sys.exit(f"cannot switch huge pages of this host: {error}; run as root")
    try:
        yield switch
    finally:
        switch.write_text(before)


def _summary(label: str, ratios: Sequence[float]) -> str:
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    away = [abs(value - mean) for value in logs]
    near = sum(one <= math.log(1.8) for one in away) / len(away)
    spread = statistics.stdev(logs) if len(logs) > 1 else 0.0
    return f"| {label} | {math.exp(mean):.2f} | {spread:.2f} | {math.exp(max(away)):.2f} | {100 * near:.0f} % |"


if __name__ == "__main__":
    sys.exit(main())
