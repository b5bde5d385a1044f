"""The doctor: the packages that it misses and installs, and the role that sets a machine up and puts it back."""

import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import click
import pytest

from lab.core import ansible
from lab.core.ansible import PlaybookFailed
from lab.core.errors import DiskFull, HostFailed
from lab.core.paths import data_folder
from lab.guests import backports, doctor, exact, kvm
from lab.guests.doctor import Change, fix, restore, succeeded
from lab.kernels import architecture

from ..fakes.command import Lab
from ..fakes.guest import QEMU
from ..fakes.host import CPU, LAPTOP, plant
from ..fakes.processes import program

Install = Callable[..., None]
Plays = list[dict[str, Any]]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Pretend that packages are installed, on a machine that has no other programs than these."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()

    def pretend(packages: Mapping[str, str], *programs: str) -> None:
        rows = (f"{name} {status}" for name, status in packages.items())
        program(tmp_path / "bin" / "dpkg-query", "cat <<END", *rows, "END")
        there = {"apt-get", "dpkg-query", *programs}
        monkeypatch.setattr(shutil, "which", lambda name, **_: f"/bin/{name}" if name in there else None)

    return pretend


def test_each_release_has_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(name: str, **version: str) -> dict[str, str]:
        monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": name, **version})
        return doctor.host_packages()

    bookworm = of("debian", VERSION_ID="12")
    assert bookworm == of("debian", VERSION_ID="13")
    noble = of("ubuntu", VERSION_ID="24.04")
    assert bookworm.keys() - noble.keys() == {"linux-source-6.12"}
    assert set(noble) - set(of("arch")) == {"debian-archive-keyring"}
    assert bookworm["gcc"] == "building kernels"


def test_the_doctor_names_the_packages_that_are_missing(installed: Install) -> None:
    needed = doctor.host_packages()
    have = dict.fromkeys(needed, "installed")
    installed(have)
    assert doctor._packages().state == "ok"

    installed({**have, "bc": "config-files", "mmdebstrap": "not-installed"})
    found = doctor._packages()
    assert found.state == "missing"
    assert found.text == f"2 of {len(needed)} are not installed; needed for building kernels and the guest image"
    assert found.remedy == "lab doctor --install, or: sudo apt-get install --no-install-recommends bc mmdebstrap"

    # A QEMU or linker of the user's own needs no package.
    installed({name: status for name, status in have.items() if name not in ("qemu-system-x86", "binutils")}, "ld")
    assert str(doctor._packages().remedy).endswith("--no-install-recommends qemu-system-x86")
    installed({name: status for name, status in have.items() if name != "binutils"}, "ld")
    assert doctor._packages().state == "ok"


def test_a_system_without_apt_is_told_so(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert doctor._packages().state == "missing"
    said = lab("doctor", "--install", status=4).err
    assert "lab: there is no apt here to install packages with; use Debian 12 or 13" in said


# --- installation


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Plays:
    """The variables that the role was played with; the machine has nothing to examine."""
    found: Plays = []
    monkeypatch.setattr(ansible, "play", lambda name, variables: found.append({"name": name, **variables}))
    monkeypatch.setattr("lab.cli.doctor.examine", lambda _: [])
    monkeypatch.setattr(doctor, "add_contention", lambda *_: None)
    return found


@pytest.mark.parametrize(("asks", "typed"), [(False, "-"), (True, "secret"), (True, "wrong")])
def test_a_user_installs_packages_by_sudo(
    lab: Lab, plays: Plays, monkeypatch: pytest.MonkeyPatch, installed: Install, tmp_path: Path, asks: bool, typed: str
) -> None:
    installed({}, "sudo")
    program(tmp_path / "bin" / "sudo", f"[ $1 = --non-interactive ] && exit {int(asks)}", "[ $(cat) = secret ]")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "prompt", lambda *_, **__: typed)
    lab("doctor", "--install", status=4 if typed == "wrong" else 0)
    given = {"ansible_become_password": typed} if asks else {}
    assert plays == ([] if typed == "wrong" else [{"name": "host_ready", "host_ready_become": True, **given}])


def test_a_user_without_sudo_or_terminal_is_told_what_to_run(
    lab: Lab, plays: Plays, monkeypatch: pytest.MonkeyPatch, installed: Install, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    installed({})
    remedy = f"as root, run `{sys.executable} -m lab doctor --install`\n"
    said = lab("doctor", "--install", status=4).err
    assert said == f"lab: packages are installed as root, and there is no sudo; {remedy}"
    installed({}, "sudo")
    program(tmp_path / "bin" / "sudo", "exit 1")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    said = lab("doctor", "--install", status=4).err
    assert said == f"lab: sudo asks for a password, and there is no terminal; {remedy}" and plays == []


def test_the_doctor_names_what_guests_of_other_architectures_need(installed: Install) -> None:
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


@pytest.mark.parametrize(("free_gb", "state"), [(0.9, "missing"), (3, "limited"), (9, "ok")])
def test_a_disk_with_room_for_packages_is_limited(monkeypatch: pytest.MonkeyPatch, free_gb: float, state: str) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=int(free_gb * 2**30)))
    found = doctor._disk()
    assert found.state == state and f"{free_gb:.1f} GiB free" in found.text


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


# ---- the role that sets a machine up, on hosts that are files in a folder

THP = "sys/kernel/mm/transparent_hugepage/enabled"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return plant(tmp_path / "host", LAPTOP)


def said(host: Path) -> dict[str, str]:
    files = [path for path in host.rglob("*") if path.is_file()]
    return {str(path.relative_to(host)): path.read_text().strip() for path in files}


def outcomes(changes: list[Change]) -> dict[str, str]:
    return {change.name: change.outcome for change in changes}


@pytest.mark.long
def test_what_is_set_is_put_back(host: Path, tmp_path: Path) -> None:
    before, state = said(host), tmp_path / "var" / "state.json"
    tried = fix(without_smt=True, check=True, root=host, state=state)
    assert outcomes(tried)["governor"] == "to set"
    assert said(host) == before
    assert not state.exists()

    done = fix(without_smt=True, check=False, root=host, state=state)
    assert outcomes(done) == {
        "governor": "set", "turbo": "set", "boost": "absent", "THP": "set", "KSM": "set", "swap": "set", "SMT": "set",
    }  # fmt: skip
    assert next(change.text for change in done if change.name == "governor") == "powersave -> performance (4 CPUs)"
    assert (said(host)[THP], said(host)[f"{CPU}/smt/control"]) == ("never", "off")
    assert succeeded(done)

    # A second time nothing is set, and what was there first is what is remembered.
    assert set(outcomes(fix(without_smt=True, check=False, root=host, state=state)).values()) == {"as is", "absent"}
    back = restore(check=False, root=host, state=state)
    assert {change.outcome for change in back} == {"set"}
    assert said(host) == {**before, THP: "always"}  # a file takes the word; the kernel would show the choice again
    assert not state.exists()
    assert restore(check=False, root=host, state=state) == []


def test_what_another_boot_had_is_not_put_back(host: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"schema": 1, "boot": "another", "before": {THP: "never"}}))
    restore(check=False, root=host, state=state)
    assert said(host)[THP] == "[always] madvise never"


# ---- the module that turns the switches


def turn(host: Path, path: str, value: str) -> dict[str, Any]:
    found = importlib.util.spec_from_file_location(
        "bench_knob", data_folder("ansible") / "roles/bench_host/library/bench_knob.py"
    )
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    changes: dict[str, Any] = module._set(host, path, value, dry=False)
    return changes


def test_a_switch_that_refuses_says_why(host: Path) -> None:
    (host / "sys/kernel/mm/ksm/run").unlink()
    (host / "sys/kernel/mm/ksm/run").mkdir()
    assert turn(host, "sys/kernel/mm/ksm/run", "0")["refused"] == "Is a directory"
    assert turn(host, "sys/gone", "0")["refused"] == "No such file or directory"
    (host / "dead").symlink_to("/dev/null")  # takes anything and says nothing
    assert turn(host, "dead", "0")["refused"] == "it says  still"


def test_what_became_of_switches_is_changes_in_a_line_each(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = doctor._File(path="sys/a", before="1", after="0", changed=True)
    bad = doctor._File(path="sys/b", before=None, after=None, changed=False, refused="Operation not permitted")
    monkeypatch.setattr(doctor, "_play", lambda *_, **__: {"turbo": [one, bad], "boost": []})
    done = fix(without_smt=False, check=False)
    assert [(change.outcome, change.text) for change in done] == [
        ("refused", "1 of 2: /sys/b: Operation not permitted"), ("absent", "this machine has no such switch"),
    ]  # fmt: skip
    assert not succeeded(done)
    monkeypatch.setattr(doctor, "_play", lambda *_, **__: {"turbo": [], "boost": []})
    assert not succeeded(fix(without_smt=False, check=False))


def test_without_the_right_to_it_says_what_it_needs(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = PlaybookFailed("bench_host", "Set it", "sudo: a password is required")
    monkeypatch.setattr(ansible, "play", Mock(side_effect=refusal))
    with pytest.raises(HostFailed, match="a password is required") as caught:
        fix(without_smt=False, check=False, root=host)
    assert "sudo" in str(caught.value.hint)


# ---- the command


@pytest.mark.parametrize(
    "words", [["--fix", "--restore"], ["--check"], ["--without-smt"], ["--restore", "--without-smt"]]
)
def test_options_that_make_no_sense_together_are_misuse(lab: Lab, words: list[str]) -> None:
    assert "Error: --" in lab("doctor", *words, status=2).err


def test_the_command_says_what_was_refused_and_exits_4(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [
        Change(name="THP", outcome="set", text="always -> never"),
        Change(name="turbo", outcome="refused", text="/sys/x: Operation not permitted"),
    ]
    monkeypatch.setattr(doctor, "fix", lambda **_: changes)
    lines = lab("doctor", "--fix", status=4).out.splitlines()
    assert lines[:2] == ["set      THP: always -> never", "refused  turbo: /sys/x: Operation not permitted"]
    assert any("live: governor" in line for line in lines)
    monkeypatch.setattr(doctor, "restore", lambda **_: [])
    assert lab("doctor", "--restore").out.startswith("nothing to put back\n")
