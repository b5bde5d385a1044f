"""A dask cluster on this machine: a scheduler and workers, each a process with its own store."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from lab.compare import runs
from lab.guests import exact

from . import qemu as fakeqemu

TOP = Path(__file__).resolve().parents[2]
_PATIENCE_S = 60
_REAL = {(exact, "find_qemu"): exact.find_qemu, (runs, "measure"): runs.measure}


def boot_really(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the fakes of a bisection that workers do not have: guests are booted, by a fake QEMU."""
    for (module, name), function in _REAL.items():
        monkeypatch.setattr(module, name, function)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    fakeqemu.write(folder / "qemu-system-x86_64")


@dataclass
class Cluster:
    """A scheduler, called `scheduler`, and workers. user: the user that runs them. protocol: `tcp` or `tls`."""

    folder: Path
    python: Sequence[str] = (sys.executable,)
    environment: Mapping[str, str] = field(default_factory=lambda: {**os.environ, "PYTHONPATH": str(TOP)})
    user: str | None = None
    protocol: str = "tcp"
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The argument of `--cluster`."""
        return str(msgspec.json.decode((self.folder / "scheduler.json").read_bytes())["address"])

    @property
    def options(self) -> list[str]:
        """The options of a command that uses the cluster."""
        return ["--cluster", self.address, "--share", str(self.folder / "share")]

    @property
    def runs(self) -> Path:
        """A file with a line for each guest that a worker began."""
        return self.folder / "runs-done"

    def _start(self, name: str, program: str, *argv: str, **env: str) -> None:
        home = self._make(name)
        own = {"XDG_CACHE_HOME": str(home / "cache"), "XDG_DATA_HOME": str(home / "data")}
        command = [*self.python, "-m", f"distributed.cli.{program}", "--scheduler-file",
                   str(self.folder / "scheduler.json"), *argv]  # fmt: skip
        with (home / "log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=home, env={**self.environment, **own, **env}, stdout=log, stderr=log
            )

    def _make(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir()
        if self.user is not None:
            shutil.chown(made, self.user)
        return made

    def log(self, name: str) -> str:
        return (self.folder / name / "log").read_text()

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()


def running(folder: Path, workers: int, **env: str) -> AbstractContextManager[Cluster]:
    """A cluster with some workers, called `worker-1` and so on."""
    return started(Cluster(folder), workers, **env)


@contextmanager
def started(cluster: Cluster, workers: int, **env: str) -> Iterator[Cluster]:
    folder = cluster.folder
    cluster._make("")
    cluster._make("share")
    try:
        cluster._start("scheduler", "dask_scheduler", "--port", "0", "--no-dashboard", "--host", "127.0.0.1",
                       "--protocol", cluster.protocol)  # fmt: skip
        _wait_for(lambda: (folder / "scheduler.json").exists(), cluster, "scheduler")
        names = [f"worker-{number}" for number in range(1, workers + 1)]
        for name in names:
            cluster._start(name, "dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit",
                           "0", "--name", name, FAKE_NAME=name, FAKE_RUNS=str(cluster.runs), **env)  # fmt: skip
        for name in names:
            _wait_for(lambda name=name: "Registered to" in cluster.log(name), cluster, name)  # type: ignore[misc]
        yield cluster
    finally:
        for process in cluster.processes.values():
            process.kill()
        for process in cluster.processes.values():
            process.wait()


def _wait_for(condition: Callable[[], bool], cluster: Cluster, name: str) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < until and cluster.processes[name].poll() is None, cluster.log(name)
        time.sleep(0.1)
