"""`lab shell`: settings, needs, and the command's output."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
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
    assert words[words.index("--append") + 1] == "panic=-1 loglevel=7 quiet"
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
    with pytest.raises(UserError, match=r"a shell's root has no mount\.fs"):
        shell.prepare(kernel("one"), ["true"], settings={"mount.fs": "ext4"}, progress=QUIET)


def test_what_a_command_writes_is_passed_on(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    # As QEMU does: it opens its output by name, which empties a file, but not a pipe.
    script = "printf out > /proc/self/fd/1; printf err > /proc/self/fd/2; exit 7"
    assert shell._run_through_pipes(["sh", "-c", script], tmp_path, None) == 7
    assert capfdbinary.readouterr() == (b"out", b"err")


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program that `lab shell` takes for vng."""
    vng = tmp_path / "vng"
    vng.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    vng.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(live_machine, "find_vng", lambda: str(vng))
    monkeypatch.setattr(exact, "find_qemu", lambda command="": QEMU)
    monkeypatch.setattr(KernelSpec, "obtain", lambda spec, *_, **__: kernel("one"))
    monkeypatch.setattr(cli_kernel, "resolve", lambda *_, **__: kernel("one").spec)
    monkeypatch.setattr(shell, "prepare", lambda *_, **__: tmp_path)
    monkeypatch.setattr(kvm, "require", lambda qemu, **how: "host,-arch-capabilities")
    return vng


def test_the_guest_of_a_shell_has_the_accelerator_and_the_cpu_model_that_were_found(
    guest: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def options(accel: str) -> str:
        assert main.run(["shell", "file:one", "--accel", accel, "--", "true"]) == 0
        return capfd.readouterr().out

    assert "--qemu-opts=-machine accel=kvm -cpu host,-arch-capabilities" in options("kvm").splitlines()
    said = options("tcg")
    assert "--disable-kvm" in said.splitlines() and "accel=kvm" not in said


# As vng does: what runs the guest is a process of its own, and its messages come by a file.
HANGS = """#!/bin/sh
echo 'last words' >console.log
sleep 600 &
echo $! >>"%s"
echo begun
wait
"""


def test_a_guest_that_hangs_ends_with_one_line_and_its_log(
    guest: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    guest.write_text(HANGS % (pids := tmp_path / "pids"))
    assert main.run(["shell", "file:one", "--accel", "tcg", "--guest-timeout", "1s", "--", "true"]) == 4
    out, err = capfd.readouterr()
    complaint = err.splitlines()[-1]
    assert out == "begun\n" and err.count("lab: ") == 1
    assert complaint.startswith(f"lab: the guest of {kernel('one').spec.text} hung: it did not end within 1 s; ")
    log = Path(complaint.rpartition("(log: ")[2].removesuffix(")"))
    assert log.read_text() == "last words\n"
    assert not _lives(int(pids.read_text()))
    assert not list(tmp_path.glob("lab-shell-*"))


@pytest.mark.parametrize(
    ("options", "command", "limit"),
    [([], ["--", "true"], 300.0), (["--guest-timeout", "2m"], ["--", "true"], 120.0), ([], [], None),
     (["--guest-timeout", "1h"], [], 3600.0)],
)  # fmt: skip
def test_only_a_command_has_a_time_limit_that_nobody_gave(
    guest: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], command: list[str], limit: float | None
) -> None:
    given: list[float | None] = []
    monkeypatch.setattr(shell, "require_terminal", lambda command: None)
    monkeypatch.setattr(shell, "run", lambda *_, timeout_s, **__: given.append(timeout_s) or 0)
    assert main.run(["shell", "--accel", "tcg", *options, "file:one", *command]) == 0
    assert given == [limit]


IN_TERMINAL = """
import pathlib, sys
from lab.guests import shell
try:
    shell._run_in_terminal(sys.argv[2:], pathlib.Path(sys.argv[1]), 1)
except shell.subprocess.TimeoutExpired:
    print("timed out")
"""


def test_a_shell_that_hangs_gives_the_terminal_back_as_it_was(tmp_path: Path) -> None:
    controller, terminal = os.openpty()
    before = termios.tcgetattr(terminal)
    script = f"echo $$ >{tmp_path / 'pid'}; stty raw -echo; exec sleep 600"
    argv = [sys.executable, "-c", IN_TERMINAL, str(tmp_path), "sh", "-c", script]
    done = subprocess.run(argv, stdin=terminal, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout == "timed out\n"
    assert termios.tcgetattr(terminal) == before
    assert not _lives(int((tmp_path / "pid").read_text()))
    os.close(controller)
    os.close(terminal)


def test_the_messages_of_a_commands_kernel_go_into_a_file(tmp_path: Path) -> None:
    (qemu := tmp_path / "QEMU 'x'").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    qemu.chmod(0o755)
    words = ["-append", "a  'b' $c", "-chardev", "file,id=console,path=/dev/null", "-chardev", "stdio,id=console"]
    done = subprocess.run(
        [shell._logging_qemu(tmp_path, str(qemu)), *words], capture_output=True, text=True, check=True
    )
    words[3] = "file,id=console,path=console.log"
    assert done.stdout.splitlines() == words


def _lives(pid: int) -> bool:
    """False for what only waits for its parent to ask, too."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
