"""The program behind `make test`: what runs for a commit, what is run again, and that nothing outlives it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from . import suite
from .suite import Part, Shard, Table

TOP = Path(__file__).resolve().parents[1]


def _shard(name: str, *paths: str) -> Shard:
    return Shard(name=name, tests=("tests/core",), marks="not guest", minutes=1, paths=paths)


TABLE = Table(part=(), shard=(_shard("a", "lab/a/", "docs/"), _shard("b", "lab/b/"), _shard("c", "lab/c.py")))


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a store of the test's own."""
    monkeypatch.setattr(suite, "STORE", tmp_path / "store")
    for name in ("LAB_TEST_PASSED", "LAB_TEST_RECORD", "LAB_TEST_DEADLINE", "LAB_REQUIRE_BROWSER"):
        monkeypatch.setenv(name, "")  # and so restored
    return tmp_path


def _in(folder: Path) -> Shard:
    return Shard(name="own", tests=(str(folder),), marks="not guest", minutes=1, paths=(), workers=1)


def test_changed_paths_ask_for_shards_and_the_commit_for_one_more() -> None:
    asked = suite.asked_for(TABLE, ["docs/index.md", "lab/c.py", "README.md"])
    assert [one.name for one in asked] == ["a", "c"]
    assert [one.name for one in suite.in_turn(TABLE, asked, "0123456789ab")] == ["b"]
    turns = {suite.in_turn(TABLE, [], f"{number:08x}")[0].name for number in range(3)}
    assert turns == {"a", "b", "c"}
    assert suite.in_turn(TABLE, TABLE.shard, "0123456789ab") == []


@pytest.mark.parametrize(("text", "names"), [("", ["a", "b", "c"]), ("2/3", ["b"]), ("3", ["c"]), ("b", ["b"])])
def test_a_shard_is_chosen(text: str, names: list[str]) -> None:
    assert [one.name for one in suite.chosen(TABLE, text)] == names


@pytest.mark.parametrize("text", ["4/3", "0/3", "1/4", "d", "/3", "-1"])
def test_a_shard_that_is_not_there_is_one_line(text: str) -> None:
    with pytest.raises(SystemExit, match=r"there are 3, 1/3 to 3/3"):
        suite.chosen(TABLE, text)


def test_the_key_follows_the_tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(suite, "TOP", tmp_path)
    monkeypatch.setattr(suite, "STORE", tmp_path / "store")
    (tmp_path / "file").write_text("one")
    before = suite.key_of(TABLE.shard[0])
    assert suite.key_of(TABLE.shard[0]) == before != suite.key_of(TABLE.shard[1])
    (tmp_path / "file").write_text("two")
    assert suite.key_of(TABLE.shard[0]) != before


def test_parts_run_side_by_side_and_a_failure_shows_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [
        (Part(name="good"), ["sh", "-c", "echo '3 passed, 1 skipped in 0.10s'"]),
        (Part(name="bad"), ["sh", "-c", "echo why it failed; exit 3"]),
    ]
    ended = {one.name: one for one in suite.run_all(parts, tmp_path)}
    assert ended["good"].counts == {"passed": 3, "skipped": 1}
    assert (ended["good"].status, ended["bad"].status) == (0, 3)
    said = capsys.readouterr().out
    assert "why it failed" in said and "FAILED (3)" in said
    assert suite.close(list(ended.values()), 0.0) == 1
    assert capsys.readouterr().out.endswith("3 passed, 1 failed\n")


def test_a_full_disk_is_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "STORE", tmp_path / "of" / "tests")
    monkeypatch.setattr(suite, "SPACE_NEEDED", 1 << 62)
    monkeypatch.setattr(sys, "argv", ["suite", "test"])
    assert suite.main() == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"{tmp_path}: ") and " MiB free, the tests need " in said.err and said.out == ""


def test_a_nearly_full_disk_is_made_room_on_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / ".cache" / "kernel-ab-lab" / "images"
    for name, age_s in {"old": 7200, "new": 60}.items():
        (cache / name).mkdir(parents=True)
        record = cache / name / "image.json"
        record.touch()
        os.utime(record, (time.time() - age_s,) * 2)
    left = iter([1 << 30, 10 << 30])
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=next(left)))
    monkeypatch.setattr(suite, "STORE", tmp_path)
    assert suite.no_room() == ""
    assert [folder.name for folder in cache.glob("[!.]*")] == ["new"]


def test_a_part_that_takes_too_long_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "ITEM_S", 0.0)
    argv = [sys.executable, "-c", "sum(range(1000000))"]
    long, limited = suite.run_all([(Part(name="long"), argv), (Part(name="tests", items=True), argv)], tmp_path)
    assert {one.name: bool(one.status) for one in (long, limited)} == {"long": True, "tests": False}


@pytest.mark.parametrize("ignored", ["", "signal.signal(signal.SIGINT, signal.SIG_IGN)"])
def test_a_test_that_goes_on_after_the_deadline_is_cut_off(
    stored: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ignored: str
) -> None:
    """Also if it, or pytest, does not end when it is asked to, as on a busy machine."""
    monkeypatch.setattr(suite, "LAST_TEST_S", 5.0)
    (stored / "test_long.py").write_text(f"import signal, time\n{ignored}\ndef test_long():\n    time.sleep(600)\n")
    ended = suite.shard(_in(stored), stored, time.monotonic())
    assert (ended.status, ended.counts) == (0, {}) and ended.seconds < 60
    assert "cut off" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 2])
def test_what_a_lost_machine_left_runs_once_more(
    times: int, stored: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # in whose processes nothing is recorded
    (stored / "conftest.py").write_text("from tests.conftest import *\n")
    (stored / "test_machine.py").write_text(_LOST.format(found=str(stored / "found"), status=suite.MACHINE_LOST))
    (stored / "found").write_text(str(times))
    ended = suite.shard(_in(stored), stored)
    said = capsys.readouterr().out
    assert ended.status == (0 if times == 1 else suite.MACHINE_LOST), said
    assert said.count("the console's end") == times and "1 of its tests had passed before" in said


_LOST = """\
import pathlib, pytest
def test_before():
    pass
def test_in_the_machine():
    found = pathlib.Path({found!r})
    if left := int(found.read_text()):
        found.write_text(str(left - 1))
        pytest.exit("the console's end", {status})
"""

_OUTLIVES = """\
import subprocess, sys, time
from tests import suite
with suite.nothing_outlives():
    # A process in a session of its own that forgets its parent and does not listen.
    deaf = "trap : TERM; echo $$; while :; do sleep 1; done"
    subprocess.run(["sh", "-c", f"setsid sh -c '{deaf}' & sleep 0.2"])
    time.sleep(600)
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_a_signal(stop: signal.Signals) -> None:
    argv = ["env", "--default-signal=INT", sys.executable, "-c", _OUTLIVES]
    with subprocess.Popen(argv, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        deaf = int(process.stdout.readline())
        process.send_signal(stop)
        process.wait(timeout=60)
    with pytest.raises(ProcessLookupError):
        os.kill(deaf, 0)


FEW = ("tests/test_suite.py", "test_a_shard_is_chosen")


@pytest.mark.long
def test_what_passed_is_recorded_left_out_and_limited(tmp_path: Path) -> None:
    record = tmp_path / "record"

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{FEW[0]}::{FEW[1]}"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LAB_TEST", "PYTEST_"))}
        return subprocess.run(argv, cwd=TOP, env=kept | variables, capture_output=True, text=True, check=False)

    assert run(LAB_TEST_RECORD=str(record)).returncode == 0
    names = record.read_text().splitlines()
    assert len(names) == 4 and all(name.startswith("::".join(FEW)) for name in names)
    assert run(LAB_TEST_PASSED=str(record)).returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    late = run(LAB_TEST_DEADLINE="0.1", LAB_TEST_RECORD=str(tmp_path / "late"))
    assert late.returncode == 0 and "left: the time" in late.stdout and not (tmp_path / "late").exists()
    slow = run(LAB_TEST_ITEM_S="0")
    assert slow.returncode == 1 and f"{names[0]} took" in slow.stdout and "0 are allowed" in slow.stdout
