"""Live mode's guests on a host that never was: each gives its kernel's fate, as `fakebisect` has it, with noise."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.bisection.proof import Prover
from lab.compare import boots, round_runner
from lab.compare.boots import BootRecord, GuestSetup, Job
from lab.core import records
from lab.core.errors import LabError
from lab.guests import host as guest_host
from lab.guests import kvm, live_machine, perf_stat, topology
from lab.guests.host import RoundHost
from lab.guests.run import Arm, RunningGuests
from lab.guests.topology import CpuSet, HostCpu

from .bisection import dice

QUIET = RoundHost(steal=0.0, load=0.0, throttled=None, suspended_s=0.0, reasons=[])
Value = Callable[[float, str], float]
Values = dict[str, dict[str, list[float | None]]]


def ran(
    bench: GuestSetup,
    arm: Arm,
    values: Values,
    job: Job,
    *,
    name: str,
    cpu_set: CpuSet,
    running: RunningGuests,
    unsupported: dict[str, str] | None = None,
) -> BootRecord:
    """The record of a guest that gave these values, case by case, kept where `boots.boot` keeps it."""
    assert job.may_lack or not unsupported
    record = BootRecord(
        name=name, arm=arm.name, workload=bench.workload.name, cases=list(values), iterations=job.iterations,
        seed=job.seed, kernel=arm.kernel.key, fingerprint=bench.fingerprint, started="now",
        wall_s=3.0 + job.iterations, boot_s=3.0,
        cpus=cpu_set.cpus, others=cpu_set.others, vng=[], argv=[], values=values, unsupported=unsupported or {},
    )  # fmt: skip
    path = boots.record_path(bench.folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    records.save(path, record)
    return record


def plain(fate: float, case: str) -> float:
    """What live mode measures: the fate, as exact mode does."""
    return fate if case == "large" else 50.0


@dataclass
class LiveHost:
    """Stands in for `boots.boot`, and for the watch over the host. noise: of a boot, as a share."""

    value: Value = plain
    noise: float = 0.002
    booted: list[str] = field(default_factory=list)
    failure: LabError | None = None

    def boot(self, bench: GuestSetup, arm: Arm, job: Job, **how: Any) -> BootRecord:
        if self.failure is not None:
            raise self.failure
        fate = float(arm.kernel.image(bench.machine).read_text().partition("\n")[0])
        self.booted.append(arm.kernel.commit or "")
        chance = dice(f"{len(self.booted)} {how['name']}")
        values: Values = {
            case.name: {
                "throughput": [
                    self.value(fate, case.name) * (1 + chance.gauss(0, self.noise)) for _ in range(job.iterations)
                ]
            }
            for case in job.cases
        }
        return ran(bench, arm, values, job, **how)

    def start(self) -> None:
        """A watch begins."""

    def stop(self) -> RoundHost:
        return QUIET


def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: LiveHost | None = None) -> LiveHost:
    """Put fakes where live mode's guests and its host would be; KVM works on it."""
    host = host or LiveHost()
    monkeypatch.setattr(boots, "boot", lambda *words, **how: host.boot(*words, **how))
    monkeypatch.setattr(round_runner, "Watch", lambda cpus: host)
    monkeypatch.setattr(guest_host, "survey", lambda cpus, root=None: [])
    monkeypatch.setattr(live_machine, "obtain_root", lambda image: tmp_path / "root")
    monkeypatch.setattr(live_machine, "find_vng", lambda: "/usr/bin/vng")
    monkeypatch.setattr(
        live_machine, "compose", lambda guest, kernel, root, timeout_s: (["vng", "--run"], ["qemu", "-S"])
    )
    monkeypatch.setattr(topology, "host_cpus", lambda allowed: [HostCpu(cpu=n, core=n) for n in range(4)])
    monkeypatch.setattr(guest_host, "require_memory", lambda memory_mb, guests: None)
    monkeypatch.setattr(kvm, "require", lambda qemu, device=None, **how: "host")
    monkeypatch.setattr(perf_stat, "known_events", lambda root: ())
    monkeypatch.setattr(perf_stat, "has_pmu", lambda: True)
    monkeypatch.setattr(Prover, "explain", lambda *_: [])
    return host
