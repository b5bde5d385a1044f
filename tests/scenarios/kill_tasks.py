"""What `make kills` kills: a home, the commands in it, and how each goes on, with stand-ins."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import re
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lab
from lab.cli import main as lab_main
from lab.core import paths, records
from lab.core.git import Repo
from lab.nightly import run

from ..fakes import bisection as fakebisect
from ..fakes import build as fakebuild
from ..fakes import standin
from ..fakes.kernel import git

TOP = Path(__file__).resolve().parents[2]
STAND_IN, REAL = "stand-in", "real"
"""Which lab a command is of: its first word."""

RESULT, BUNDLE, ARCHIVE = "result", "bundle", "bundle.tar"
BEFORE, TONIGHT = "2026-11-01", "2026-11-02"
PLAN = """\
schema = 1
name = "kills"
workloads = ["{workload}"]

[[branch]]
tree = "kills"
branch = "main"
"""

VOLATILE = {
    "seal", "started", "ended", "finished", "seconds", "result", "reproduce", "guest_seconds", "reports", "updated",
    "cpu_s", "wall_s", "build_s", "run_s",
}  # fmt: skip
"""Fields that say when, where and how fast, not what."""


@dataclass(frozen=True, kw_only=True)
class Home:
    """The folders of one user of the lab."""

    top: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return self.top / "cache"

    @property
    def data(self) -> Path:
        return self.top / "data"

    @property
    def work(self) -> Path:
        return self.top / "work"

    @property
    def store(self) -> Path:
        """The lab's own data."""
        return self.data / paths.data_dir().name

    @property
    def kernels(self) -> Path:
        return self.cache / paths.cache_dir().name / "kernels"

    def empty(self) -> None:
        """Have an empty folder for what the commands write, and no temporary file."""
        for folder in (self.work, self.top / "tmp"):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)

    def environment(self) -> dict[str, str]:
        own = {
            "XDG_CACHE_HOME": str(self.cache), "XDG_DATA_HOME": str(self.data), "LAB_MODE": "exact",
            "TMPDIR": str(self.top / "tmp"), "PYTHONPATH": str(TOP),
        }  # fmt: skip
        return {**os.environ, **own, **self.variables}

    def run(self, argv: Sequence[str], kill_after_s: float | None = None, **variables: str) -> bool:
        """Run a command to its end, or kill it; True if it ended. Exits where it failed."""
        with (self.top / "output.log").open("w+") as log:
            env = {**self.environment(), **variables}
            process = Forked(argv, env, log.fileno(), self.top)
            status = process.wait(kill_after_s)
            if status:
                log.seek(0)
                sys.exit(f"kills: {' '.join(argv)} exited with status {status}:\n{log.read()}")
        return status is not None

    def processes(self) -> list[str]:
        """The command lines of processes that this home's labs started."""
        tag = f"XDG_DATA_HOME={self.data}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if tag in (path / "environ").read_bytes().split(b"\0"):
                    found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return [one for one in found if one]

    def files(self) -> set[str]:
        """All files but logs and what `lab gc` sweeps; results by no name of their own."""
        found = {str(path.relative_to(self.top)) for path in self.top.rglob("*") if path.is_file()}
        kept = (name for name in found if not records.LEFTOVER.fullmatch(Path(name).name))
        names = (re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "ID", name) for name in kept)
        return {name for name in names if "/logs/" not in name and "/ccache/" not in name}


class Forked:
    """A command of Python's that runs in a copy of this process, which has all of its modules already.

    So a kill costs a tenth of the processor time. Nothing is written before that, which would be left out.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: int, cwd: Path) -> None:
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(env)
            os._exit(_status_of(argv))

    def wait(self, kill_after_s: float | None) -> int | None:
        """The exit status; None where the time was over, and it was killed."""
        descriptor = os.pidfd_open(self._pid)
        try:
            ended, _, _ = select.select([descriptor], [], [], kill_after_s)
        finally:
            os.close(descriptor)
        if not ended:
            os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status) if ended else None


def _status_of(argv: Sequence[str]) -> int:
    """Run one of this file's commands here; the status that it would exit with. FAKE_TODAY is the date of a night."""
    program, *sys.argv = argv
    if today := os.environ.get("FAKE_TODAY"):
        setattr(run, "today", lambda: today)  # noqa: B010 - mypy takes a plain one for a mistake
    try:
        (standin if program == STAND_IN else lab_main).main()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except BaseException:
        traceback.print_exc()
        return 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def load_all() -> None:
    """Import all of the lab."""
    for module in pkgutil.walk_packages(lab.__path__, "lab."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A command that is killed. again: what goes on with it. prepare: called before each round."""

    name: str
    argv: Callable[[Home], Sequence[str]]
    again: Callable[[Home], Sequence[str]]
    answer: Callable[[Home], Any]
    prepare: Callable[[Home], None]


# ---- kernels and guests


class StandInLab:
    """Kernels that are files with a number in them, and a QEMU that reads it; builds of a small tree."""

    words = (STAND_IN, "lab")
    variables: Mapping[str, str] = {"FAKE_RUN_S": "0.05"}
    workload = "./mine:large"

    def make(self, home: Home) -> None:
        """The trees and the workload."""
        if not (home.top / "linux").exists():
            (home.top / "linux").mkdir(parents=True)
            fakebisect.line(home.top / "linux", [100.0] * 12 + [60.0] * 8)
            fakebuild.make_buildable(home.top / "buildable")
        fakebisect.write_workload(home.top / "mine")

    def _commits(self, home: Home) -> list[str]:
        return git(home.top / "linux", "rev-list", "--reverse", "HEAD").split()

    def ab(self, home: Home) -> list[str]:
        old, *_, new = self._commits(home)
        return ["--tree", "linux", "--base", old, "--test", new, "-w", "./mine", "--seeds", "4"]

    def matrix(self, home: Home) -> list[str]:
        old, *_, new = self._commits(home)
        return ["--tree", "linux", "--kernel", old, "--kernel", new, "-w", "./mine", "--seeds", "3"]

    def bisect(self, home: Home) -> list[str]:
        old, *_, new = self._commits(home)
        return ["--tree", "linux", "--old", old, "--new", new, "-w", self.workload]

    def build(self, home: Home) -> list[str]:
        return [REAL, "lab", "kernel", "build", "--tree", "buildable", "HEAD%CONFIG_SLUB_DEBUG=y"]

    def branch(self, home: Home) -> tuple[Path, str, str]:
        commits = self._commits(home)
        return home.top / "linux", commits[9], commits[-1]


# ---- the commands


def tasks(subject: StandInLab) -> dict[str, Task]:
    """The commands by name."""
    ab, matrix, bisect = (_into_result(subject, name) for name in ("ab", "matrix", "bisect"))
    night = _night(subject)
    bundle, packed = (_bundle(subject, name) for name in (BUNDLE, ARCHIVE))
    found = (
        Task(name="ab", argv=ab, again=_resume(subject, ab, "ab", "--resume"), answer=_document, prepare=Home.empty),
        Task(
            name="matrix", argv=matrix, again=_resume(subject, matrix, "matrix", "--resume"), answer=_document,
            prepare=Home.empty,
        ),
        Task(
            name="bisect", argv=bisect, again=_resume(subject, bisect, "bisect", "resume"), answer=_document,
            prepare=Home.empty,
        ),
        Task(name="bundle", argv=bundle, again=_unless(BUNDLE, bundle), answer=_bundled, prepare=_measured(ab)),
        Task(name="archive", argv=packed, again=_unless(ARCHIVE, packed), answer=_bundled, prepare=_measured(ab)),
        Task(name="nightly", argv=night, again=night, answer=_nights, prepare=_night_before(subject)),
        Task(name="build", argv=subject.build, again=subject.build, answer=_built, prepare=_unbuilt),
    )  # fmt: skip
    return {task.name: task for task in found}


def _into_result(subject: StandInLab, name: str) -> Callable[[Home], list[str]]:
    return lambda home: [*subject.words, name, *getattr(subject, name)(home), "--result", str(home.work / RESULT)]


def _resume(subject: StandInLab, start: Callable[[Home], list[str]], *words: str) -> Callable[[Home], list[str]]:
    """Go on with a result, if its plan was stored."""
    return lambda home: (
        [*subject.words, *words, str(home.work / RESULT)]
        if (home.work / RESULT / "plan.json").exists()
        else start(home)
    )  # fmt: skip


def _document(home: Home) -> Any:
    return _plain(json.loads((home.work / RESULT / "result.json").read_bytes()))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if key not in VOLATILE}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _measured(ab: Callable[[Home], list[str]]) -> Callable[[Home], None]:
    """A result to make bundles of, once; without a bundle."""

    def prepare(home: Home) -> None:
        if not (home.work / RESULT / "result.json").exists() or _document(home)["schema"] != "lab.ab/1":
            home.empty()
            home.run(ab(home))
        shutil.rmtree(home.work / BUNDLE, ignore_errors=True)
        (home.work / ARCHIVE).unlink(missing_ok=True)

    return prepare


def _bundle(subject: StandInLab, name: str) -> Callable[[Home], list[str]]:
    words = ("--format", "bundle", "--output")
    return lambda home: [*subject.words, "report", str(home.work / RESULT), *words, str(home.work / name)]


def _unless(name: str, start: Callable[[Home], list[str]]) -> Callable[[Home], list[str]]:
    """The version, where the kill came after the output had its name: a second bundle in its place is refused."""
    return lambda home: [REAL, "lab", "--version"] if (home.work / name).exists() else start(home)


def _bundled(home: Home) -> dict[str, str]:
    """The bundle: a folder's files, or the one file."""
    return {name: digest for name, digest in _digests(home.work).items() if not name.startswith(f"{RESULT}/")}


def _of_the_build(home: Home) -> list[Path]:
    return [path.parent for path in home.kernels.glob("*/build.json") if b"SLUB_DEBUG" in path.read_bytes()]


def _unbuilt(home: Home) -> None:
    """No such kernel in the store, and nothing of its build but the compiler's cache."""
    home.empty()
    for folder in _of_the_build(home):
        shutil.rmtree(folder)
    shutil.rmtree(home.kernels.parent / "work", ignore_errors=True)


def _built(home: Home) -> dict[str, Any]:
    """The kernel's files. Of its log the lines alone: make starts several compilers at once, in any order."""
    (folder,) = _of_the_build(home)
    log = {"build.log": sorted((folder / "build.log").read_text().splitlines())}
    return {name: digest for name, digest in _digests(folder).items() if name != "build.json"} | log


def _night(subject: StandInLab) -> Callable[[Home], list[str]]:
    return lambda home: [*subject.words, "nightly", "run", "--plan", str(home.top / "nightly.toml")]


def _night_before(subject: StandInLab) -> Callable[[Home], None]:
    """A clone in which the culprit has just arrived, and the night before that."""
    parts = ("nightly", "results", "history")

    def prepare(home: Home) -> None:
        kept, upstream = home.top / "night-before", home.top / "upstream.git"
        if not kept.exists():
            home.empty()
            shutil.rmtree(upstream, ignore_errors=True)
            repository, before, after = subject.branch(home)
            Repo(repository).git("clone", "--quiet", "--bare", str(repository), str(upstream))
            Repo(upstream).git("update-ref", "refs/heads/main", before)
            Repo(upstream).git("config", "uploadpack.allowFilter", "true")
            home.run([*subject.words, "tree", "add", f"file://{upstream}", "--name", "kills"])
            (home.top / "nightly.toml").write_text(PLAN.format(workload=subject.workload))
            home.run(_night(subject)(home), FAKE_TODAY=BEFORE)
            Repo(upstream).git("update-ref", "refs/heads/main", after)
            kept.mkdir()
            for name in parts:
                shutil.copytree(home.store / name, kept / name)
        home.empty()
        for name in parts:
            shutil.rmtree(home.store / name, ignore_errors=True)
            shutil.copytree(kept / name, home.store / name)

    return prepare


def _nights(home: Home) -> Any:
    found = sorted((home.store / "nightly").rglob("nights/*.json"))
    text = [re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "ID", path.read_text()) for path in found]
    return [_plain(json.loads(one)) for one in text]
