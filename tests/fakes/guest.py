"""Guests that never boot: their numbers come from a formula, so that order and statistics are exact."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from lab.compare import runs
from lab.compare.plan import ArmPlan, Plan
from lab.compare.runs import GuestRun, Run
from lab.core import records
from lab.core.errors import GuestFailure
from lab.guests import costs, exact, hardware
from lab.guests import image as guest_image
from lab.guests import initrd as guest_initrd
from lab.guests.channel import CaseFailure, CaseOutcome, GuestReport
from lab.guests.exact import Qemu
from lab.guests.image import Image
from lab.guests.run import RunningGuests
from lab.kernels.file_source import FileSource
from lab.kernels.kernel import Kernel, KernelSpec

HEAD = """\
schema = 1
name = "mine"
story = "a story"
memory_mb = 512
vcpus = 1
model = "none"
program = "/usr/bin/mine"
argv = ["--case", "{case}"]

[[metric]]
name = "throughput"
unit = "op/s"
better = "higher"
primary = true
description = "operations per second"

"""
FAULTS = """\
[[metric]]
name = "faults"
unit = "faults"
better = "lower"
description = "page faults"

"""
WORKLOAD = f"""\
{HEAD}{FAULTS}[[case]]
name = "small"
control = true

[[case]]
name = "large"
"""

IMAGE = Image(
    schema=1, name="guest", key="i", sha256="image sum", suite="bookworm", compiler="gcc", packages={}, programs={}
)
QEMU = Qemu(path="/usr/bin/qemu-system-x86_64", version="7.2.22", numbers=(7, 2))
Formula = Callable[[str, int, str], float]
EventsFormula = Callable[[str, int, str], dict[str, float]]


def alike(arm: str, seed: int, case: str) -> float:
    return 100.0 + seed


def slower_large(arm: str, seed: int, case: str) -> float:
    """A test arm that is slower in the case `large` alone."""
    return (100.0 if arm == "base" or case == "small" else 50.0 + seed) + seed


class FakeInstrument:
    """What a guest under a cost model has; the fake guests ask for no more."""

    identity = "tlb some-machine 12345678 87654321"
    model = "tlb"
    quantum = 0

    def __init__(self, machine: str | None = None) -> None:
        self.machine = hardware.load(machine or hardware.DEFAULT)

    def of(self, workload: str) -> Self:
        """The same for every workload."""
        return self


class Broken(Exception):
    """What a formula raises for a case whose program fails, in a guest that goes on."""

    kind = GuestFailure.WORKLOAD


class Unsupported(Broken):
    """What a formula raises for a case that the kernel does not offer."""

    kind = GuestFailure.UNSUPPORTED


def save_run(guest: GuestRun, report: GuestReport, modelled: Mapping[str, dict[str, float]], events: Any = None) -> Run:
    """The record of a guest that never booted, kept as a real one's is. modelled: its costs, if a model runs."""
    bench, arm = guest.bench, guest.arm
    run = Run(
        arm=arm.name, workload=bench.workload.name, seed=guest.seed, cases=[case.name for case in guest.cases],
        commands=guest.commands, kernel=arm.kernel.key, fingerprint=bench.fingerprint, wall_s=0.1,
        argv=["qemu", "-kernel", str(arm.kernel.bzimage)], report=report,
        costs=dict(modelled) if bench.instrument else {}, events=events or {},
    )  # fmt: skip
    records.save(guest.record_path, run)
    return run


class FakeGuests:
    """Stands in for `runs.measure`. `formula` gives the throughput of an arm, a seed and a case, or raises.

    Under a cost model, cycles are a million divided by the root of the throughput: another size of the same sign.
    counts: gives the instructions an operation, which are 1000 without it. events: what cycles are the sum of instead.
    """

    def __init__(
        self, formula: Formula = alike, counts: Formula = lambda *_: 1000.0, events: EventsFormula | None = None
    ) -> None:
        self.formula, self.counts, self.events = formula, counts, events
        self.calls: list[tuple[str, int, tuple[str, ...]]] = []
        self.running: RunningGuests | None = None
        self._lock = threading.Lock()

    def measure(self, guest: GuestRun, running: RunningGuests) -> Run:
        """What a guest would have given, recorded as a real one is."""
        bench, arm, seed, cases = guest.bench, guest.arm, guest.seed, guest.cases
        with self._lock:
            self.calls.append((arm.name, seed, tuple(case.name for case in cases)))
            self.running = running
        outcomes = [self._outcome(guest, case.name) for case in cases]
        of_case = {case.name: self.events(arm.name, seed, case.name) for case in cases} if self.events else {}
        prices = costs.prices_of(bench.instrument.machine) if bench.instrument else {}
        modelled = {
            outcome.name: {
                "cycles_per_op": costs.cycles(of_case[outcome.name], prices)
                if of_case
                else 1e6 / outcome.metrics["throughput"] ** 0.5,
                "instructions_per_op": self.counts(arm.name, seed, outcome.name),
            }
            for outcome in outcomes
            if not outcome.failure
        }
        return save_run(guest, GuestReport(cases=outcomes, complete=True), modelled, of_case)

    def _outcome(self, guest: GuestRun, case: str) -> CaseOutcome:
        outcome = CaseOutcome(name=case, begin_ns=0, end_ns=1, ended=True, status=0)
        try:
            outcome.metrics = {"throughput": self.formula(guest.arm.name, guest.seed, case), "faults": 100.0}
        except Broken as error:
            outcome.failure = CaseFailure(kind=error.kind, message=f"mine:{case} {error}", log="report.jsonl")
        return outcome

    @property
    def boots(self) -> list[tuple[str, int]]:
        """Arm and seed of each boot, in order."""
        return [(arm, seed) for arm, seed, _ in self.calls]


def write_workload(folder: Path, text: str = WORKLOAD) -> str:
    """A workload folder; what `--workload` is given."""
    folder.mkdir(exist_ok=True)
    (folder / "workload.toml").write_text(text)
    return str(folder)


def kernel(name: str) -> Kernel:
    spec = KernelSpec(text=f"file:/boot/{name}", source=FileSource(path=f"/boot/{name}", sha256=name, release="6.99"))
    return Kernel(
        spec=spec, key=f"key of {name}", release="6.99", commit=None,
        bzimage=Path(f"/boot/{name}"), vmlinux=None, symbols=None,
    )  # fmt: skip


def plan(workload: str, *more: str, **changes: object) -> Plan:
    """A plan of two kernel files."""
    values: dict[str, object] = {
        "mode": "exact", "threshold": 0.02, "alpha": 0.01, "seeds": 6, "max_seeds": 12, "fixed_seeds": False,
        "qemu": "qemu-system-x86_64", "guest_timeout_s": 60.0,
        "base": ArmPlan(spec=kernel("base").spec, cc="gcc"), "test": ArmPlan(spec=kernel("test").spec, cc="gcc"),
        "workloads": [workload, *more],
    }  # fmt: skip
    return Plan(**{**values, **changes})  # type: ignore[arg-type]


def surroundings(folder: Path, measure: object) -> Mapping[tuple[Any, str], Any]:
    """Replacements of the image, its slice, QEMU and guests."""
    initrd = folder / "slice.cpio"
    initrd.write_bytes(b"a root")
    return {
        (guest_image, "obtain"): lambda progress, **_: (IMAGE, folder),
        (guest_initrd, "pack_initrd"): lambda image, workload: initrd,
        (exact, "find_qemu"): lambda *_, **__: QEMU,
        (runs, "measure"): measure,
    }


def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, guests: FakeGuests) -> FakeGuests:
    """Put fakes where kernels, images, QEMU and guests would be."""
    monkeypatch.setattr(KernelSpec, "obtain", lambda spec, *_, **__: kernel(Path(spec.source.path).name))
    for (where, name), what in surroundings(tmp_path, guests.measure).items():
        monkeypatch.setattr(where, name, what)
    return guests
