"""The command line: its statuses, its words, and nothing that a user types is ever executed."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lab.cli import main
from lab.compare import result_folders
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, GuestFailure, HostFailed, LabError, Undecided, UserError

from ..docs import dryrun
from ..fakes.command import Lab
from ..fakes.guest import plan, write_workload
from ..fakes.kernel import make_kernel

pytestmark = pytest.mark.usefixtures("own_home")

HEAVY = ("ansible", "ansible_runner", "msgspec", "numpy", "rich", "scipy")


def _lab(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lab", *words],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **more},
    )  # fmt: skip


@pytest.mark.parametrize("words", [*dryrun.names()], ids=" ".join)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_has_help(words: tuple[str, ...], option: str, lab: Lab) -> None:
    said = lab(*words, option)
    assert said.out.startswith(f"Usage: lab {' '.join(words)} ") and said.err == ""


@pytest.mark.parametrize(("statement", "modules"), [
    ("main.run(['--help'])", HEAVY),
    ("main.run(['ab', '--help'])", ("lab.bisection", "sqlalchemy")),
    ("[main.LazyGroup().get_command(None, name) for name in main._COMMANDS]", ("ansible", "ansible_runner")),
])  # fmt: skip
def test_no_command_waits_for_what_it_does_not_need(statement: str, modules: tuple[str, ...]) -> None:
    program = f"import sys; from lab.cli import main; {statement}; print({{*{modules!r}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


# --- statuses


def _failing(error: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


PANICKED = partial(GuestFailed, GuestFailure.PANIC)


@pytest.mark.parametrize(
    ("kind", "status"),
    [(UserError, 2), (BuildFailed, 3), (HostFailed, 4), (PANICKED, 4), (LabError, 4), (Undecided, 5)],
)
def test_each_error_has_its_status_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, lab: Lab, kind: Callable[..., LabError], status: int
) -> None:
    error = kind("it is wrong", hint="do this", log=Path("/x.log"))
    monkeypatch.setattr(result_folders, "finished", _failing(error))
    said = lab("report", status=status)
    assert (said.out, said.err) == ("", "lab: it is wrong; do this (log: /x.log)\n")


@pytest.mark.parametrize(("error", "status", "words"), [
    (KeyboardInterrupt(), 130, "lab: interrupted"),
    (PermissionError(13, "Permission denied", "/root/x"), 4, "lab: /root/x: Permission denied"),
    (OSError(28, "No space left on device"), 4, "write the output; free some, e.g. with `lab gc`; then repeat"),
    (OSError(28, "No space", "/from", None, "/to"), 4, "write /to; free some, e.g. with `lab gc`; then repeat"),
    (OSError(36, "File name too long", "/long"), 2, "lab: /long: File name too long"),
])  # fmt: skip
def test_other_ends(monkeypatch: pytest.MonkeyPatch, lab: Lab, error: BaseException, status: int, words: str) -> None:
    monkeypatch.setattr(result_folders, "finished", _failing(error))
    said = lab("report", status=status).err
    assert said.endswith(f"{words}\n") and len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(("redirections", "status", "said"), [
    (">&-", 2, "lab: standard output is closed, so nothing can be printed"),
    (">/dev/full", 4, "lab: no disk space left to write the output; free some, e.g. with `lab gc`; then repeat"),
    ("2>/dev/full", 0, ""),
    ("2>&-", 0, ""),
])  # fmt: skip
def test_output_that_cannot_be_written(redirections: str, status: int, said: str) -> None:
    command = f'exec "$0" -m lab workload list {redirections}'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (status, said)


def test_a_locale_of_other_characters_changes_no_file_and_no_output() -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert (
        _lab("workload", "show", "alloc-burst", **ascii_only).stdout == _lab("workload", "show", "alloc-burst").stdout
    )


def test_a_mistake_of_the_labs_own_is_one_line_and_a_log(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    monkeypatch.setattr(result_folders, "finished", _failing(ZeroDivisionError("division by zero")))
    said = lab("report", status=4).err
    assert re.fullmatch(
        r"lab: a mistake of the lab's own: ZeroDivisionError: division by zero; please report it \(log: (.*)\)\n", said
    )
    log = said.rpartition("(log: ")[2].rstrip(")\n")
    assert Path(log).read_text().startswith("Traceback") and "in finished" not in said


@pytest.mark.parametrize(
    "words",
    ["", "nothing", "ab --nothing", "ab", "ab --threshold 2", "ab --seeds 0", "ab --max-seeds 5", "ab --mode dead",
     "ab --jobs 0", "ab --fail-on worse --base a --test b", "ab --base a --test b --workload nothing",
     "ab --resume nothing", "replay nothing", "report nothing", "workload show nothing", "machine show nothing",
     "kernel build HEAD --tree nothing", "tree add /nowhere", "kernel build file:/etc/passwd"],
)  # fmt: skip
def test_misuse_is_2_and_says_why(words: str, lab: Lab) -> None:
    said = lab(*words.split(), status=2)
    assert said.out == "" and said.err.strip()
    assert "Traceback" not in said.err


def test_a_closed_pipe_is_no_failure() -> None:
    words = [sys.executable, "-m", "lab", "workload", "show", "alloc-burst"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as lab:
        assert lab.stdout is not None and lab.stderr is not None
        lab.stdout.close()
        assert (lab.stderr.read(), lab.wait()) == (b"", 0)


def test_the_version() -> None:
    done = _lab("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "lab,")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_signals_are_like_ctrl_c(name: str, tmp_path: Path) -> None:
    folder = result_folders.new_folder(None)
    records.save(folder / "plan.json", plan(write_workload(tmp_path / "mine")))
    program = (
        "import os, signal; from lab.cli import main; from lab.compare import result_folders\n"
        f"result_folders.finished = lambda: os.kill(os.getpid(), signal.{name}) or []\n"
        "import sys; sys.argv = ['lab', 'report']; main.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "\nlab: interrupted\n")
    if name == "SIGHUP":
        words = ["nohup", sys.executable, "-c", program]
        done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr


# --- what is typed is never executed


HOSTILE = [
    "$(touch canary)", "`touch canary`", "; touch canary;", "| touch canary", "\ntouch canary\n",
    "--upload-pack=touch canary",
    "{{ lookup('pipe', 'touch canary') }}", "file:$(touch canary)", "worktree:$(touch canary)", "deb:$(touch canary)",
    "~nosuchuser-here", "worktree:~nosuchuser-here", "file:~nosuchuser-here", "HEAD+~nosuchuser-here.patch",
    "HEAD+$(touch canary).patch", "HEAD%CONFIG_X=$(touch canary)", "HEAD@thp=$(touch canary)",
    "HEAD@sysctl.$(touch canary)=1", "HEAD@cmdline.a=$(touch canary)\t", "ext::sh -c touch% canary", "", "\0",
]  # fmt: skip


@pytest.mark.parametrize("evil", HOSTILE, ids=repr)
def test_hostile_words_are_only_words(
    evil: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = ("--tree", str(make_kernel(tmp_path / "linux")))
    for words in (
        ["kernel", "build", *tree, "--", evil],
        ["ab", *tree, "--base", evil, "--test", "HEAD"],
        ["kernel", "build", "HEAD", "--tree", evil],
        ["kernel", "build", "HEAD", *tree, "--cc", evil],
        ["ab", *tree, "--base", "HEAD", "--test", "HEAD", "--qemu", evil],
        ["ab", *tree, "--base", "HEAD", "--test", "HEAD", "-w", evil],
        ["ab", "--resume", evil],
        ["matrix", *tree, "--kernel", evil, "--set", "thp=always,never"],
        ["matrix", *tree, "--kernel", "HEAD", "--set", "thp=always,never", "--set", evil],
        ["matrix", *tree, "--kernel", "HEAD", "--set", "thp=always,never", "--against", evil],
        ["workload", "show", "--", evil],
        ["report", "--", evil],
    ):
        assert main.run(words) in (2, 4), words
        assert "Traceback" not in capsys.readouterr().err
    assert not list(tmp_path.rglob("canary*"))


def test_explain_takes_kernels_only_in_place_of_a_result(lab: Lab) -> None:
    for words in (["--base", "deb:6.1"], ["latest", "--cpu", "--test", "deb:6.12"]):
        said = lab("explain", *words, status=2).err
        assert "--base and --test go with --cpu and without a result" in said
    assert "Missing argument 'ID'" in lab("explain", status=2).err


def test_a_deleted_current_folder_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert main.run(["ab", "deb:6.1", "deb:6.12"]) == 2
    assert capfd.readouterr().err == "lab: the current folder has been deleted; change to another one\n"
    assert main.run(["bisect", "step", "--help"]) == 128
