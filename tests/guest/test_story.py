"""The main job on real kernels: commits that are known to change things, and cases that must not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import BASE, FIX, TEST, Lab, samples, verdicts

pytestmark = [pytest.mark.guest, pytest.mark.build]

SOME = "alloc-burst:layout-512k,layout-4632k,single-2052k"


@pytest.fixture(scope="module")
def some(story: Lab) -> Any:
    return story.json("ab", "--base", BASE, "--test", TEST, "-w", SOME)


def test_the_same_command_twice_gives_the_same_samples(story: Lab, some: Any) -> None:
    again = story.json("ab", "--base", BASE, "--test", TEST, "-w", SOME)
    assert again["result"] != some["result"]
    assert json.dumps(samples(again)) == json.dumps(samples(some))


def test_numbers_do_not_depend_on_how_many_guests_run_at_once(story: Lab) -> None:
    arguments = ("ab", "--base", BASE, "--test", TEST, "-w", "alloc-burst:layout-5000k", "--seeds", "3")
    alone = story.json(*arguments, "--jobs", "1")
    crowded = story.json(*arguments, "--jobs", "6")
    assert samples(alone) == samples(crowded)


def test_a_stored_result_is_shown_again(story: Lab, some: Any) -> None:
    assert story.json("report", some["result"]) == some
    text = story.run("report", some["result"]).stdout
    assert "layout-4632k" in text
    assert "verdict: regression" in text


def test_a_kernel_against_itself_is_the_same_in_every_case(story: Lab) -> None:
    document = story.json("ab", "--base", TEST, "--test", TEST)
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


def test_settings_alone_can_be_the_difference(story: Lab) -> None:
    document = story.json("ab", "--base", TEST, "--test", f"{TEST}@thp=never", "-w", "alloc-burst:layout-4096k")
    assert document["verdict"] == "regression"
    metrics = {metric["name"]: metric for metric in document["cases"][0]["metrics"]}
    assert set(metrics["thp_fault_alloc"]["test"]) == {0.0}
    assert document["test"]["settings"]["thp"] == "never"


def test_fail_on_and_require_verdict_decide_the_status(story: Lab, open_folder: Path) -> None:
    arguments = ("ab", "--base", BASE, "--test", TEST, "-w", "alloc-burst:layout-3072k")
    folder = open_folder / "regression"
    assert story.run(*arguments, "--result", str(folder), "--fail-on", "regression").returncode == 1
    assert story.run("ab", "--resume", str(folder), "--fail-on", "improvement").returncode == 0
    undecided = story.run(*arguments, "--seeds", "2", "--require-verdict")
    assert undecided.returncode == 5
    assert "Traceback" not in undecided.stderr
