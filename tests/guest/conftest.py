"""Real guests in exact mode, run the way a user would: the wheel, installed away from the checkout.

When the tests run as root, the lab runs as `nobody`: images, builds and exact runs must not need privileges.
Every run has a home of its own. Kernels, images, trees and downloads are found by content, so they cannot be stale:
they are kept in a store, `LAB_TEST_STORE`, which the home links to. `test_from_zero.py` has a home without it.
"""

import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lab.core.git import Repo

from ..conftest import run_home
from ..fakelinux.history import History, write

CHECKOUT = Path(__file__).resolve().parents[2]
BASE, TEST, FIX = "efa7df3e3bb5^", "efa7df3e3bb5", "d4148aeab412"
OLD, NEW = "deb:6.1", "deb:6.12"
"""Packages, which nobody has to build: for all tests that are not about a commit."""

CACHE, DATA = Path(".cache/kernel-ab-lab"), Path(".local/share/kernel-ab-lab")
STORE = Path(os.environ.get("LAB_TEST_STORE", "/var/tmp/lab-test-store"))  # noqa: S108 - the name is shared by intent
STORED = (
    *(CACHE / name for name in ("ccache", "debs", "images", "kconfig", "kernels", "packages", "qemu", "requests")),
    *(CACHE / name for name in ("snapshots", "vmlinux", "work")),
    DATA / "trees",
)
"""The folders of a home that the store has: what is in them is found by content."""


@dataclass(frozen=True)
class Lab:
    """The installed command, in its own home."""

    home: Path
    python: Path
    user: str = "nobody"

    def as_user(self, *words: str) -> list[str]:
        """The argument list that runs a program as the ordinary user whose home this is."""
        if os.geteuid() != 0:
            return list(words)
        user = pwd.getpwnam(self.user)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--", *words]

    def command(self, *arguments: str) -> list[str]:
        return self.as_user(str(self.python), "-m", "lab", *arguments)

    def environment(self) -> dict[str, str]:
        """The user's environment: nothing of the checkout in it."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LAB_", "XDG_", "PYTHON", "MAKE"))}
        # What is tested is the same everywhere, also where KVM works.
        return {**kept, "LAB_MODE": "exact", "HOME": str(self.home), "LOGNAME": self.user, "USER": self.user}

    def run(self, *arguments: str, timeout_s: float = 1800) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), cwd="/", env=self.environment(), capture_output=True, text=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip

    def json(self, *arguments: str, timeout_s: float = 1800) -> Any:
        """Run a command that must succeed, and give its JSON document."""
        done = self.run(*arguments, "--json", timeout_s=timeout_s)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def ab(self, base: str, test: str, *more: str) -> Any:
        return self.json("ab", "--base", base, "--test", test, *more)

    def refused(self, status: int, *arguments: str) -> str:
        """Run a command that must fail with a status and one clear line; gives that line."""
        done = self.run(*arguments)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        complaints = [line for line in done.stderr.splitlines() if line.startswith("lab: ")]
        assert len(complaints) == 1, done.stderr
        return complaints[0]

    def start(self, *arguments: str, **how: Any) -> subprocess.Popen[str]:
        # A shell without job control starts what it puts in the background deaf to Ctrl-C, the tests too.
        argv = ["env", "--default-signal=INT", *self.command(*arguments)]
        quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
        return subprocess.Popen(argv, cwd="/", env=self.environment(), stdout=quiet, stderr=pipe, text=True, **how)

    def stop_when(self, event: Callable[[], object], stop: signal.Signals, *arguments: str) -> tuple[int, str]:
        """Start a command, signal it once something has happened; gives status and what it said."""
        process = self.start(*arguments)
        deadline = time.monotonic() + 600
        while not event():
            assert time.monotonic() < deadline, "what the test waits for never happened"
            if process.poll() is not None:
                raise AssertionError(process.communicate()[1])
            time.sleep(0.05)
        process.send_signal(stop)
        _, said = process.communicate(timeout=600)
        return process.returncode, said


def _install(home: Path) -> None:
    """The wheel and its dependencies in a virtual environment of the user's."""
    venv = home / "venv"
    python = venv / "bin" / "python3"
    if not python.exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(venv)], check=True)
    site = next((venv / "lib").glob("python3*")) / "site-packages"
    # The pinned dependencies are those of the environment that runs the tests; downloading them again tests nothing.
    ours = next((Path(sys.prefix) / "lib").glob("python3*")) / "site-packages"
    left = shutil.ignore_patterns("_editable*", "*kernel_ab_lab*", "*mypy*", "playwright*", "sphinx*", "babel*")
    shutil.copytree(ours, site, dirs_exist_ok=True, symlinks=True, ignore=left, copy_function=_link)
    programs = [one for name in ("ansible*", "vng", "virtme-run") for one in (Path(sys.prefix) / "bin").glob(name)]
    for script in programs:
        text = script.read_text()
        (venv / "bin" / script.name).write_text(text.replace(text.splitlines()[0], f"#!{python}", 1))
        (venv / "bin" / script.name).chmod(0o755)
    wheels = home / "wheels"
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(CHECKOUT)], check=True)
    wheel = next(wheels.glob("*.whl"))
    subprocess.run([*pip, "install", "--no-deps", "--upgrade", "--target", str(site), str(wheel)], check=True)
    shutil.rmtree(wheels)
    # The user cannot: else each command would compile what it imports, for minutes where the processor is emulated.
    subprocess.run([str(python), "-m", "compileall", "-q", str(site)], stdout=subprocess.DEVNULL, check=False)


def _link(source: str, target: str) -> None:
    """Have a file in two folders, or copy it to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def link_store(home: Path, user: str = Lab.user) -> None:
    """Link a home to the store, so that what other runs have made is there."""
    made = []
    for name in STORED:
        link, target = home / name, STORE / name
        for folder in (target, link.parent):
            made += [one for one in (folder, *folder.parents) if not one.exists()]
            folder.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target)
    if os.geteuid() == 0:
        for folder in (home, *made):
            shutil.chown(folder, user)


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The installed lab, as an ordinary user with a home of this run; installed by the process that comes first."""
    home = run_home()
    home.mkdir(exist_ok=True)
    home.chmod(0o755)
    with (home / "installed").open("a+") as run:
        fcntl.flock(run, fcntl.LOCK_EX)
        run.seek(0)
        if not run.read():
            link_store(home)
            _install(home)
            run.write("yes")
    return Lab(home=home, python=home / "venv" / "bin" / "python3")


@pytest.fixture
def open_folder(lab: Lab) -> Path:
    return new_folder(lab)


def new_folder(lab: Lab) -> Path:
    """An empty folder that the lab's user can read and write, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(dir=lab.home))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder, lab.user)
    return folder


@contextmanager
def elsewhere(lab: Lab, user: str = Lab.user) -> Iterator[Lab]:
    """The installed lab in an empty home of a user's, without the store."""
    home = Path(tempfile.mkdtemp(prefix="lab-elsewhere-", dir="/var/tmp"))
    home.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(home, user)
    yield replace(lab, home=home, user=user)
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def qemu_of_turns(lab: Lab) -> None:
    """A QEMU that can end turns of vCPUs, which the lab unpacks if the host's own cannot."""
    done = lab.run("doctor", "--install", "--json")
    assert done.stdout, done.stderr
    (found,) = [one for one in json.loads(done.stdout)["findings"] if one["name"] == "contention"]
    if found["state"] != "ok":
        pytest.skip(found["text"])


@pytest.fixture(scope="session")
def story(lab: Lab) -> Lab:
    """The lab with the kernels of the story: one real build, two incremental ones."""
    done = lab.run("kernel", "build", BASE, TEST, FIX)
    assert done.returncode == 0, done.stderr
    return lab


def plant(story: Lab, layout: str, branch: str, start: str | None = None) -> History:
    """Write a history as a branch of the story's tree, anew if it is there. start: by default the story's base."""
    git_dir = story.home / ".local/share/kernel-ab-lab/trees/default.git"
    owner, repo = git_dir.stat(), Repo(git_dir)
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patched:
        # The tree is the lab's user's, and labs of other tests work in it meanwhile: it stays theirs.
        Path(home, ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
        patched.setenv("HOME", home)
        history = write(layout, Path(home, "planted.git"), repo, branch=branch, start=start)
        # Its commits have the same ids each time, so whoever works with the branch meanwhile keeps what it has.
        repo.git("fetch", "--quiet", str(history.repo), f"+refs/heads/{branch}:refs/heads/{branch}")
    for path in git_dir.rglob("*"):
        if path.lstat().st_uid != owner.st_uid:
            os.chown(path, owner.st_uid, owner.st_gid)
    return replace(history, repo=git_dir)


def verdicts(document: Any) -> dict[str, str]:
    return {case["case"]: case["verdict"] for case in document["cases"]}


def metrics(document: Any, case: str | None = None) -> dict[str, Any]:
    """The metrics of a case that did not fail, by name; of the only case, if none is named."""
    (found,) = [one for one in document["cases"] if case in (None, one["case"])]
    assert not found["failed"], found["failed"]
    return {metric["name"]: metric for metric in found["metrics"]}
