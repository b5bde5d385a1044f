"""The packages that the doctor misses, and their installation."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest

from lab.cli import main
from lab.core import ansible
from lab.core.errors import DiskFull, HostFailed
from lab.guests import backports, doctor, exact, kvm
from lab.kernels import architecture

from ..fakes.guest import QEMU
from ..fakes.processes import program


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that packages are installed, on a machine that has no other programs than these."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()

    def pretend(packages: Mapping[str, str], *programs: str) -> None:
        rows = (f"{name} {status}" for name, status in packages.items())
        program(tmp_path / "bin" / "dpkg-query", "cat <<END", *rows, "END")
        there = {"apt-get", "dpkg-query", *programs}
        monkeypatch.setattr(shutil, "which", lambda name, **_: f"/bin/{name}" if name in there else None)

    return pretend


def _release(tmp_path: Path, text: str) -> dict[str, str]:
    (tmp_path / "os-release").write_text(text)
    return doctor.host_packages(tmp_path / "os-release")


def test_each_release_has_its_packages(tmp_path: Path) -> None:
    bookworm = _release(tmp_path, 'NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\n')
    assert bookworm == _release(tmp_path, 'VERSION_ID="13"\nID=debian\n')
    noble = _release(tmp_path, 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n')
    assert bookworm.keys() - noble.keys() == {"linux-source-6.12"}
    assert set(noble) - set(_release(tmp_path, "ID=arch\n")) == {"debian-archive-keyring"}
    assert bookworm["gcc"] == "building kernels"


def test_the_doctor_names_the_packages_that_are_missing(installed: Callable[..., None]) -> None:
    needed = doctor.host_packages()
    have = dict.fromkeys(needed, "installed")
    installed(have)
    assert doctor._packages().state == "ok"

    installed({**have, "bc": "config-files", "mmdebstrap": "not-installed"})
    found = doctor._packages()
    assert (found.state, found.text) == (
        "missing", f"2 of {len(needed)} are not installed; needed for building kernels and the guest image"
    )  # fmt: skip
    assert found.remedy == "lab doctor --install, or: sudo apt-get install --no-install-recommends bc mmdebstrap"

    # A QEMU or linker of the user's own needs no package.
    installed({name: status for name, status in have.items() if name not in ("qemu-system-x86", "binutils")}, "ld")
    assert str(doctor._packages().remedy).endswith("--no-install-recommends qemu-system-x86")
    installed({name: status for name, status in have.items() if name != "binutils"}, "ld")
    assert doctor._packages().state == "ok"


def test_a_system_without_apt_is_told_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert doctor._packages().state == "missing"
    assert main.run(["doctor", "--install"]) == 4
    assert "lab: there is no apt here to install packages with; use Debian 12 or 13" in capsys.readouterr().err


# --- installation


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The variables that the role was played with; the machine has nothing to examine."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(ansible, "play", lambda name, variables: found.append({"name": name, **variables}))
    monkeypatch.setattr("lab.cli.doctor.examine", lambda _: [])
    monkeypatch.setattr(doctor, "add_contention", lambda *_: None)
    return found


@pytest.mark.parametrize(("asks", "typed"), [(False, "-"), (True, "secret"), (True, "wrong")])
def test_a_user_installs_packages_by_sudo(
    plays: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, installed: Callable[..., None], tmp_path: Path,
    asks: bool, typed: str,
) -> None:  # fmt: skip
    installed({}, "sudo")
    program(tmp_path / "bin" / "sudo", f"[ $1 = --non-interactive ] && exit {int(asks)}", "[ $(cat) = secret ]")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "prompt", lambda *_, **__: typed)
    assert main.run(["doctor", "--install"]) == (4 if typed == "wrong" else 0)
    given = {"ansible_become_password": typed} if asks else {}
    assert plays == ([] if typed == "wrong" else [{"name": "host_ready", "host_ready_become": True, **given}])


def test_a_user_without_sudo_or_terminal_is_told_what_to_run(
    plays: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, installed: Callable[..., None], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    installed({})
    assert main.run(["doctor", "--install"]) == 4
    remedy = f"as root, run `{sys.executable} -m lab doctor --install`\n"
    assert capsys.readouterr().err == f"lab: packages are installed as root, and there is no sudo; {remedy}"
    installed({}, "sudo")
    program(tmp_path / "bin" / "sudo", "exit 1")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert main.run(["doctor", "--install"]) == 4
    assert capsys.readouterr().err == f"lab: sudo asks for a password, and there is no terminal; {remedy}"
    assert plays == []


def test_the_doctor_names_what_guests_of_other_architectures_need(installed: Callable[..., None]) -> None:
    arm64 = architecture.load("arm64")
    installed({}, arm64.qemu)
    found = doctor._exact_mode_of(arm64)
    assert (found.name, found.state) == ("exact mode, arm64", "limited")
    assert found.text == "aarch64-linux-gnu-gcc is not installed"
    assert found.remedy and found.remedy.endswith("qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    assert [finding.name for finding in doctor._other_architectures()] == [
        f"exact mode, {name}" for name in architecture.names() if name != architecture.DEFAULT
    ]


def test_a_qemu_that_cannot_end_turns_limits_contention(monkeypatch: pytest.MonkeyPatch) -> None:
    old = exact.Qemu(path="/bin/true", version="7.2.22", numbers=(7, 2))
    monkeypatch.setattr(exact, "_qemu_at", lambda *_: old)
    monkeypatch.setattr(backports, "suite", lambda: "trixie-backports")
    found = doctor._contention("true")
    assert found.state == "limited" and "version 10.0, qemu_get_cpu" in found.text
    assert found.remedy and found.remedy.startswith("run `lab doctor --install`, which unpacks that of trixie-")
    monkeypatch.setattr(exact, "missing_for_contention", lambda *_: [])
    assert doctor._contention("true").state == "ok"


@pytest.mark.parametrize(
    ("error", "said"), [(DiskFull("0 MiB free"), "cannot be tried: 0 MiB free"), (kvm.Refusal("no"), "no")]
)
def test_what_keeps_kvm_from_a_try_is_no_answer_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: HostFailed, said: str
) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(kvm, "DEVICE", tmp_path / "kvm")
    monkeypatch.setattr(kvm, "kernels_to_try", lambda: iter([tmp_path]))
    monkeypatch.setattr(exact, "find_qemu", lambda *_: QEMU)
    monkeypatch.setattr(kvm, "require", Mock(side_effect=error))
    found = doctor._live_mode("qemu")
    assert (found.state, found.text) == ("limited", said)
