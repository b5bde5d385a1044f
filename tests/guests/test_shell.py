"""`lab shell`: settings, needs, and the command's output."""

import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from msgspec import structs

from lab.cli import kernel as cli_kernel
from lab.cli import main
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.guests import exact, kvm, shell
from lab.kernels.kernel import KernelSpec

from ..fakes.guest import QEMU, kernel
from ..fakes.processes import lives, program

QUIET = Progress(quiet=True)


GUEST = shell.ShellGuest(qemu=QEMU, accelerator="tcg", cpu="max", cpus=2, memory_mb=512)


def test_a_command_runs_with_the_specs_settings(tmp_path: Path) -> None:
    settings = {"thp": "never", "sysctl.vm.swappiness": "10", "cmdline.quiet": "", "cmdline.a": "b", "env.A": "x y"}
    words = shell.qemu_argv(GUEST, Path("/vmlinuz"), tmp_path, ["true"], settings)
    assert words[-1] == "console=ttyS0 rdinit=/lib/lab/shell panic=-1 reboot=t loglevel=7 quiet a=b"
    assert [word for word in words if word.startswith("isa-serial")] == [
        f"isa-serial,chardev={name}" for name in ("console", "out", "err", "status")
    ]
    assert "stdio,id=console,mux=on,signal=off" in shell.qemu_argv(GUEST, Path("/vmlinuz"), tmp_path, [], {})
    script = shell.init_script(["echo", "a b"], settings).splitlines()
    assert (
        script.index("echo never > /sys/kernel/mm/transparent_hugepage/enabled")
        < script.index("sysctl -w vm.swappiness=10")
        < script.index("stty -F /dev/ttyS1 raw")
    )
    (last,) = (line for line in script if "exec echo" in line)
    assert "'A=x y' sh -c 'exec echo '\"'\"'a b'\"'\"'' </dev/null >/dev/ttyS1 2>/dev/ttyS2" in last
    assert "</dev/ttyS0 >/dev/ttyS0" in shell.init_script([], {})
    subprocess.run(["sh", "-n"], input="\n".join(script), text=True, check=True)


def test_a_shell_needs_a_terminal_and_has_no_file_system() -> None:
    with pytest.raises(UserError, match="needs a terminal"):
        shell.require_terminal([])
    shell.require_terminal(["true"])
    with pytest.raises(UserError, match=r"a shell's root has no mount\.fs"):
        shell.prepare(kernel("one"), ["true"], settings={"mount.fs": "ext4"}, progress=QUIET)


def test_what_a_command_writes_is_passed_on(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    # As QEMU does: it opens its output by name, which empties a file, but not a pipe.
    script = "printf out > /proc/self/fd/1; printf err > /proc/self/fd/2; exit 7"
    assert shell._run_through_pipes(["sh", "-c", script], tmp_path, None) == 7
    assert capfdbinary.readouterr() == (b"out", b"err")


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program that `lab shell` takes for QEMU."""
    path = tmp_path / "qemu"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(exact, "find_qemu", lambda *_, **__: structs.replace(QEMU, path=str(path)))
    monkeypatch.setattr(KernelSpec, "obtain", lambda spec, *_, **__: kernel("one"))
    monkeypatch.setattr(cli_kernel, "resolve", lambda *_, **__: kernel("one").spec)
    (tmp_path / "root.cpio").write_bytes(b"archive")
    monkeypatch.setattr(shell, "prepare", lambda *_, **__: tmp_path / "root.cpio")
    monkeypatch.setattr(kvm, "require", lambda qemu, **how: "host,-arch-capabilities")
    return path


def test_a_shell_has_the_accelerator_and_the_cpu_model_found(guest: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program(guest, "printf '%s\\n' \"$@\"", "echo 7 >status")
    for accel, said in (("kvm", ["kvm", "-cpu", "host,-arch-capabilities"]), ("tcg", ["tcg", "-cpu", "max"])):
        assert main.run(["shell", "file:one", "--accel", accel, "--", "true"]) == 7
        words = capfd.readouterr().out.splitlines()
        assert words[words.index("-accel") + 1 :][:3] == said


def test_a_guest_that_ends_without_a_status_lost_its_command(guest: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program(guest, "echo 'Kernel panic' >console.log")
    assert main.run(["shell", "file:one", "--accel", "tcg", "--", "true"]) == 4
    said = capfd.readouterr().err
    assert "ended before the command did" in said and "(log: " in said


def test_a_hanging_guest_leaves_a_line_and_log(guest: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pids = tmp_path / "pids"
    program(guest, "echo 'last words' >console.log", "sleep 600 &", f'echo $! >>"{pids}"', "echo begun", "wait")
    assert main.run(["shell", "file:one", "--accel", "tcg", "--guest-timeout", "1s", "--", "true"]) == 4
    out, err = capfd.readouterr()
    complaint = err.splitlines()[-1]
    assert out == "begun\n" and err.count("lab: ") == 1
    assert complaint.startswith(f"lab: the guest of {kernel('one').spec.text} hung: it did not end within 1 s; ")
    log = Path(complaint.rpartition("(log: ")[2].removesuffix(")"))
    assert log.read_text() == "last words\n"
    assert not lives(int(pids.read_text()))
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
    assert not lives(int((tmp_path / "pid").read_text()))
    os.close(controller)
    os.close(terminal)
