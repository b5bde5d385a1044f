"""`make truth`: operations natively on this host, and in exact mode with it as the machine. Never a test.

make truth                                    the workload syscalls, 9 runs of each case natively: about 5 minutes
make truth ARGS='--machine ./host.toml'       with a file that `lab machine measure` wrote before
make truth ARGS='--kernel deb:bookworm/6.1'   in the guest, not the package nearest to this host's release
make truth ARGS='getppid fstat pipe'          these cases only; calibrated all the same

The guest has the host's CPU as far as QEMU can show it, by vendor, family and model, and its mitigations. What enters
and leaves the kernel cannot be measured from user space, so the costs of `syscall` and `exception` are set by two
operations, getppid and fault-anon-read, which are then no longer evidence. The rest of the table is.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from lab.guests import hardware
from lab.guests.hardware import Cost, Guest, Machine
from lab.workloads import selection

from .stories import lab

WORKLOAD = "syscalls"
FOLDER = Path("build") / "truth"
CALIBRATION = {"syscall": "getppid", "exception": "fault-anon-read"}

WAITS = ("nanosleep", "clock-nanosleep", "timerfd-expire", "unshare-mount", "unshare-net", "unshare-uts", "sched-yield")
"""Operations that wait: for a timer, for all CPUs to pass through the scheduler, for who else is on this CPU."""


class Row(NamedTuple):
    """One operation. native_ns: of the least disturbed run. cycles: modelled, of the median operation."""

    case: str
    native_ns: float
    cycles: float
    instructions: float


def main() -> int:
    """Measure, print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", help="a machine file of this host; measured without it")
    parser.add_argument("--kernel", help="SPEC of the guest's kernel")
    parser.add_argument("--runs", type=int, default=9, help="of each case, natively")
    parser.add_argument("--cpu", type=int, default=1, help="that native runs are pinned to")
    parser.add_argument("cases", nargs="*")
    asked = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    machine = _of_this_host(asked.machine)
    if machine.clock is None:
        sys.exit("the machine file names no clock: `lab machine measure` writes one that does")
    kernel = f"{asked.kernel or _nearest_package()}{_mitigations()}"
    known = [case.name for case in selection.load(WORKLOAD).cases]
    cases = asked.cases or [case for case in known if case not in WAITS]
    native = _native(sorted({*cases, *CALIBRATION.values()}), asked.runs, asked.cpu)
    machine = _calibrated(machine, kernel, native)
    rows = [row for row in _modelled(machine, kernel, native) if row.case in cases]
    _print(rows, machine, kernel)
    return 0


def _of_this_host(chosen: str | None) -> Machine:
    path = Path(chosen or FOLDER / "measured.toml")
    if not chosen:
        lab("machine", "measure", "--output", str(path), "--force")
    return replace(hardware.load(f"{path.parent}/{path.name}"), guest=_guest())


def _guest() -> Guest:
    """The CPU of exact mode's guest with this host's name, by which a kernel chooses its mitigations."""
    facts = dict(re.findall(r"^(vendor_id|cpu family|model|stepping)\s*: (\S+)$", _cpuinfo(), re.MULTILINE))
    name = f"vendor={facts['vendor_id']},family={facts['cpu family']},model={facts['model']}"
    flags = [flag for flag in ("erms", "fsrm", "smep", "smap", "fsgsbase") if re.search(rf"\b{flag}\b", _cpuinfo())]
    more = "".join(f",+{flag}" for flag in flags)
    return Guest(cpu=f"Nehalem,-spec-ctrl,{name},stepping={facts['stepping']}{more}", source="/proc/cpuinfo")


def _cpuinfo() -> str:
    return Path("/proc/cpuinfo").read_text().partition("\n\n")[0] + "\n"


def _mitigations() -> str:
    """The setting of a spec that mitigates what the host does; the guest's own default is none."""
    off = re.search(r"\bmitigations=off\b", Path("/proc/cmdline").read_text())
    return "" if off else "@cmdline.mitigations=auto"


def _nearest_package() -> str:
    """Debian's package of the host's series, or of the newest that has one."""
    series = ".".join(platform.release().split(".")[:2])
    listed = lab("kernel", "list", "--available")
    suites = re.findall(rf"^(\S+)\s+linux-image-{re.escape(series)}\.\S*cloud-amd64 ", listed, re.MULTILINE)
    if not suites:
        sys.exit(f"Debian has no cloud kernel of the series {series}: choose one by --kernel")
    return f"deb:{suites[-1]}/{series}"


def _native(cases: Sequence[str], runs: int, cpu: int) -> dict[str, float]:
    """Nanoseconds an operation takes on this host, of the fastest run: what disturbs only adds."""
    source = selection.load(WORKLOAD).folder
    out = (FOLDER / "native").resolve()
    subprocess.run(["make", "-s", "-C", source, f"OUT={out}"], check=True)
    found: dict[str, float] = {}
    for case in cases:
        times = [_run(out / WORKLOAD, case, cpu) for _ in range(runs)]
        present = [time for time in times if time is not None]
        if present:
            found[case] = min(present)
    return found


def _run(program: Path, case: str, cpu: int) -> float | None:
    command = ["taskset", "--cpu-list", str(cpu), str(program), "--case", case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return float(json.loads(done.stdout)["metrics"]["operation_time"]) if done.returncode == 0 else None


def _calibrated(machine: Machine, kernel: str, native: dict[str, float]) -> Machine:
    """The machine with those two costs, which one operation each lacks beside its native time."""
    assert machine.clock is not None
    cost = machine.cost
    for name, case in CALIBRATION.items():
        (row,) = _modelled(replace(machine, cost=cost), kernel, {case: native[case]})
        known = getattr(cost, name).cycles
        cycles = max(0.0, round(known + row.native_ns * machine.clock.ghz - row.cycles, 1))
        cost = replace(cost, **{name: Cost(cycles=cycles, source=f"measured here: what {case} takes beyond the model")})
    machine = replace(machine, cost=cost)
    (FOLDER / "calibrated.toml").write_text(hardware.to_toml(machine))
    return machine


def _modelled(machine: Machine, kernel: str, native: dict[str, float]) -> list[Row]:
    """The same operations in exact mode, one seed."""
    path = FOLDER / "guest.toml"
    path.write_text(hardware.to_toml(machine))
    words = ("--machine", f"./{path}", "--model", "full", "--seeds", "1", "--json")
    document = json.loads(lab("ab", "--base", kernel, "--test", kernel, "-w", f"{WORKLOAD}:{','.join(native)}", *words))
    rows = []
    for case in document["cases"]:
        value = {metric["name"]: metric["base"][0] for metric in case["metrics"] if metric["base"]}
        if value.get("cycles_p50"):
            rows.append(Row(case["case"], native[case["case"]], value["cycles_p50"], value["instructions_per_op"]))
    return rows


def _print(rows: Sequence[Row], machine: Machine, kernel: str) -> None:
    assert machine.clock is not None
    ghz = machine.clock.ghz
    evidence = [row for row in rows if row.case not in CALIBRATION.values()]
    ratios = {row.case: row.native_ns * ghz / row.cycles for row in evidence}
    say = print
    say(f"{machine.description}, {ghz:g} GHz; the guest: {kernel}, {machine.guest.cpu if machine.guest else ''}")
    for name in CALIBRATION:
        say(f"{name}: {getattr(machine.cost, name).cycles:g} cycles, {getattr(machine.cost, name).source}")
    say("\n| operation | native ns | modelled ns | native / modelled | instructions |\n|---|---|---|---|---|")
    for row in sorted(evidence, key=lambda row: ratios[row.case]):
        times = f"{row.native_ns:,.0f} | {row.cycles / ghz:,.0f} | {ratios[row.case]:.2f}"
        say(f"| {row.case} | {times} | {row.instructions:,.0f} |")
    say("\n| what predicts native time | geometric mean | sd of the log | worst, of the mean | within 1.8 of it |")
    say("|---|---|---|---|---|")
    say(_summary("the model", list(ratios.values())))
    say(_summary("instructions, ns each", [row.native_ns / row.instructions for row in evidence]))


def _summary(label: str, ratios: Sequence[float]) -> str:
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    away = [abs(value - mean) for value in logs]
    near = sum(one <= math.log(1.8) for one in away) / len(away)
    spread = statistics.stdev(logs) if len(logs) > 1 else 0.0
    return f"| {label} | {math.exp(mean):.2f} | {spread:.2f} | {math.exp(max(away)):.2f} | {100 * near:.0f} % |"


if __name__ == "__main__":
    sys.exit(main())
