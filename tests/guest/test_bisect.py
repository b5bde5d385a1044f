"""Bisection on real kernels: culprit and fix between ends that are alike, and one step for `git bisect run`."""

import email
import email.policy
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import BASE, FIX, TEST, Lab

pytestmark = [pytest.mark.guest, pytest.mark.build]

CASE = "alloc-burst:layout-4632k"


def test_culprit_and_fix_are_both_named_and_proved_and_the_mail_is_that_of_the_culprit(story: Lab) -> None:
    found = story.json("bisect", "--old", BASE, "--new", FIX, "-w", CASE)
    assert found["ends"]["verdict"] == "same"
    assert [change["direction"] for change in found["changes"]] == ["regression", "improvement"]
    assert found["outcome"] == "found"
    for change in found["changes"]:
        assert change["proof"]["confirmed"] and not change["proof"]["same_image"]
        assert "__handle_mm_fault" in {function["name"] for function in change["proof"]["functions"]}
    assert found["changes"][1]["proof"]["reverted"]["verdict"] == "regression"
    # The script of the tree says whom to tell.
    text = story.run("report", found["result"], "--format", "mail").stdout
    message = email.message_from_string(text, policy=email.policy.default)
    assert "#regzbot introduced: efa7df3e3bb5da8e6abbe37727417f32a37fba47\n" in message.get_content()
    assert "Found by bisecting 2 commits" in text
    assert not shutil.which("perl") or "linux-mm@kvack.org" in message["Cc"]


@pytest.mark.live
def test_live_mode_finds_it_by_fresh_boots(story: Lab) -> None:
    words = ("--mode", "live", "--accel", "tcg", "--iterations", "1", "--good", BASE, "--bad", TEST)
    found = story.json("bisect", *words, "-w", "alloc-burst:single-128m")
    assert found["outcome"] == "found" and found["live"]["outcome"] == "confirmed"
    (culprit,) = found["changes"]
    assert culprit["direction"] == "regression" and culprit["proof"]["reverted"]["ratio"] > 5
    assert "clear_page_rep" in {function["name"] for function in culprit["proof"]["functions"]}


def test_a_step_for_git(story: Lab, open_folder: Path) -> None:
    tree = next((story.home / ".local/share/kernel-ab-lab/trees").glob("default.git"))
    checkout = open_folder / "checkout"
    _as_user(story, story.home, "git", "clone", "-q", "-n", "-s", str(tree), str(checkout))
    statuses = []
    for commit in ("main~1", "main~2"):
        _as_user(story, checkout, "git", "update-ref", "--no-deref", "HEAD", commit)
        step = ("bisect", "step", "--recipe", "alloc-burst", "--good", "main~3", "--bad", "main~2")
        done = subprocess.run(
            story.command(*step), cwd=checkout, env=story.environment(), capture_output=True, text=True, check=False
        )
        statuses.append((done.returncode, done.stderr))
    assert [status for status, _ in statuses] == [0, 1], statuses


def _as_user(lab: Lab, folder: Path, *words: str) -> None:
    subprocess.run(lab.as_user(*words), cwd=folder, env=lab.environment(), check=True)
