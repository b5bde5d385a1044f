"""`make quick` chooses the tests of what changed."""

from pathlib import Path

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
