"""Around the guests of live mode: what they delivered, KVM or not, counters beside a verdict, roots and shells."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from lab.cli import ab
from lab.compare import boots, live_guests, rounds
from lab.compare.boots import BootRecord, GuestSetup
from lab.compare.results import Live, LiveRound
from lab.core import paths
from lab.core.errors import DiskFull, GuestFailed, HostFailed, UserError
from lab.core.progress import Progress
from lab.guests import exact, initrd, kvm, live_machine, shell
from lab.guests.channel import CaseOutcome, GuestReport
from lab.guests.exact import Qemu
from lab.guests.run import Arm, RunningGuests
from lab.guests.topology import CpuSet
from lab.stats import multiple, verdict
from lab.stats.verdict import Metric
from lab.workloads import selection

from ..fakes.guest import QEMU, WORKLOAD, kernel, write_workload

QUIET = Progress(quiet=True)


# ---- what a boot delivered


def outcome(name: str, *lines: str, status: int = 0) -> CaseOutcome:
    return CaseOutcome(name=name, begin_ns=0, end_ns=1, ended=True, status=status, stdout=list(lines))


def printed(**metrics: float) -> str:
    return json.dumps({"metrics": metrics})


def test_each_iteration_is_read_by_itself(tmp_path: Path) -> None:
    workload = selection.load(write_workload(tmp_path / "mine"))
    report = GuestReport(
        cases=[
            outcome("small", printed(throughput=1, faults=10)),
            outcome("large", printed(throughput=5, faults=50)),
            outcome("small", printed(throughput=2, faults=20)),
            outcome("large", printed(throughput=6, faults=60)),
        ]
    )
    found = boots.collect(report, workload, workload.cases, 2, tmp_path)
    assert found["small"] == {"throughput": [1.0, 2.0], "faults": [10.0, 20.0]}
    assert found["large"] == {"throughput": [5.0, 6.0], "faults": [50.0, 60.0]}
    with pytest.raises(GuestFailed, match="never ended"):
        boots.collect(report, workload, workload.cases, 3, tmp_path)
    report.cases[2].status = 3
    with pytest.raises(GuestFailed, match="exited with status 3"):
        boots.collect(report, workload, workload.cases, 2, tmp_path)


def test_a_metric_that_only_some_iterations_print_has_holes(tmp_path: Path) -> None:
    optional = WORKLOAD.replace('description = "page faults"', 'description = "page faults"\noptional = true')
    workload = selection.load(write_workload(tmp_path / "mine", optional))
    (small,) = [case for case in workload.cases if case.name == "small"]
    lines = [printed(throughput=1), printed(throughput=1, faults=7), printed(throughput=1)]
    report = GuestReport(cases=[outcome("small", line) for line in lines])
    found = boots.collect(report, workload, [small], 3, tmp_path)
    assert found["small"]["faults"] == [None, 7.0, None]
    record = BootRecord(
        name="n", arm="base", workload="mine", cases=["small"], iterations=3, seed=1, kernel="k", fingerprint="f",
        started="now", cpus=[0], others=[], vng=[], argv=[], values=found,
    )  # fmt: skip
    kept = msgspec.json.decode(msgspec.json.encode(record), type=BootRecord)
    assert [math.isnan(value) for value in kept.reading()["small"]["faults"]] == [True, False, True]


def test_no_guest_is_started_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1 << 20})())
    bench = cast(GuestSetup, SimpleNamespace(folder=tmp_path))
    with pytest.raises(DiskFull, match="1 MiB free, a guest needs 32 MiB"):
        boots.boot(
            bench,
            cast(Arm, None),
            [],
            name="n",
            seed=1,
            iterations=1,
            cpu_set=cast(CpuSet, None),
            running=RunningGuests(),
        )
    assert not list(tmp_path.iterdir())


# ---- KVM


def probing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str | None) -> list[str]:
    """A machine whose /dev/kvm is a file, and whose probe answers with a reason; gives the probes that were made."""
    asked: list[str] = []

    def probe(qemu: str, image: Path) -> str | None:
        asked.append(qemu)
        return reason

    monkeypatch.setattr(paths, "cache_dir", lambda *parts: tmp_path)
    monkeypatch.setattr(exact, "find_qemu", lambda command="": QEMU)
    monkeypatch.setattr(kvm, "some_kernel", lambda: tmp_path / "kernel")
    monkeypatch.setattr(kvm, "probe_kvm", probe)
    return asked


def test_the_probe_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = probing(monkeypatch, tmp_path, "it does not nest")
    device = tmp_path / "kvm"
    device.touch()
    for _ in range(2):
        with pytest.raises(kvm.Refusal, match="it does not nest"):
            kvm.require("qemu", device)
    assert len(asked) == 1
    monkeypatch.setattr(exact, "find_qemu", lambda command="": Qemu(path="/q", version="10.0", numbers=(10, 0)))
    with pytest.raises(kvm.Refusal):
        kvm.require("qemu", device)
    assert len(asked) == 2, "another QEMU is another question"


def test_kvm_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probing(monkeypatch, tmp_path, None)
    device = tmp_path / "kvm"
    with pytest.raises(kvm.Refusal, match="there is no"):
        kvm.require("qemu", device)
    device.touch()
    kvm.require("qemu", device)


def test_a_device_for_others_names_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(kvm.Refusal, match="not for this user") as refused:
        kvm.require("qemu", device)
    assert refused.value.exit_status == 4
    assert refused.value.hint and "adduser $USER" in refused.value.hint


def test_auto_falls_back_and_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(qemu: str) -> None:
        raise kvm.Refusal("there is no /dev/kvm")

    monkeypatch.setattr(kvm, "require", refuse)
    assert kvm.accelerator("auto", "qemu", Progress()) == "tcg"
    assert "an emulator's" in capsys.readouterr().err
    assert kvm.accelerator("tcg", "qemu", Progress()) == "tcg"
    assert capsys.readouterr().err == ""
    with pytest.raises(kvm.Refusal):
        kvm.accelerator("kvm", "qemu", QUIET)
    assert not kvm.works("qemu")


# ---- which mode


def asked(**more: object) -> ab.AbOptions:
    values: dict[str, object] = {
        "base": "v1", "test": "v2", "workload": ("alloc-burst:layout-4632k",), "tree": None, "mode": "auto",
        "threshold": 0.02, "seeds": None, "max_seeds": 24, "budget": None, "cc": "gcc", "base_cc": None,
        "test_cc": None, "qemu": "qemu-system-x86_64", "guest_timeout": 300.0, "model": "auto", "machine": "m",
        "jobs": None, "accel": "auto", "cpus": None, "numa": None, "duet": False, "rounds": None, "max_rounds": 40,
        "iterations": None, "perf": None, "perf_record": False, "fail_on": None,
        "require_verdict": False, "explain": False,
    }  # fmt: skip
    return msgspec.convert({**values, **more}, ab.AbOptions)


@pytest.mark.parametrize(
    ("works", "more", "mode"),
    [
        (False, {}, "exact"),
        (True, {}, "live"),
        (True, {"mode": "exact"}, "exact"),
        (True, {"seeds": 3}, "exact"),
        (True, {"model": "full"}, "exact"),
        (True, {"explain": True}, "exact"),
        (False, {"mode": "live"}, "live"),
        (False, {"rounds": 3}, "live"),
        (False, {"accel": "tcg"}, "live"),
    ],
)
def test_the_mode(monkeypatch: pytest.MonkeyPatch, works: bool, more: dict[str, object], mode: str) -> None:
    monkeypatch.setattr(kvm, "works", lambda qemu: works)
    monkeypatch.setattr(kvm, "accelerator", lambda asked, qemu, progress: "tcg")
    monkeypatch.setattr(live_guests, "check", lambda chosen, plan: None)
    plan = ab._live_plan(asked(**more), QUIET)
    assert (plan is not None) == (mode == "live")


def test_options_of_the_other_mode_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--seeds requires --mode exact"):
        ab._live_plan(asked(mode="live", seeds=3), QUIET)
    with pytest.raises(UserError, match="--model requires --mode exact"):
        ab._live_plan(asked(mode="live", model="full"), QUIET)
    with pytest.raises(UserError, match="--seeds requires --mode exact"):
        ab._live_plan(asked(rounds=3, seeds=3), QUIET)
    with pytest.raises(UserError, match="require --mode live"):
        ab._live_plan(asked(mode="exact", duet=True), QUIET)


# ---- counters beside a verdict


def compared(name: str, base: list[float], test: list[float], better: verdict.Better = "lower") -> verdict.Comparison:
    found = verdict.compare_metric(Metric(name=name, unit="faults", better=better), base, test, exact=False)
    return multiple.mark_secondary([found])[0]


def test_steady_counters_that_changed_stand_beside_an_unknown() -> None:
    faults = compared("page_faults", [882.0] * 6, [1904.0] * 6)
    latency = compared("latency", [100.0, 150.0, 120.0, 90.0, 200.0, 110.0], [900.0 + i for i in range(6)])
    equal = compared("vmas", [1.0] * 6, [1.0] * 6)
    rate = compared("hits", [10.0] * 6, [20.0] * 6, better="higher")
    assert rounds.changed([latency, faults, equal]) == [faults]
    assert rounds.beside([latency, faults, equal]) == "its counters say regression: page_faults +115.9 %"
    assert rounds.beside([rate, faults]).endswith("regression: page_faults +115.9 %; improvement: hits +100.0 %")
    assert rounds.beside([latency, equal]) == ""


def test_how_quiet_the_host_was() -> None:
    def one(state: str) -> LiveRound:
        return LiveRound(
            number=1, attempt=1, order=["base", "test"], iterations=1, state=state, reasons=[],  # type: ignore[arg-type]
            host=None, seconds=1.0, boots=[],
        )  # fmt: skip

    live = Live(
        accelerator="tcg", virtme_ng="1", duet=False, shapes={}, cpu_sets={}, hugepage_kb=None, commands={}, host=[],
        rounds=[one(state) for state in ("repeated", "kept", "died", "disturbed")], sampling={},
    )  # fmt: skip
    assert str(live) == (
        "2 rounds, 1 of them disturbed, 1 repeated because of the host, 1 repeated because a guest died"
    )


# ---- the root, and shells


def test_the_root_has_a_shell_and_leaves_the_image_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initrd, "run_inside", lambda root, program, arguments: "sh\nmount\nbusybox\n")
    (tmp_path / "root" / "bin").mkdir(parents=True)
    (tmp_path / "root" / "bin" / "busybox").write_text("program")
    (tmp_path / "root" / "bin" / "bash").write_text("the image's own")
    room = live_machine.obtain_root(tmp_path)
    assert (room / "bin" / "sh").readlink() == Path("busybox")
    assert (room / "bin" / "busybox").samefile(tmp_path / "root" / "bin" / "busybox")
    assert (room / "proc").is_dir() and (room / "etc" / "passwd").read_text().startswith("root::0:0:")
    assert (tmp_path / "root" / "bin" / "bash").read_text() == "the image's own", "replaced, not written through"
    assert live_machine.obtain_root(tmp_path) == room
    for name in ("bin/su", "lib/systemd/systemd-udevd", "bin/udevadm"):
        subprocess.run(["sh", "-n", str(room / name)], check=True)


def test_a_command_runs_with_the_specs_settings() -> None:
    settings = {"thp": "never", "sysctl.vm.swappiness": "10", "cmdline.quiet": "", "env.A": "x y"}
    words = shell.guest_options(["echo", "a b"], settings)
    assert words[words.index("--append") + 1] == "panic=-1 quiet"
    assert words[words.index("--exec") + 1].split("; ") == [
        "echo never > /sys/kernel/mm/transparent_hugepage/enabled", "sysctl -w vm.swappiness=10",
        "export A='x y'", "exec echo 'a b'",
    ]  # fmt: skip
    assert "--exec" not in shell.guest_options([], {})


def test_a_shell_needs_a_terminal_and_a_kernel_that_mounts_its_root(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="needs a terminal"):
        shell.require_terminal([])
    shell.require_terminal(["true"])
    monkeypatch.setattr("lab.kernels.kernel.Kernel.configuration", lambda kernel: {"CONFIG_9P_FS": "m"})
    with pytest.raises(UserError, match=r"not built in .*: CONFIG_9P_FS, CONFIG_NET_9P_VIRTIO"):
        shell.prepare(kernel("one"), ["true"], settings={}, progress=QUIET)


def test_virtme_ng_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(HostFailed, match="virtme-ng is not installed"):
        live_machine.find_vng()


def test_what_a_command_writes_is_passed_on(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    # As QEMU does: it opens its output by name, which empties a file, but not a pipe.
    script = "printf out > /proc/self/fd/1; printf err > /proc/self/fd/2; exit 7"
    assert shell._run_through_pipes(["sh", "-c", script], tmp_path, {"PATH": "/usr/bin:/bin"}) == 7
    assert capfdbinary.readouterr() == (b"out", b"err")
