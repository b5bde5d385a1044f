"""Running other programs: argument lists only, never a shell, failures turned into the lab's errors."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lab.core.errors import HostFailed

logger = logging.getLogger(__name__)


class CommandFailed(HostFailed):
    """A program exited non-zero. Callers that can say more catch it and do."""

    def __init__(self, argv: Sequence[str], status: int, stderr: str) -> None:
        last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "no message")
        super().__init__(f"{argv[0]} exited with status {status}: {last.strip()}")
        self.argv = list(argv)
        self.status = status
        self.stderr = stderr


def find_tool(name: str, *, package: str) -> str:
    """The full path of a program, or an error that names the Debian package to install."""
    path = shutil.which(name)
    if path is None:
        raise HostFailed(f"{name} is not installed", hint=f"run `make setup`, or install the package {package}")
    return path


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout_s: float | None = None,
) -> bytes:
    """Run a program to its end and give its standard output; raise `CommandFailed` on a non-zero status."""
    words = [str(word) for word in argv]
    logger.debug("run %s", words)
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=dict(env) if env is not None else None,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise HostFailed(f"{words[0]} is not installed", hint="run `make setup`") from error
    except subprocess.TimeoutExpired as error:
        raise HostFailed(f"{words[0]} did not finish within {timeout_s:g} s") from error
    if done.returncode != 0:
        raise CommandFailed(words, done.returncode, done.stderr.decode(errors="replace"))
    return done.stdout


def run_text(argv: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """`run`, with the output decoded and its trailing newline taken off."""
    return run(argv, cwd=cwd, env=env).decode(errors="replace").rstrip("\n")


def kill_tagged(variable: str, value: str) -> None:
    """Kill every process of this user that has a variable in its environment, and wait until none is left.

    Of containers that see each other's processes, only this one's: in another the same path is another folder.
    """
    deadline = time.monotonic() + 10
    while found := _tagged(f"{variable}={value}".encode()):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise HostFailed(f"process {found[0]}, left by a lab that was killed, does not end")
        time.sleep(0.02)


def interrupt_tagged(variable: str, value: str, program: str) -> None:
    """Ask every process below this one that runs a program, and has the variable in its environment, to stop."""
    for pid in _tagged(f"{variable}={value}".encode()):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().rstrip("\n") == program and _is_below(pid):
                os.kill(pid, signal.SIGTERM)


def hurry_tagged(variable: str, value: str) -> None:
    """Give every process below this one that has the variable in its environment the priority of this one.

    Only root may raise one; what is not allowed is left as it is.
    """
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    for pid in _tagged(f"{variable}={value}".encode()):
        with suppress(OSError):
            if _is_below(pid):
                os.setpriority(os.PRIO_PROCESS, pid, priority)


def _is_below(pid: int) -> bool:
    """Whether a process descends from this one."""
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text()
        pid = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
        if pid == os.getpid():
            return True
    return False


def _tagged(wanted: bytes) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        # It may be another user's, or gone by now.
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0") and (path.parent / "root").samefile("/"):
                found.append(int(path.parent.name))
    return found
