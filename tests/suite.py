"""`make test`, and the shards of `make test-all`: what runs, side by side as CPUs allow, each part with its times.

    python -m tests.suite test               the parts of `make test`
    python -m tests.suite all [2/8]          all shards, or one
    python -m tests.suite ci                 `make test`, the shards that the last commit's paths ask for, one in turn

`tests/suite.toml` is the table. A test that passed in a shard is not run again for the same tree, tools and packages,
so a shard that was cut off goes on where it was. Nothing that was started outlives this program.
"""

import argparse
import ctypes
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

TOP = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
STORE = Path(os.environ.get("LAB_TEST_STORE", "/var/tmp/lab-test-store"))  # noqa: S108 - shared by intent
ITEM_S = 60.0
"""The most processor seconds of a test of `make test`, and of a part that is no test."""

CI_S = float(os.environ.get("LAB_CI_MINUTES", "40")) * 60
TOOLS = ("binutils", "gcc", "libc6-dev", "make", "qemu-system-x86")
"""The packages whose versions every shard depends on."""

SPACE_NEEDED = 6 << 30
"""The least free bytes: a kernel build needs 3 GiB, a container 2, and the store grows meanwhile."""

UNUSED = "1h"
"""How long tests have not used whatever goes first from the store, if that space is not free."""

LAST_TEST_S = 60.0
"""How long the last test of a shard may go on after the deadline."""

MACHINE_LOST = 75  # EX_TEMPFAIL of sysexits.h
"""The status of tests whose emulated machine ended or hung, so that they say nothing about the lab."""

_GRACE_S = 4.0
_CUT_OFF = (124, -signal.SIGKILL)  # the statuses of timeout(1): tests ended when they were asked to, or did not
_NO_TEST = 5  # that of pytest, if all tests passed before
_CPUS = os.cpu_count() or 1
_PR_SET_CHILD_SUBREAPER = 36


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target of make. cores: the CPUs that it keeps busy. items: True if it limits its own tests.

    fine: the exit statuses that are no failure.
    """

    name: str
    cores: int = 1
    items: bool = False
    fine: tuple[int, ...] = (0,)


class Shard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tests that run together. minutes: the most, on two idle cores with a kept store.

    paths: the changes that ask for it. packages: of Debian, beside those of `make test`.
    """

    name: str
    tests: tuple[str, ...]
    marks: str
    minutes: int
    paths: tuple[str, ...]
    workers: int = 2
    packages: tuple[str, ...] = ()


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tests/suite.toml`."""

    part: tuple[Part, ...]
    shard: tuple[Shard, ...]


@dataclass
class Ended:
    """A part or a shard that ended, or was left. seconds: on the wall; cpu_s: of all its processes."""

    name: str
    status: int
    seconds: float
    cpu_s: float
    counts: dict[str, int] = field(default_factory=dict)
    note: str = ""


def load() -> Table:
    return msgspec.toml.decode(TABLE.read_bytes(), type=Table)


# ---- processes


class Stopped(BaseException):
    """A signal asks for the end."""


def _stop(number: int, _: FrameType | None) -> NoReturn:
    raise Stopped(number)


@contextmanager
def nothing_outlives() -> Iterator[None]:
    """End every process that was started meanwhile, also in a session of its own, and if its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        deadline = time.monotonic() + _GRACE_S
        _signal_all(signal.SIGTERM)
        while _reap() and time.monotonic() < deadline:
            time.sleep(0.05)
        while _reap():
            _signal_all(signal.SIGKILL)
            time.sleep(0.05)


def _reap() -> bool:
    """Collect children that ended; True if there are others."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _signal_all(number: signal.Signals) -> None:
    for process in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(process, number)


def descendants(ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may have any characters in it.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, left = [], [ancestor]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


# ---- parts


def run_all(argvs: Sequence[tuple[Part, Sequence[str]]], logs: Path) -> list[Ended]:
    """Run parts in their order, as many at a time as there are CPUs for; each prints a line when it ends."""
    waiting, running, ended = list(argvs), dict[int, tuple[Part, subprocess.Popen[bytes], float]](), list[Ended]()
    while waiting or running:
        free = _CPUS - sum(part.cores for part, _, _ in running.values())
        while waiting and (not running or waiting[0][0].cores <= free):
            part, argv = waiting.pop(0)
            free -= part.cores
            with (logs / f"{part.name}.log").open("wb") as log:
                process = subprocess.Popen(
                    argv, cwd=TOP, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
                )
            running[process.pid] = part, process, time.monotonic()
        pid, status, usage = os.wait4(-1, 0)
        if pid in running:
            part, process, began = running.pop(pid)
            process.returncode = os.waitstatus_to_exitcode(status)
            one = Ended(part.name, process.returncode, time.monotonic() - began, usage.ru_utime + usage.ru_stime)
            one.counts = counts_in(logs / f"{part.name}.log")
            if one.status in part.fine and not one.counts.get("failed"):
                one.note = "cut off" if one.status in _CUT_OFF else ""
                one.status = 0
            if not part.items and one.cpu_s > ITEM_S and not one.status:
                one.status, one.note = 1, f"took more than {ITEM_S:.0f} s of processor time"
            ended.append(one)
            show(one, logs)
    return ended


def counts_in(log: Path) -> dict[str, int]:
    """The numbers of tests in pytest's closing lines."""
    found: dict[str, int] = {}
    for line in log.read_text(errors="replace").splitlines():
        if re.search(r"^(=+ )?\d+ \w+.* in [\d.]+s", line):
            for count, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", line):
                name = "failed" if word.startswith("error") else word
                found[name] = found.get(name, 0) + int(count)
    return found


def show(one: Ended, logs: Path) -> None:
    """Print a line, and the whole log of a failure."""
    if one.status:
        print((logs / f"{one.name}.log").read_text(errors="replace"))
    words = ", ".join([*(f"{count} {word}" for word, count in one.counts.items()), *filter(None, [one.note])])
    verdict = "ok" if not one.status else f"FAILED ({one.status})"
    print(f"{one.name:<14}{verdict:<12}{one.seconds:6.0f} s{one.cpu_s:7.0f} s CPU  {words}", flush=True)


def close(ended: Sequence[Ended], began: float) -> int:
    """Print the sums; the exit status."""
    passed, failed = (sum(one.counts.get(word, 0) for one in ended) for word in ("passed", "failed"))
    failed += sum(bool(one.status) and not one.counts.get("failed") for one in ended)
    cpu_s = sum(one.cpu_s for one in ended)
    print(f"{'all':<26}{time.monotonic() - began:6.0f} s{cpu_s:7.0f} s CPU")
    print(f"{passed} passed, {failed} failed", flush=True)
    return int(failed > 0)


def test(table: Table, logs: Path) -> list[Ended]:
    os.environ["LAB_TEST_ITEM_S"] = str(ITEM_S)
    found = run_all([(part, ["make", "-s", part.name]) for part in table.part], logs)
    del os.environ["LAB_TEST_ITEM_S"]
    return found


# ---- shards


def shard(one: Shard, logs: Path, deadline: float | None = None) -> Ended:
    """Run what has not passed yet of a shard, once more if its emulated machine was lost.

    deadline: on the monotonic clock. No test starts after it, and one that goes on for a minute more is cut off.
    """
    _install(one)
    ended = _rest(one, logs, deadline)
    if ended.status == MACHINE_LOST:
        print(f"{'':<14}its emulated machine was lost: the tests that had not passed run once more", flush=True)
        first, ended = ended, _rest(one, logs, deadline)
        ended.seconds += first.seconds
        ended.cpu_s += first.cpu_s
    return ended


def _rest(one: Shard, logs: Path, deadline: float | None) -> Ended:
    record = STORE / "passed" / f"{key_of(one)[:24]}.txt"
    record.parent.mkdir(parents=True, exist_ok=True)
    before = logs / f"{one.name}.passed"
    before.write_text(record.read_text() if record.exists() else "")
    os.environ.update(LAB_TEST_PASSED=str(before), LAB_TEST_RECORD=str(record))
    os.environ.update(LAB_TEST_DEADLINE=str(deadline or ""), LAB_REQUIRE_BROWSER="1")
    pytest = [sys.executable, "-m", "pytest", "-q", "-m", one.marks, *one.tests]
    if one.workers > 1:
        pytest += ["-n", str(one.workers), "--dist", "loadfile"]
    if deadline:
        left_s = max(deadline - time.monotonic(), 0) + LAST_TEST_S
        pytest = ["timeout", "--signal=INT", f"--kill-after={_GRACE_S}", f"{left_s:.0f}", *pytest]
    (ended,) = run_all([(Part(name=one.name, cores=_CPUS, items=True, fine=(0, _NO_TEST, *_CUT_OFF)), pytest)], logs)
    if already := len(before.read_text().splitlines()):
        print(f"{'':<14}{already} of its tests had passed before", flush=True)
    return ended


def _install(one: Shard) -> None:
    if one.packages and not all(_version(name) for name in one.packages):
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        install = [*sudo, "apt-get", "install", "-q", "-y", "--no-install-recommends", *one.packages]
        subprocess.run([*sudo, "apt-get", "update", "-q"], check=False, stdout=subprocess.DEVNULL)
        if subprocess.run(install, check=False, stdout=subprocess.DEVNULL).returncode:
            print(f"{one.name}: Debian has not all of {' '.join(one.packages)} here: their tests are skipped")


def _version(package: str) -> str:
    argv = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout if done.stdout.startswith("installed") else ""


def key_of(one: Shard) -> str:
    """The key of what a shard's tests follow from: the tree, the tools' versions, the kernels that are offered."""
    digest = hashlib.sha256(repr(one).encode())
    for name in sorted(set(_git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"))):
        if name and (TOP / name).is_file():
            digest.update(name.encode() + hashlib.sha256((TOP / name).read_bytes()).digest())
    for package in (*TOOLS, *one.packages):
        digest.update(f"{package} {_version(package)}".encode())
    for lists in sorted((STORE / ".cache/kernel-ab-lab").glob("packages*/lists/*_Packages*")):
        digest.update(hashlib.sha256(lists.read_bytes()).digest())
    return digest.hexdigest()


def chosen(table: Table, text: str) -> list[Shard]:
    """The shards that `2/8`, `2`, a name, or nothing for all of them stands for."""
    if not text:
        return list(table.shard)
    number, _, of = text.partition("/")
    names = [one.name for one in table.shard]
    if text in names:
        return [table.shard[names.index(text)]]
    if not number.isdigit() or not 1 <= int(number) <= len(names) or (of and of != str(len(names))):
        sys.exit(f"there is no shard {text}: there are {len(names)}, 1/{len(names)} to {len(names)}/{len(names)}")
    return [table.shard[int(number) - 1]]


# ---- a run for a commit


def asked_for(table: Table, paths: Sequence[str]) -> list[Shard]:
    return [one for one in table.shard if any(path.startswith(one.paths) for path in paths)]


def in_turn(table: Table, asked: Sequence[Shard], commit: str) -> list[Shard]:
    """One more shard, which the commit's id chooses."""
    others = [one for one in table.shard if one not in asked]
    return others[int(commit[:8], 16) % len(others) :][:1] if others else []


def ci(table: Table, logs: Path) -> list[Ended]:
    """`make test`, then shards as long as there is time; says which ran and which are left."""
    deadline = time.monotonic() + CI_S
    ended = test(table, logs)
    commit = _git("rev-parse", "HEAD").strip()
    asked = asked_for(table, _git("log", "-1", "--first-parent", "-m", "--name-only", "--format=").splitlines())
    wanted = [*asked, *in_turn(table, asked, commit)]
    print(f"{commit[:12]} asks for the shards: {_names(asked)}; in turn: {_names(wanted[len(asked) :])}", flush=True)
    left = []
    for one in wanted:
        if time.monotonic() < deadline - 60:
            ended.append(shard(one, logs, deadline))
        else:
            left.append(one)
    others = [one for one in table.shard if one not in wanted]
    print(f"left for want of time: {_names(left)}; not asked for: {_names(others)}", flush=True)
    return ended


def _names(shards: Sequence[Shard]) -> str:
    return ", ".join(one.name for one in shards) or "none"


def _git(*argv: str) -> str:
    return subprocess.run(["git", *argv], cwd=TOP, capture_output=True, text=True, check=True).stdout


def no_room() -> str:
    """The reason not to begin: a full disk fails many tests after many minutes. Empty if there is room, or room made.

    Each change of an image or a build leaves the one before it in the store.
    """
    there = next(folder for folder in (STORE, *STORE.parents) if folder.exists())
    if (free := shutil.disk_usage(there).free) < SPACE_NEEDED and there == STORE:
        home = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")} | {"HOME": str(STORE)}
        subprocess.run([sys.executable, "-m", "lab", "gc", "--older-than", UNUSED], cwd=TOP, env=home, check=False)
        free = shutil.disk_usage(there).free
    if free >= SPACE_NEEDED:
        return ""
    return f"{there}: {free >> 20} MiB free, the tests need {SPACE_NEEDED >> 20}; `make clean-store` drops what is kept"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("test", "all", "ci"))
    parser.add_argument("shard", nargs="?", default="")
    options = parser.parse_args()
    if why := no_room():
        print(why, file=sys.stderr)
        return 1
    table, began = load(), time.monotonic()
    shards = chosen(table, options.shard) if options.what == "all" else []
    run = os.environ["LAB_TEST_RUN"] = uuid.uuid4().hex
    logs = TOP / "build" / "test-logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    try:
        with nothing_outlives():
            if options.what == "test":
                ended = test(table, logs)
            elif options.what == "ci":
                ended = ci(table, logs)
            else:
                ended = [shard(one, logs) for one in shards]
    except Stopped as stopped:
        print(f"stopped by {signal.Signals(stopped.args[0]).name}: everything that ran was ended", file=sys.stderr)
        return 128 + int(stopped.args[0])
    finally:
        shutil.rmtree(f"/var/tmp/lab-test-{run}", ignore_errors=True)  # noqa: S108 - nobody can guess it
    return close(ended, began)


if __name__ == "__main__":
    sys.exit(main())
