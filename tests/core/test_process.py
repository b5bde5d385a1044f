"""Other programs: run without a shell, and their failures named."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from lab.core import process
from lab.core.errors import HostFailed, LabError
from lab.core.process import CommandFailed

from ..fakes.processes import lives, until


def test_words_are_never_a_shells(tmp_path: Path) -> None:
    assert process.run_text(["echo", "$(touch canary)", ";", "*"], cwd=tmp_path) == "$(touch canary) ; *"
    assert not list(tmp_path.iterdir())


def test_a_failure_shows_the_last_thing_that_was_said() -> None:
    with pytest.raises(CommandFailed, match="sh exited with status 3: the reason") as caught:
        process.run(["sh", "-c", "echo first >&2; echo ' the reason ' >&2; echo >&2; exit 3"])
    assert (caught.value.status, caught.value.argv[0], caught.value.exit_status) == (3, "sh", 4)
    with pytest.raises(CommandFailed, match="no message"):
        process.run(["false"])
    with pytest.raises(HostFailed, match=r"sleep did not finish within 0\.1 s"):
        process.run(["sleep", "60"], timeout_s=0.1)


def test_a_missing_program_is_named() -> None:
    with pytest.raises(HostFailed, match="no-such-program is not installed"):
        process.run(["no-such-program"])
    with pytest.raises(HostFailed, match="no-such-program is not installed") as caught:
        process.find_tool("no-such-program", package="some-package")
    assert "some-package" in str(caught.value.hint)
    assert process.find_tool("sh", package="dash").endswith("/sh")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a root of its own")
def test_another_containers_processes_are_left_alone(tmp_path: Path) -> None:
    for file in ("bin/sleep", "lib/x86_64-linux-gnu/libc.so.6", "lib64/ld-linux-x86-64.so.2"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path("/") / file, tmp_path / file)
    words = ["/usr/sbin/chroot", str(tmp_path), "/bin/sleep", "60"]
    other = subprocess.Popen(words, env={**os.environ, "LAB_TEST": "this one"})
    try:
        while Path(f"/proc/{other.pid}/comm").read_text() != "sleep\n":
            assert other.poll() is None
        process.kill_tagged("LAB_TEST", "this one")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_an_interrupted_make_leaves_nothing_half_done_and_what_does_not_carry_the_tag_goes_on(tmp_path: Path) -> None:
    makefile = "all: whole half\nwhole:\n\techo done > $@\nhalf: whole\n\techo begun > $@; sleep 60; echo done > $@\n"
    builds = {}
    for tag in ("this one", "this one, too"):
        folder = tmp_path / tag
        folder.mkdir()
        (folder / "Makefile").write_text(makefile)
        # Below a process of its own, as make is below Ansible.
        words = ["sh", "-c", "make -s; exit 7"]
        builds[tag] = subprocess.Popen(words, cwd=folder, env={**os.environ, "LAB_TEST": tag}, start_new_session=True)
    try:
        for tag in builds:
            until((tmp_path / tag / "half").exists)
        process.cancel_tagged("LAB_TEST", "this one", "make")
        assert builds["this one"].wait(timeout=30) == 7
        assert sorted(path.name for path in (tmp_path / "this one").iterdir()) == ["Makefile", "whole"]
        assert builds["this one, too"].poll() is None
    finally:
        for each in builds.values():
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()


@pytest.mark.skipif(os.getpriority(os.PRIO_PROCESS, 0) == 19, reason="no priority is lower than this process's own")
def test_what_is_hurried_gets_the_callers_priority_if_that_is_allowed() -> None:
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    slow = {
        tag: subprocess.Popen(["nice", "-n", "19", "sleep", "60"], env={**os.environ, "LAB_TEST": tag})
        for tag in ("this one", "other")
    }
    try:
        until(lambda: all(os.getpriority(os.PRIO_PROCESS, each.pid) == 19 for each in slow.values()))
        process.raise_priority_tagged("LAB_TEST", "this one")
        found = {tag: os.getpriority(os.PRIO_PROCESS, each.pid) for tag, each in slow.items()}
        assert found == {"this one": mine if os.geteuid() == 0 else 19, "other": 19}
    finally:
        for each in slow.values():
            each.kill()
            each.wait()


SWEPT = """
import os, pathlib, signal, subprocess, sys
from lab.core import process
folder = pathlib.Path(sys.argv[1])
with process.swept(folder, variable="LAB_TEST", value=sys.argv[1]):
    env = {**os.environ, "LAB_TEST": sys.argv[1]}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(["sleep", "60"], env=env, start_new_session=True, **quiet)
    if sys.argv[2] == "killed":
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
print(child.pid)
"""


@pytest.mark.parametrize("end", ["killed", "well"])
def test_what_a_killed_process_leaves_is_swept_away(end: str, tmp_path: Path) -> None:
    folder = tmp_path / "litter"
    folder.mkdir()
    argv = [sys.executable, "-c", SWEPT, str(folder), end]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == (-signal.SIGKILL if end == "killed" else 0), done.stderr
    pid = int(done.stdout)
    try:
        if end == "killed":
            until(lambda: not folder.exists() and not lives(pid))
        else:
            assert folder.exists() and lives(pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


SCRATCH = """
import os, pathlib, signal, sys
from lab.core import process
real = pathlib.Path.mkdir
def mkdir(*words, **more):
    if sys.argv[2] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(*words, **more)
    if sys.argv[2] == "at once":
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.mkdir = mkdir
with process.scratch("scratch-", pathlib.Path(sys.argv[1])) as folder:
    (folder / "file").touch()
    if sys.argv[2] == "within":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_log_of_an_error_outlives_its_scratch_folder(own_home: None, tmp_path: Path) -> None:
    with pytest.raises(LabError) as caught, process.scratch("scratch-", tmp_path) as folder:
        (folder / "console.log").write_text("why")
        raise LabError("it failed", log=folder / "console.log")
    assert caught.value.log is not None and caught.value.log.read_text() == "why"
    with pytest.raises(LabError) as caught, process.scratch("scratch-", tmp_path) as folder:
        raise LabError("it failed before it said anything", log=folder / "console.log")
    assert caught.value.log is None and not list(tmp_path.glob("scratch-*"))


@pytest.mark.parametrize("end", ["before", "at once", "within", "well"])
def test_a_scratch_folder_goes_whenever_its_process_is_killed(end: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRATCH, tmp_path, end], check=False)
    assert done.returncode == (0 if end == "well" else -signal.SIGKILL)
    until(lambda: not list(tmp_path.iterdir()))
