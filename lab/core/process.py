"""Other programs: run them, never by a shell, and find programs that a killed lab left running."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lab.core import paths
from lab.core.errors import DiskFull, HostFailed, LabError

logger = logging.getLogger(__name__)


class CommandFailed(HostFailed):
    def __init__(self, argv: Sequence[str], status: int, stderr: str, stdout: bytes = b"") -> None:
        last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "no message")
        super().__init__(f"{argv[0]} exited with status {status}: {last.strip()}")
        self.argv = list(argv)
        self.status = status
        self.stderr = stderr
        self.stdout = stdout


class TimedOut(HostFailed):
    """A program did not end in time."""


def find_tool(name: str, *, package: str) -> str:
    """The full path of a program, or an error that names the Debian package to install."""
    path = shutil.which(name)
    if path is None:
        raise HostFailed(
            f"{name} is not installed", hint=f"run `lab doctor --install`, or install the package {package}"
        )
    return path


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout_s: float | None = None,
) -> bytes:
    """Run a program to its end and return its standard output; `CommandFailed` on a non-zero status."""
    args = [str(arg) for arg in argv]
    logger.debug("run %s", args)
    try:
        done = subprocess.run(
            args,
            cwd=cwd,
            env=dict(env) if env is not None else None,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise HostFailed(f"{args[0]} is not installed", hint="run `lab doctor --install`") from error
    except subprocess.TimeoutExpired as error:
        raise TimedOut(f"{args[0]} did not finish within {timeout_s:g} s") from error
    if done.returncode != 0:
        raise CommandFailed(args, done.returncode, done.stderr.decode(errors="replace"), done.stdout)
    return done.stdout


def run_text(argv: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """`run`, with the output as text without its last newline."""
    return run(argv, cwd=cwd, env=env).decode(errors="replace").rstrip("\n")


def kill_tagged(variable: str, value: str) -> None:
    """Kill every process of this user that has a variable in its environment, and wait until none is left.

    Processes of other containers stay: there the same path is another folder.
    """
    deadline = time.monotonic() + 10
    while pids := _tagged(variable, value):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise HostFailed(f"process {pids[0]}, left by a lab that was killed, does not end")
        time.sleep(0.02)


@contextmanager
def swept(*folders: Path, variable: str = "", value: str = "") -> Iterator[None]:
    """Remove folders if this process is killed within the block; first kill processes with that value of a variable.

    Another process waits for the end of a pipe that only this one writes to. It leads a session of its own, so that it
    outlives anything that ends this one.
    """
    code = "import sys; from lab.core import process; process.sweep(*sys.argv[1:])"
    argv = [sys.executable, "-c", code, variable, value, *map(str, folders)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True, env=_importing_lab()) as sweeper:
        try:
            yield
        finally:
            with suppress(BrokenPipeError):
                sweeper.communicate(b"done")


@contextmanager
def scratch(
    prefix: str, beside: Path | None = None, *, variable: str = "", value: str = "", mode: int = 0o700
) -> Iterator[Path]:
    """A new folder that goes with the block, or with this process if it is killed within it, at any instant.

    beside: the folder that it is in, in place of that for temporary files. variable, value: as `swept` has them; the
    value is the folder without one. The log of an error that ends the block is kept.
    """
    folder = (beside or Path(tempfile.gettempdir())) / f"{prefix}{secrets.token_hex(8)}"
    with swept(folder, variable=variable, value=value or str(folder)):
        folder.mkdir(mode=mode)
        try:
            yield folder
        except LabError as error:
            if error.log and error.log.is_relative_to(folder):
                error.log = _kept(error.log)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _kept(log: Path) -> Path | None:
    """A log's copy in a folder that stays; None if there is no log, or no room for it."""
    with suppress(OSError, DiskFull):
        content = log.read_bytes()
        kept = paths.cache_dir("logs") / f"{log.stem}-{hashlib.sha256(content).hexdigest()[:12]}.log"
        kept.write_bytes(content)
        return kept
    return None


def sweep(variable: str, value: str, *folders: str) -> None:
    """Wait for the process at the other end of stdin; if it ended without a word, do the work of `swept`."""
    if sys.stdin.buffer.read(1):
        return
    if variable:
        kill_tagged(variable, value)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _importing_lab() -> dict[str, str]:
    """The environment in which another Python finds this package, wherever it was imported from."""
    found = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, found))}


def cancel_tagged(variable: str, value: str, program: str) -> None:
    """Terminate the descendants of this process that run a program with a variable in their environment."""
    for pid in _descendants(variable, value):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().rstrip("\n") == program:
                os.kill(pid, signal.SIGTERM)


def raise_priority_tagged(variable: str, value: str) -> None:
    """Give this process's priority to its descendants with a variable in their environment, if that is allowed.

    Only root may raise a priority.
    """
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    for pid in _descendants(variable, value):
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, priority)


def _descendants(variable: str, value: str) -> Iterator[int]:
    for pid in _tagged(variable, value):
        with suppress(OSError):  # it has ended
            if _is_descendant(pid):
                yield pid


def _is_descendant(pid: int) -> bool:
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text()
        pid = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
        if pid == os.getpid():
            return True
    return False


def _tagged(variable: str, value: str) -> list[int]:
    setting = f"{variable}={value}".encode()
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # another user's process, or an ended one
            if setting in path.read_bytes().split(b"\0") and (path.parent / "root").samefile("/"):
                pids.append(int(path.parent.name))
    return pids
