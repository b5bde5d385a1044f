"""`make kills`: kills -9 of the lab at random instants of each of its long commands, and what comes after.

A round starts a command and kills it; the same command goes on and is killed again, until it ends before its instant.
The first instants of a command are spread evenly over the time that it takes unbroken, so no phase of it is left out.
After each kill no process of the lab may be left; after each round the answer has to be that of an unbroken run, and
there may be no file that the unbroken run did not leave. Exits 1 otherwise.

All happens in homes of its own (build/kills), with copies of the user's kernels, images and trees. Those of the
default tree's two first commits have to be built, and of those that are killed while they build one each round.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.core import paths
from lab.core.git import Repo

OLD, NEW, FIX = "efa7df3e3bb5^", "efa7df3e3bb5", "d4148aeab412"
CASE, CHEAP = "alloc-burst:layout-4632k", "alloc-burst:layout-512k"
RESULT, BUNDLE = "result", "bundle"
PLAN = """\
schema = 1
name = "kills"
workloads = ["{case}"]

[[branch]]
tree = "kills"
branch = "main"
"""

# A night on a date of its own.
NIGHT = """\
import sys
from unittest import mock
from lab.cli import main
from lab.nightly import run
with mock.patch.object(run, "today", lambda: sys.argv[1]):
    sys.exit(main.run(sys.argv[2:]))
"""

VOLATILE = {
    "seal",
    "started",
    "ended",
    "seconds",
    "result",
    "reproduce",
    "guest_seconds",
    "reports",
    "updated",
    "cpu_s",
    "wall_s",
}
"""Fields that say when, where and how fast, not what."""


MOST_IN_A_ROUND = 5


@dataclass(frozen=True, kw_only=True)
class Home:
    """The folders of one user of the lab. set_aside: the data before each round."""

    top: Path

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
    def kernels(self) -> Path:
        return self.cache / paths.cache_dir().name / "kernels"

    def environment(self) -> dict[str, str]:
        own = {"XDG_CACHE_HOME": str(self.cache), "XDG_DATA_HOME": str(self.data), "LAB_MODE": "exact"}
        return {**os.environ, **own}

    def run(self, argv: Sequence[str], kill_after_s: float | None = None) -> bool:
        """Run a command to its end, or kill it; True if it ended. Exits where it failed."""
        with (self.top / "output.log").open("w+") as log:
            process = subprocess.Popen(argv, env=self.environment(), stdout=log, stderr=log, cwd=self.top)
            try:
                status = process.wait(timeout=kill_after_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return False
            if status:
                log.seek(0)
                sys.exit(f"kills: {' '.join(argv)} exited with status {status}:\n{log.read()}")
        return True

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
        """All files but logs; results by no name of their own."""
        found = {str(path.relative_to(self.top)) for path in self.top.rglob("*") if path.is_file()}
        names = (re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "ID", name) for name in found)
        return {name for name in names if "/logs/" not in name and "/ccache/" not in name}


@dataclass(frozen=True, kw_only=True)
class Task:
    """A command that is killed. again: what goes on with it. prepare: called before each round."""

    name: str
    argv: Callable[[Home], Sequence[str]]
    again: Callable[[Home], Sequence[str]]
    answer: Callable[[Home], Any]
    prepare: Callable[[Home], None]


@dataclass(kw_only=True)
class Count:
    """What was done to a task, and what was wrong."""

    kills: int = 0
    rounds: int = 0
    wrong: list[str] = field(default_factory=list)


def main() -> int:
    """Kill, go on, compare, print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=Path("build/kills"), metavar="DIR", help="(%(default)s)")
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="of each command (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the instants (%(default)s)")
    parser.add_argument("tasks", nargs="*", help=f"only these ({', '.join(TASKS)})")
    asked = parser.parse_args()
    home = _home(asked.into.resolve())
    wrong = 0
    for name in asked.tasks or TASKS:
        count = _kill(TASKS[name], home, asked.kills, random.Random(asked.seed))  # noqa: S311 - not a secret
        _say(f"{name}: {count.kills} kills, {count.rounds} answers, {len(count.wrong)} wrong", *count.wrong)
        wrong += len(count.wrong)
    return 1 if wrong else 0


def _kill(task: Task, home: Home, kills: int, rng: random.Random) -> Count:
    task.prepare(home)
    home.run(task.argv(home))  # what it makes once, in the store, is there from now on
    task.prepare(home)
    started = time.monotonic()
    home.run(task.argv(home))
    takes_s = time.monotonic() - started
    answer, files = task.answer(home), home.files()
    _say(f"{task.name}: unbroken {takes_s:.1f} s")
    count = Count()
    while count.kills < kills:
        task.prepare(home)
        instant_s: float | None = takes_s * (count.kills + rng.random()) / kills
        argv, killed = task.argv(home), 0
        while not home.run(argv, instant_s):
            count.kills, killed = count.kills + 1, killed + 1
            if left := _left(home):
                count.wrong.append(f"after {instant_s:.2f} s of {' '.join(argv)}: still running: {left}")
            # On a machine that has become slower, no try would be long enough.
            instant_s = takes_s * rng.uniform(0, 1.5) if killed < MOST_IN_A_ROUND else None
            argv = task.again(home)
        count.rounds += 1
        _say(f"{task.name}: {count.kills} kills, {count.rounds} answers, {len(count.wrong)} wrong")
        if (found := task.answer(home)) != answer:
            count.wrong.append(f"another answer: {_difference(answer, found)}")
        if litter := home.files() - files:
            count.wrong.append(f"litter: {sorted(litter)[:5]}")
            files |= litter
    return count


def _left(home: Home) -> list[str]:
    """What still runs some time after a kill."""
    end = time.monotonic() + 20
    while (left := home.processes()) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def _home(top: Path) -> Home:
    home = Home(top=top)
    for source, folder in ((paths.cache_dir(), home.cache), (paths.data_dir(), home.data)):
        names = ("kernels", "images", "plugin", "ccache") if folder == home.cache else ("trees",)
        for name in names:
            if (source / name).is_dir() and not (folder / source.name / name).exists():
                (folder / source.name).mkdir(parents=True, exist_ok=True)
                # An image has devices in it, which shutil would read.
                subprocess.run(["cp", "-a", source / name, folder / source.name / name], check=True)
    home.work.mkdir(parents=True, exist_ok=True)
    return home


def _lab(*words: str) -> list[str]:
    return [sys.executable, "-m", "lab", *words]


def _empty(home: Home) -> None:
    shutil.rmtree(home.work, ignore_errors=True)
    home.work.mkdir()


def _ask(*words: str) -> Callable[[Home], list[str]]:
    return lambda home: _lab(*words, "--result", str(home.work / RESULT))


def _resume(start: Callable[[Home], list[str]], *words: str) -> Callable[[Home], list[str]]:
    """Go on with a result, if its plan was stored."""
    return lambda home: (
        _lab(*words, str(home.work / RESULT)) if (home.work / RESULT / "plan.json").exists() else start(home)
    )


def _document(home: Home) -> Any:
    return _plain(json.loads((home.work / RESULT / "result.json").read_bytes()))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if key not in VOLATILE}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _difference(expected: Any, found: Any, where: str = "") -> str:
    """The first place in which two documents differ."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        return next(
            (_difference(expected[k], found[k], f"{where}.{k}") for k in expected if expected[k] != found[k]), ""
        )
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return next((_difference(one, other, f"{where}[{at}]") for at, (one, other) in pairs if one != other), "")
    return f"{where}: {str(expected)[:200]} is now {str(found)[:200]}"


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# ---- the commands

_AB = _ask("ab", "--base", OLD, "--test", NEW, "-w", CHEAP, "--seeds", "1")
_MATRIX = _ask("matrix", "--kernel", OLD, "--kernel", NEW, "-w", CHEAP, "--seeds", "1")
_BISECT = _ask("bisect", "--old", OLD, "--new", FIX, "-w", CASE)


def _measured(home: Home) -> None:
    """A result to make bundles of, once; without a bundle."""
    if not (home.work / RESULT / "result.json").exists():
        _empty(home)
        home.run(_AB(home))
    shutil.rmtree(home.work / BUNDLE, ignore_errors=True)


def _bundle(home: Home) -> list[str]:
    return _lab("report", str(home.work / RESULT), "--format", "bundle", "--output", str(home.work / BUNDLE))


def _of_the_build(home: Home) -> list[Path]:
    return [path.parent for path in home.kernels.glob("*/build.json") if b"SLUB_DEBUG" in path.read_bytes()]


def _unbuilt(home: Home) -> None:
    """No such kernel in the store, and nothing of its build but the compiler's cache."""
    _empty(home)
    for folder in _of_the_build(home):
        shutil.rmtree(folder)
    shutil.rmtree(home.kernels.parent / "work", ignore_errors=True)


def _build(_home: Home) -> list[str]:
    return _lab("kernel", "build", f"{NEW}%CONFIG_SLUB_DEBUG=y")


def _built(home: Home) -> dict[str, str]:
    (folder,) = _of_the_build(home)
    return {name: digest for name, digest in _digests(folder).items() if name != "build.json"}


def _night_before(home: Home) -> None:
    """A clone in which the culprit has just arrived, and the night before that."""
    kept, upstream, data = home.top / "night-before", home.top / "upstream.git", home.data / paths.data_dir().name
    tree = data / "trees" / "default.git"
    if not kept.exists():
        _empty(home)
        shutil.rmtree(upstream, ignore_errors=True)
        Repo(tree).git("clone", "--quiet", "--bare", str(tree), str(upstream))
        # as stored in the default tree
        commits = Repo(tree).git("log", "--reverse", "--format=%H", "HEAD").split()
        Repo(upstream).git("update-ref", "refs/heads/main", commits[0])
        Repo(upstream).git("config", "uploadpack.allowFilter", "true")
        home.run(_lab("tree", "add", f"file://{upstream}", "--name", "kills"))
        (home.top / "nightly.toml").write_text(PLAN.format(case=CASE))
        home.run(_night("2026-11-01", home))
        Repo(upstream).git("update-ref", "refs/heads/main", commits[1])
        kept.mkdir()
        for name in ("nightly", "results", "history"):
            shutil.copytree(data / name, kept / name)
    _empty(home)
    for name in ("nightly", "results", "history"):
        shutil.rmtree(data / name, ignore_errors=True)
        shutil.copytree(kept / name, data / name)


def _night(date: str, home: Home) -> list[str]:
    return [sys.executable, "-c", NIGHT, date, "nightly", "run", "--plan", str(home.top / "nightly.toml")]


def _second_night(home: Home) -> list[str]:
    return _night("2026-11-02", home)


def _nights(home: Home) -> Any:
    found = sorted((home.data / paths.data_dir().name / "nightly").rglob("nights/*.json"))
    text = [re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "ID", path.read_text()) for path in found]
    return [_plain(json.loads(one)) for one in text]


TASKS = {
    task.name: task
    for task in (
        Task(name="ab", argv=_AB, again=_resume(_AB, "ab", "--resume"), answer=_document, prepare=_empty),
        Task(
            name="matrix", argv=_MATRIX, again=_resume(_MATRIX, "matrix", "--resume"), answer=_document, prepare=_empty
        ),
        Task(name="bisect", argv=_BISECT, again=_resume(_BISECT, "bisect", "resume"), answer=_document, prepare=_empty),
        Task(
            name="bundle",
            argv=_bundle,
            again=_bundle,
            answer=lambda home: _digests(home.work / BUNDLE),
            prepare=_measured,
        ),
        Task(name="nightly", argv=_second_night, again=_second_night, answer=_nights, prepare=_night_before),
        Task(name="build", argv=_build, again=_build, answer=_built, prepare=_unbuilt),
    )
}


def _say(*lines: str) -> None:
    print("\n".join(lines), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
