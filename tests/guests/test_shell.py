"""`lab shell`: settings, needs, and the command's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cli import kernel as cli_kernel
from lab.cli import main
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.guests import exact, kvm, live_machine, shell
from lab.kernels.kernel import KernelSpec

from ..fakes.guest import QEMU, kernel

QUIET = Progress(quiet=True)


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


def test_what_a_command_writes_is_passed_on(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    # As QEMU does: it opens its output by name, which empties a file, but not a pipe.
    script = "printf out > /proc/self/fd/1; printf err > /proc/self/fd/2; exit 7"
    assert shell._run_through_pipes(["sh", "-c", script], tmp_path, {"PATH": "/usr/bin:/bin"}) == 7
    assert capfdbinary.readouterr() == (b"out", b"err")


def test_the_guest_of_a_shell_has_the_accelerator_and_the_cpu_model_that_were_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    vng = tmp_path / "vng"
    vng.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    vng.chmod(0o755)
    monkeypatch.setattr(live_machine, "find_vng", lambda: str(vng))
    monkeypatch.setattr(exact, "find_qemu", lambda command="": QEMU)
    monkeypatch.setattr(KernelSpec, "obtain", lambda spec, *_, **__: kernel("one"))
    monkeypatch.setattr(cli_kernel, "resolve", lambda *_, **__: kernel("one").spec)
    monkeypatch.setattr(shell, "prepare", lambda *_, **__: tmp_path)
    monkeypatch.setattr(kvm, "require", lambda qemu, **how: "host,-arch-capabilities")
    assert main.run(["shell", "file:one", "--accel", "kvm", "--", "true"]) == 0
    assert "--qemu-opts=-machine accel=kvm -cpu host,-arch-capabilities" in capfd.readouterr().out.splitlines()
    assert main.run(["shell", "file:one", "--accel", "tcg", "--", "true"]) == 0
    said = capfd.readouterr().out.splitlines()
    assert "--disable-kvm" in said and not any("accel=kvm" in word for word in said)


def test_a_shell_under_kvm_never_falls_back_to_an_emulator() -> None:
    assert shell.accelerator_options("tcg", "max") == []
    assert shell.accelerator_options("kvm", "host") == ["--qemu-opts=-machine accel=kvm"]
    (options,) = shell.accelerator_options("kvm", "host,-arch-capabilities")
    assert options.endswith(" -cpu host,-arch-capabilities")
