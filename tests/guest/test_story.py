"""The main job on real kernels: commits that are known to change things, and cases that must not change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import BASE, FIX, TEST, Lab, samples, verdicts

pytestmark = [pytest.mark.guest, pytest.mark.build]

SOME = "alloc-burst:layout-512k,layout-4632k,single-2052k"


@pytest.fixture(scope="module")
def some(story: Lab) -> Any:
    return story.json("ab", "--base", BASE, "--test", TEST, "-w", SOME, "--jobs", "1")


def test_the_same_command_gives_the_same_samples_however_many_guests_run_at_once(story: Lab, some: Any) -> None:
    again = story.json("ab", "--base", BASE, "--test", TEST, "-w", SOME, "--jobs", "6")
    assert again["result"] != some["result"]
    assert json.dumps(samples(again)) == json.dumps(samples(some))


def test_the_kernels_own_parser_reads_the_ktap(story: Lab, some: Any, tmp_path: Path) -> None:
    repo = next(story.home.glob(".local/share/*/trees/default.git"))
    for name in ("kunit_parser.py", "kunit_printer.py"):
        words = ["git", "-c", "safe.directory=*", f"--git-dir={repo}", "show", f"HEAD:tools/testing/kunit/{name}"]
        (tmp_path / name).write_bytes(subprocess.run(words, capture_output=True, check=True).stdout)
    program = (
        "import json, sys, kunit_parser\n"
        "def tree(test): return {one.name: [one.status.name, tree(one)] for one in test.subtests}\n"
        "found = kunit_parser.parse_run_tests(sys.stdin.read().splitlines(True))\n"
        "print('FOUND', json.dumps([found.counts.errors, tree(found)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        input=story.run("report", some["result"], "--format", "ktap").stdout,
        capture_output=True,
        text=True,
        check=True,
    )
    errors, tests = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("FOUND"))[6:])
    assert errors == 0
    status, cases = tests["alloc-burst"]
    assert status == "FAILURE"
    wanted = {"regression": "FAILURE", "unknown": "SKIPPED"}
    assert {name: one[0] for name, one in cases.items()} == {
        case["case"]: wanted.get(case["verdict"], "SUCCESS") for case in some["cases"]
    }


def test_a_kernel_against_itself_is_the_same(story: Lab) -> None:
    document = story.json("ab", "--base", TEST, "--test", TEST, "-w", SOME)
    assert set(verdicts(document).values()) == {"same"}
    assert document["verdict"] == "same"
    assert document["seeds"] == [1, 2, 3]


def test_the_fix_brings_all_back_but_alternating_sizes(story: Lab) -> None:
    cases = "alloc-burst:layout-4632k,layout-3072k,alternate-2048k-1400k,alternate-4096k-4632k"
    found = verdicts(story.json("ab", "--base", TEST, "--test", FIX, "-w", cases))
    assert found["layout-4632k"] == found["layout-3072k"] == "improvement"
    assert found["alternate-2048k-1400k"] == found["alternate-4096k-4632k"] == "same"
    fixed = verdicts(story.json("ab", "--base", BASE, "--test", FIX, "-w", cases))
    assert fixed["layout-4632k"] == fixed["layout-3072k"] == "same"
    assert fixed["alternate-2048k-1400k"] == "regression"


def test_fail_on_and_require_verdict_decide_the_status(story: Lab, some: Any, open_folder: Path) -> None:
    assert story.run("ab", "--resume", some["result"], "--fail-on", "regression").returncode == 1
    assert story.run("ab", "--resume", some["result"], "--fail-on", "improvement").returncode == 0
    one = ("ab", "--base", BASE, "--test", TEST, "-w", "alloc-burst:layout-3072k")
    undecided = story.run(*one, "--seeds", "2", "--result", str(open_folder / "undecided"), "--require-verdict")
    assert undecided.returncode == 5
    assert "Traceback" not in undecided.stderr
