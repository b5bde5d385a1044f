"""KVM or TCG: the probe, its refusals, and the fallback."""

import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from lab.core import paths
from lab.core.errors import DiskFull
from lab.core.progress import Progress
from lab.guests import exact, kvm, run
from lab.guests.exact import Qemu
from lab.guests.run import GuestExit
from lab.kernels import store

from ..fakes.guest import QEMU


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A /dev/kvm that opens."""
    path = tmp_path / "device"
    path.touch()
    return path


def probing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str | None, cpu: str = "host") -> list[float]:
    """A machine whose probe finds a reason against KVM, or none; gives the time limit of each probe that was made."""
    asked: list[float] = []

    def probe(qemu: str, kernels: object, *, guest_timeout_s: float) -> tuple[str, str | None]:
        asked.append(guest_timeout_s)
        return cpu, reason

    monkeypatch.setattr(paths, "cache_dir", lambda *parts: tmp_path)
    monkeypatch.setattr(exact, "find_qemu", lambda *_, **__: QEMU)
    monkeypatch.setattr(kvm, "kernels_to_try", lambda: iter([tmp_path / "kernel"]))
    monkeypatch.setattr(kvm, "probe_kvm", probe)
    return asked


@pytest.mark.parametrize(
    ("reason", "probes"), [("KVM internal error. Suberror: 1", 1), ("the guest did not come up within 12 s", 2)]
)
def test_a_no_of_kvms_own_is_kept_and_that_of_a_slow_moment_for_minutes(
    reason: str, probes: int, tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = probing(monkeypatch, tmp_path, reason)
    for _ in range(2):
        with pytest.raises(kvm.Refusal, match=reason) as refused:
            kvm.require("qemu", device)
    assert len(asked) == 1 and refused.value.hint and str(tmp_path / "kvm.json") in refused.value.hint
    later = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(kvm.Refusal):
        kvm.require("qemu", device)
    assert len(asked) == probes


def test_a_yes_is_kept_while_qemu_stays_the_same(tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = probing(monkeypatch, tmp_path, None, cpu="host,-arch-capabilities")
    monkeypatch.setattr(time, "time", iter(range(0, 10**9, 10**6)).__next__)
    assert [kvm.require("qemu", device) for _ in range(3)] == ["host,-arch-capabilities"] * 3
    assert len(asked) == 1
    kvm.require("qemu", device, anew=True)
    assert len(asked) == 2, "the doctor asks anew"
    other = Qemu(path="/q", version="10.0", numbers=(10, 0))
    monkeypatch.setattr(exact, "find_qemu", lambda *_, **__: other)
    kvm.require("qemu", device, guest_timeout_s=900)
    assert asked == [300.0, 300.0, 900], "another QEMU is another question, and has the time that guests have"


def test_the_last_three_kernels_are_tried(tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []
    used = {"first": 10.0, "last": 40.0, "second": 20.0, "third": 30.0}
    for name in used:
        (tmp_path / name).mkdir()
        (tmp_path / name / "bzImage").touch()
    kept = kvm.kernels_to_try
    probing(monkeypatch, tmp_path, None)
    monkeypatch.setattr(kvm, "kernels_to_try", kept)
    monkeypatch.setattr(kvm, "probe_kvm", lambda _, kernels, **how: (tried.extend(kernels) or "host", None))
    monkeypatch.setattr(store, "builds", lambda: ((None, tmp_path / name, at) for name, at in used.items()))
    kvm.require("qemu", device)
    assert [path.parent.name for path in tried] == ["last", "third", "second"]


class Qemus:
    """Stands for the QEMUs of a probe: which kernel comes up with which accelerator and CPU model."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *up: tuple[str, str], needs_s: float = 1.0) -> None:
        self.booted: list[tuple[str, str]] = []
        self.limits_s: list[tuple[float, float]] = []
        self.later_s: float | None = None
        self._up, self._needs_s = up, needs_s
        monkeypatch.setattr(run, "boot", self._boot)

    def _boot(self, argv: list[str], *, folder: Path, timeout_s: float, silence_s: float) -> GuestExit:
        self.limits_s.append((timeout_s, silence_s))
        one = (Path(argv[argv.index("-kernel") + 1]).name, argv[argv.index("-cpu") + 1])
        assert ("tcg" in argv) == (one[1] == "max") and "loglevel=4" in argv[argv.index("-append") + 1]
        self.booted.append(one)
        console = folder / run.CONSOLE
        up = one in self._up and self._needs_s <= silence_s
        console.write_text("Kernel panic: No working init found" if up else "")
        wall_s = self._needs_s if up else min(silence_s, 1.0)
        self._needs_s = self.later_s or self._needs_s
        report = folder / run.REPORT
        return GuestExit(status=1, timed_out=not up, stderr="", wall_s=wall_s, console=console, report=report)


def test_a_kernel_that_boots_nowhere_says_nothing_about_kvm(monkeypatch: pytest.MonkeyPatch) -> None:
    qemus = Qemus(monkeypatch, ("good", "host"))
    assert kvm.probe_kvm("qemu", [Path("broken"), Path("good")]) == ("host", None)
    hosts = ["host", "host,-arch-capabilities"]
    assert qemus.booted == [*(("broken", model) for model in [*hosts, "max"]), ("good", "host")]
    _, reason = kvm.probe_kvm("qemu", [Path("broken")])
    assert reason == "no kernel comes up, without KVM neither (1 tried)"


def test_a_full_disk_says_nothing_about_kvm(monkeypatch: pytest.MonkeyPatch) -> None:
    Qemus(monkeypatch)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(DiskFull, match="0 MiB free, a guest needs 64 MiB"):
        kvm.probe_kvm("qemu", [Path("good")])


def test_a_kernel_that_boots_without_kvm_alone_ends_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    qemus = Qemus(monkeypatch, ("one", "max"))
    _, reason = kvm.probe_kvm("qemu", [Path("one"), Path("two")], guest_timeout_s=1000)
    assert reason and "printed nothing" in reason and ("two", "host") not in qemus.booted
    assert qemus.limits_s == [(400, 40), (400, 40), (400, 400)], "as much longer as guests may take"


def test_a_machine_that_is_slow_without_kvm_has_more_time_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    qemus = Qemus(monkeypatch, ("one", "max"), ("one", "host,-arch-capabilities"), needs_s=15)
    assert kvm.probe_kvm("qemu", [Path("one")]) == ("host,-arch-capabilities", None)
    assert qemus.limits_s == [(120, 12), (120, 12), (120, 120), (120, 120), (120, 120)]


def test_a_machine_that_was_busy_is_no_reason_for_another_cpu_model(monkeypatch: pytest.MonkeyPatch) -> None:
    qemus = Qemus(monkeypatch, ("one", "host"), ("one", "host,-arch-capabilities"), needs_s=15)
    qemus.later_s = 5
    assert kvm.probe_kvm("qemu", [Path("one")]) == ("host", None)
    assert [model for _, model in qemus.booted] == ["host", "host,-arch-capabilities", "host"]
    assert qemus.limits_s == [(120, 12), (120, 12), (120, 50)]


def test_a_device_that_cannot_be_opened_is_named(tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(kvm.Refusal, match="not for this user") as refused:
        kvm.require("qemu", device)
    assert refused.value.hint and "adduser $USER" in refused.value.hint
    with pytest.raises(kvm.Refusal, match=r"there is no .*/none"):
        kvm.require("qemu", tmp_path / "none")


def test_auto_falls_back_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kvm, "DEVICE", tmp_path / "none")
    monkeypatch.setattr(kvm, "require", Mock(side_effect=kvm.Refusal("there is no /dev/kvm")))
    assert kvm.accelerator("auto", "qemu", Progress()) == "tcg"
    assert "an emulator's" in capsys.readouterr().err
    assert kvm.accelerator("auto", "qemu", Progress(), measuring=False) == "tcg"
    assert capsys.readouterr().err == "no KVM (`lab doctor` says why): the guest is emulated\n"
    assert kvm.accelerator("tcg", "qemu", Progress()) == "tcg"
    assert capsys.readouterr().err == ""
    with pytest.raises(kvm.Refusal):
        kvm.accelerator("kvm", "qemu", Progress())
