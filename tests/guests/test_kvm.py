"""KVM or TCG: the probe, its refusals, and the fallback."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.core import paths
from lab.core.progress import Progress
from lab.guests import exact, kvm
from lab.guests.exact import Qemu

from ..fakes.guest import QEMU

QUIET = Progress(quiet=True)


def probing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str | None) -> list[str]:
    """A machine whose /dev/kvm is a file, and whose probe answers with a reason; gives the probes that were made."""
    asked: list[str] = []

    def probe(qemu: str, image: Path) -> str | None:
        asked.append(qemu)
        return reason

    monkeypatch.setattr(paths, "cache_dir", lambda *parts: tmp_path)
    monkeypatch.setattr(exact, "find_qemu", lambda command="", guests=None: QEMU)
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
    monkeypatch.setattr(
        exact, "find_qemu", lambda command="", guests=None: Qemu(path="/q", version="10.0", numbers=(10, 0))
    )
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
    assert kvm.accelerator("auto", "qemu", Progress(), measuring=False) == "tcg"
    assert capsys.readouterr().err == "no KVM (`lab doctor` says why): the guest is emulated\n"
    assert kvm.accelerator("tcg", "qemu", Progress()) == "tcg"
    assert capsys.readouterr().err == ""
    with pytest.raises(kvm.Refusal):
        kvm.accelerator("kvm", "qemu", QUIET)
    assert not kvm.works("qemu")
