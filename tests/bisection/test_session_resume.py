"""Bisections that are stopped, by a budget or by kill -9, and gone on with: nothing is measured twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.compare import result_folders
from lab.guests import exact

from ..fakes import mixes
from ..fakes.bisection import dice, line, wobbly
from ..fakes.bisector import Bisector, culprits
from ..fakes.guest import QEMU
from ..fakes.kernel import git

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("guests", [7, 8, 9, 10, 13, 17, 20])
def test_a_budget_stops_between_two_guests_and_resume_measures_nothing_twice(bisector: Bisector, guests: int) -> None:
    """Six guests are the ends', three each commit's."""
    commits = line(bisector.tree, [100.0] * 20 + [60.0] * 12)
    with bisector.stopped_after(guests):
        stopped = bisector.search(commits[0], commits[-1], "--budget", "1h", "--jobs", "1")
    assert stopped.outcome == "undecided" and "budget" in stopped.reason
    assert len(bisector.guests.calls) == guests and stopped.measured == (guests - 6) // 3
    assert not (result_folders.open_folder(stopped.result) / "result.json").exists()
    assert culprits(bisector.resumed()) == [commits[20]]
    ran = [call for call in bisector.guests.calls if call[1] > 100]
    assert len(ran) == len(set(ran)) == 6 + 5 * 3


@pytest.mark.parametrize("guests", [0, 1, 4, 7])
def test_a_budget_too_short_for_the_ends_names_nobody(bisector: Bisector, guests: int) -> None:
    """Three seeds do not decide these ends, so a stop after them is none to conclude from."""
    commits = line(bisector.tree, [100.0] * 4 + [60.0] * 4)
    bisector.guests.value = wobbly
    with bisector.stopped_after(guests):
        said = bisector.refused(5, "--good", commits[0], "--bad", commits[-1], "--budget", "1h", "--jobs", "1")
    assert "before both ends were measured" in said and "lab bisect resume" in bisector.said
    assert culprits(bisector.resumed()) == [commits[4]]
    ran = [call for call in bisector.guests.calls if call[1] > 100]
    assert len(ran) == len(set(ran))


def test_undo_takes_back_the_last_and_resume_measures_it_again(bisector: Bisector) -> None:
    _, first = bisector.search_line([100.0] * 8 + [60.0] * 8)
    assert bisector.run("undo") == 0
    last = first.path[-1].commit
    assert last[:12] in bisector.printed
    assert bisector.run("status", "--json") == 0
    assert json.loads(bisector.printed)["next"] == last[:12]
    before = bisector.guests.calls.count((last, 101))
    assert culprits(bisector.resumed()) == culprits(first)
    assert bisector.guests.calls.count((last, 101)) == before + 1


def test_the_log_rebuilds_the_session_in_git(bisector: Bisector, tmp_path: Path) -> None:
    _, answer = bisector.search_line([100.0] * 6 + ["build"] * 2 + [100.0] * 8 + [60.0] * 8)
    assert bisector.run("log") == 0 and bisector.printed.startswith("# lab bisect --good")
    (tmp_path / "log").write_text(bisector.printed)
    said = git(bisector.tree, "bisect", "replay", str(tmp_path / "log"))
    assert f"{culprits(answer)[0]} is the first bad commit" in said


def test_a_machine_that_changed_is_noticed(bisector: Bisector, monkeypatch: pytest.MonkeyPatch) -> None:
    bisector.search_line([100.0] * 8 + [60.0] * 8)
    assert bisector.run("undo") == 0
    newer = msgspec.structs.replace(QEMU, version="10.0")
    monkeypatch.setattr(exact, "find_qemu", lambda *_, **__: newer)
    assert bisector.run("resume") == 4
    assert "begin anew" in bisector.said


# ---- kill -9


def _killed_and_resumed(
    words: list[str], folder: Path, notes: Path, kills: int, build_s: float, module: str = "tests.fakes.bisection",
    steps: int = 5,
) -> dict[str, Any]:  # fmt: skip
    """Start, kill that many times at any instant, each time go on; at last let it end, and give its answer.

    steps: the most kernels and guests between two kills.
    """
    command, draw = [sys.executable, "-m", module, "bisect"], dice("kill")
    env = {
        **os.environ, "PYTHONPATH": str(TOP), "FAKE_RUNS": str(notes), "FAKE_BUILDS": str(notes),
        "FAKE_RUN_S": "0.01", "FAKE_BUILD_S": str(build_s),
    }  # fmt: skip
    while True:
        resuming = (folder / "plan.json").exists()
        full = [*command, "resume", str(folder), "--json"] if resuming else [*command, *words, "--json"]
        process = subprocess.Popen(
            full, cwd=TOP, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        if kills and _killed(process, notes, _noted(notes) + draw.randint(1, steps), draw.uniform(0, 3 * build_s)):
            kills -= 1
            continue
        out, _ = process.communicate()
        assert process.returncode == 0, out
        document: dict[str, Any] = json.loads(out)
        return document


def _noted(notes: Path) -> int:
    return notes.read_bytes().count(b"\n") if notes.exists() else 0


def _killed(process: subprocess.Popen[bytes], notes: Path, count: int, later_s: float) -> bool:
    """Kill a lab a moment after it has built and run so much in all; False if it ends before that."""
    while process.poll() is None:
        if _noted(notes) >= count:
            time.sleep(later_s)
            if process.poll() is not None:
                return False
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return True
        time.sleep(0.002)
    return False


@pytest.mark.parametrize(("kills", "build_s"), [pytest.param(20, 0.01, marks=pytest.mark.long), (4, 0.3)])
def test_kills_at_any_instants_change_nothing(bisector: Bisector, tmp_path: Path, kills: int, build_s: float) -> None:
    """With builds that take longer than guests, most of the kills hit a build ahead."""
    commits = line(bisector.tree, [100.0] * 9 + ["panic"] * 2 + [100.0] * 9 + [60.0] * 8 + [64.0] * 4)
    expected = bisector.search(commits[0], commits[-1], "--no-speculate")
    folder, notes = tmp_path / "result", tmp_path / "notes"
    words = [
        "--good", commits[0], "--bad", commits[-1], "--tree", str(bisector.tree), "-w", bisector.workload,
        "--result", str(folder),
    ]  # fmt: skip
    found = _killed_and_resumed(words, folder, notes, kills, build_s)
    for key in ("outcome", "reason"):
        assert found[key] == getattr(expected, key)
    assert [one["commit"] for one in found["changes"]] == [one.commit for one in expected.changes]
    assert [(s["commit"], s["values"]) for s in found["path"]] == [(s.commit, s.values) for s in expected.path]


@pytest.mark.long
def test_a_killed_search_of_hunks_goes_on(bisector: Bisector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends, their difference, mixes that build and that do not, and the proof of two parts both ways."""
    old = {"a.h": ["has spare"], "b.c": ["cost 100", "quiet"], "c.c": ["one", "two", "cost 10"]}
    new = {"a.h": ["empty"], "b.c": ["cost 130", "Quiet"], "c.c": ["gone spare", "Two", "cost 30"]}
    ends = [
        mixes.commit(bisector.tree, {f"mm/{name}": mixes.text(*lines) for name, lines in files.items()})
        for files in (old, new)
    ]
    words = ["--by", "hunks", "--tree", str(bisector.tree), "-w", bisector.workload, "--old", ends[0], "--new", ends[1]]
    with monkeypatch.context() as patch:
        for (where, name), what in mixes.REPLACEMENTS.items():
            patch.setattr(where, name, what)
        assert bisector.run(*words, "--result", str(tmp_path / "whole"), "--json") == 0, bisector.said
    expected = json.loads(bisector.printed)
    assert len(expected["changes"]) == 2 and expected["skipped"]
    assert all(change["proof"]["applied"] for change in expected["changes"])
    folder, notes = tmp_path / "result", tmp_path / "notes"
    words += ["--result", str(folder)]
    found = _killed_and_resumed(words, folder, notes, 8, 0.05, "tests.fakes.mixes", 16)
    assert _without_times(found, folder) == _without_times(expected, tmp_path / "whole")


def _without_times(shown: Any, folder: Path) -> Any:
    """A document with one name for its folder, without its times and the command that began it."""
    if isinstance(shown, dict):
        left = shown.keys() - {"started", "build_s", "run_s", "reproduce"}
        return {key: _without_times(shown[key], folder) for key in left}
    if isinstance(shown, list):
        return [_without_times(one, folder) for one in shown]
    return shown.replace(str(folder), "FOLDER") if isinstance(shown, str) else shown
