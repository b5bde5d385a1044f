"""`make quick` chooses the tests of what changed, and never passes over a failure."""

import time
from pathlib import Path

import pytest

from . import quick


def _tree(top: Path, *names: str) -> Path:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("")
    return top


def test_modules_are_tested_by_their_mirror(tmp_path: Path) -> None:
    top = _tree(
        tmp_path, "tests/compare/test_runs.py", "tests/compare/test_runs_disk.py", "tests/compare/test_rounds.py",
        "tests/report/test_bundle_write.py", "tests/history/test_index.py",
    )  # fmt: skip
    assert quick.tests_of(["lab/compare/runs.py", "README.md"], top) == [
        "tests/compare/test_runs.py", "tests/compare/test_runs_disk.py", quick.ALWAYS,
    ]  # fmt: skip
    assert "tests/report/test_bundle_write.py" in quick.tests_of(["lab/report/bundle/write.py"], top)


def test_tests_are_run_themselves_and_fakes_by_those_who_use_them(tmp_path: Path) -> None:
    top = _tree(tmp_path, "tests/fakes/guest.py", "tests/guest/test_story.py", "tests/core/test_git.py")
    user = top / "tests" / "compare" / "test_runs.py"
    user.parent.mkdir()
    user.write_text("from ..fakes.guest import plan\n")
    chosen = quick.tests_of(["tests/fakes/guest.py", "tests/core/test_git.py", "tests/guest/test_story.py"], top)
    assert chosen == ["tests/compare/test_runs.py", "tests/core/test_git.py", quick.ALWAYS]


def test_nothing_starts_once_the_time_is_over(tmp_path: Path) -> None:
    class Over(quick.Budget):
        """The time is over when the first test has ended, however slow the machine is."""

        def pytest_runtest_logfinish(self) -> None:
            super().pytest_runtest_logfinish()
            self.deadline = 0

    path = tmp_path / "test_slow.py"
    path.write_text("def test_one(): pass\ndef test_two(): pass\ndef test_three(): pass\n")
    budget = Over(time.monotonic() + 600)
    status = pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(path)], plugins=[budget])
    assert (status, budget.left, budget.failed) == (pytest.ExitCode.INTERRUPTED, 1, False)
    path = tmp_path / "test_failing.py"
    path.write_text("def test_one(): assert False\n")
    budget = quick.Budget(time.monotonic() + 60)
    pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(path)], plugins=[budget])
    assert budget.failed
