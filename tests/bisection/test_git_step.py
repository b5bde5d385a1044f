"""`lab bisect step` under `git bisect run`: it agrees with `lab bisect`, and nothing but a commit is ever "bad"."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from lab.bisection import git_step
from lab.bisection.answer import Answer
from lab.cli import ab, main
from lab.core.errors import BuildFailed, GuestFailed, GuestFailure, HostFailed, Undecided, UserError

from ..fakes.bisection import line, write_workload
from ..fakes.bisector import culprits
from ..fakes.build import own_folders
from ..fakes.kernel import git

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_folders(monkeypatch, tmp_path)
    write_workload(tmp_path / "mine")
    path = tmp_path / "mine.toml"
    path.write_text(f'schema = 1\nworkload = "{tmp_path}/mine"\ncase = "large"\n')
    return path


LAB = (sys.executable, "-m", "tests.fakes.bisection", "bisect")


def called(tree: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command in a checkout, from which the lab with fakes can be called."""
    return subprocess.run(
        argv, cwd=tree, env={**os.environ, "PYTHONPATH": str(TOP), **env}, capture_output=True, text=True, check=False
    )


def bisect_run(tree: Path, old: str, new: str, recipe: Path, *start: str) -> str:
    """`git bisect run lab bisect step`; what git says."""
    git(tree, "bisect", "start", *start, new, old)
    done = called(tree, "git", "bisect", "run", *LAB, "step", "--recipe", str(recipe))
    return done.stdout + done.stderr


@pytest.mark.parametrize("culprit", [1, *(pytest.param(one, marks=pytest.mark.long) for one in (4, 8, 9))])
def test_git_bisect_run_and_lab_bisect_give_the_same_answer(tmp_path: Path, recipe: Path, culprit: int) -> None:
    """Wherever the culprit is in one history, with a commit that does not build elsewhere."""
    tree = tmp_path / "linux"
    fates: list[float | str] = [100.0] * culprit + [60.0] * (10 - culprit)
    fates[2 if culprit > 4 else 6] = "build"
    commits = line(tree, fates)
    words = ("--recipe", str(recipe), "--tree", str(tree), "--good", commits[0], "--bad", commits[-1], "--json")
    searched = called(tree, *LAB, *words)
    assert searched.returncode == 0, searched.stderr
    answer = msgspec.json.decode(searched.stdout, type=Answer)
    assert answer.outcome == "found" and culprits(answer) == [commits[culprit]]
    said = bisect_run(tree, commits[0], commits[-1], recipe)
    assert f"{culprits(answer)[0]} is the first bad commit" in said


def test_git_bisect_run_finds_who_fixed_it(tmp_path: Path, recipe: Path) -> None:
    commits = line(tmp_path / "linux", [60.0] * 5 + [100.0] * 4)
    said = bisect_run(tmp_path / "linux", commits[0], commits[-1], recipe, "--term-old", "slow", "--term-new", "fast")
    assert f"{commits[5]} is the first fast commit" in said


def test_statuses_of_a_step(tmp_path: Path, recipe: Path) -> None:
    tree = tmp_path / "linux"
    commits = line(tree, [100.0, 100.0, "build", "panic", 78.0, 61.0, 95.0, 60.0])
    statuses = []
    for one in commits:
        git(tree, "checkout", "-q", one)
        done = called(tree, *LAB, "step", "--recipe", str(recipe), "--good", commits[0], "--bad", commits[-1])
        statuses.append(done.returncode)
        assert len(done.stdout.splitlines()) == 1, done.stderr
    assert statuses == [0, 0, 125, 125, 125, 1, 0, 1]


def test_a_step_measures_nothing_twice_and_leaves_uncommitted_work_alone(tmp_path: Path, recipe: Path) -> None:
    tree, ran = tmp_path / "linux", tmp_path / "ran"
    commits = line(tree, [100.0, 100.0, 60.0])
    git(tree, "checkout", "-q", commits[1])
    (tree / "fate").write_text("60.0")
    words = ("--recipe", str(recipe), "--good", commits[0], "--bad", commits[-1])
    assert called(tree, *LAB, "step", *words, FAKE_RUNS=str(ran)).returncode == 0
    first = ran.read_text()
    assert called(tree, *LAB, "step", *words, FAKE_RUNS=str(ran)).returncode == 0
    assert ran.read_text() == first and (tree / "fate").read_text() == "60.0"


@pytest.mark.long
def test_misuse_and_trouble_stop_git_bisect_and_say_nothing_of_the_commit(tmp_path: Path, recipe: Path) -> None:
    tree = tmp_path / "linux"
    commits = line(tree, [100.0, "host", 100.0, 60.0])
    git(tree, "checkout", "-q", commits[1])
    ends = ("--good", commits[0], "--bad", commits[-1])
    for words in (
        ("--bogus",),
        ("--recipe",),
        ("--recipe", "nowhere.toml", *ends),
        ("--recipe", str(recipe)),
        ("--recipe", str(recipe), "--good", "nothing", "--bad", commits[-1]),
        ("--recipe", str(recipe), "--good", commits[0], "--bad", commits[2]),
        ("--recipe", str(recipe), *ends),
        ("extra", "words"),
    ):
        done = called(tree, *LAB, "step", *words)
        assert done.returncode == 128, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr and done.stderr


@pytest.mark.parametrize(
    "error",
    [
        UserError("no"), BuildFailed("no"), HostFailed("no"), GuestFailed(GuestFailure.PANIC, "no"), Undecided("no"),
        OSError(5, "no"), KeyboardInterrupt(), BrokenPipeError(), SystemExit(1), ZeroDivisionError("a mistake"),
        MemoryError(), RecursionError(),
    ],
)  # fmt: skip
def test_whatever_goes_wrong_is_never_a_verdict(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(git_step, "take", fail)
    monkeypatch.setattr(os, "dup2", lambda *_: None)  # the tester's own standard output
    assert main.run(["bisect", "step", "--recipe", str(recipe)]) == 128
    assert main.run(["-v", "bisect", "step", "--recipe", str(recipe)]) == 128


@pytest.mark.parametrize(
    ("error", "usual", "for_git"),
    [
        (UserError("no"), 2, 128), (BuildFailed("no"), 3, 125), (HostFailed("no"), 4, 128), (Undecided("no"), 5, 125),
        (GuestFailed(GuestFailure.PANIC, "no"), 4, 125), (GuestFailed(GuestFailure.QEMU_DIED, "no"), 4, 128),
        (ZeroDivisionError("a mistake"), 4, 128),
    ],
)  # fmt: skip
def test_a_comparison_that_fails_is_no_bad_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException,
    usual: int, for_git: int,
) -> None:  # fmt: skip
    def fail(*_: object, **__: object) -> None:
        raise error

    tree = tmp_path / "linux"
    commits = line(tree, [100.0, 100.0, 60.0])
    monkeypatch.setattr(ab, "plan_of", fail)
    monkeypatch.chdir(tree)
    words = ["ab", "--base", "HEAD^", "--test", "HEAD", "-w", "alloc-burst", "--fail-on", "regression"]
    assert main.run(words) == usual
    git(tree, "bisect", "start", commits[-1], commits[0])
    assert main.run(words) == for_git
    assert "`lab bisect step`" in capsys.readouterr().err


def test_a_step_and_exact_mode_start_without_numpy() -> None:
    program = "import sys, lab.cli.bisect, lab.bisection.search, lab.report.inputs; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
