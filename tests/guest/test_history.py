"""Test histories do what they say: the kinds of commits, on real kernels in real guests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..fakelinux.history import History
from .conftest import BASE, Lab, plant, verdicts

pytestmark = [pytest.mark.guest, pytest.mark.build]

LAYOUT = "neutral*4 slowdown breaks-boot mends-boot breaks-workload mends-workload breaks-build"
ONE = ("-w", "alloc-burst:layout-4632k")
SMALL = ("-w", "alloc-burst:layout-512k")


@pytest.fixture(scope="module")
def planted(story: Lab) -> History:
    """A branch of the default tree, so that each build is incremental."""
    return plant(story, LAYOUT, "planted")


def test_neutral_commits_are_compiled_and_change_nothing_that_is_measured(story: Lab, planted: History) -> None:
    neutral = planted.of_kind("neutral")
    (built,) = story.json("kernel", "build", neutral[-1].id)["kernels"]
    symbols = Path(built["files"]["System.map"]).read_text()
    assert all(f" {commit.symbol}" in symbols for commit in neutral)
    document = story.json("ab", "--base", BASE, "--test", neutral[-1].id, *ONE, *SMALL)
    assert set(verdicts(document).values()) == {"same"}
    assert document["base"]["build"] != document["test"]["build"]


def test_the_second_change_slows_every_page_a_little(story: Lab, planted: History) -> None:
    slow = planted.only("slowdown")
    document = story.json("ab", "--base", f"{slow.id}^", "--test", slow.id, *ONE, "--model", "none")
    assert document["verdict"] == "regression"
    (case,) = document["cases"]
    primary = next(metric for metric in case["metrics"] if metric["primary"])
    assert 0.8 < primary["ratio"] < 0.97, "smaller than the culprit's"


def _said_hello(complaint: str) -> bool:
    """Whether the guest's init got as far as its report, which is beside the log that an error names."""
    found = re.search(r"\(log: (.*)/console.log\)", complaint)
    assert found, complaint
    return '"t":"hello"' in Path(found[1], "report.jsonl").read_text()


def test_a_kernel_that_panics_at_boot(story: Lab, planted: History) -> None:
    line = story.refused(4, "ab", "--base", BASE, "--test", planted.only("breaks-boot").id, *SMALL, "--seeds", "1")
    assert "planted panic at boot" in line
    assert not _said_hello(line)


def test_a_kernel_that_boots_and_panics_in_the_workload(story: Lab, planted: History) -> None:
    broken = planted.only("breaks-workload").id
    line = story.refused(4, "ab", "--base", BASE, "--test", broken, *ONE, "--seeds", "1")
    assert "planted panic in the workload" in line
    assert _said_hello(line)


def test_a_kernel_that_does_not_build(story: Lab, planted: History) -> None:
    line = story.refused(3, "kernel", "build", planted.only("breaks-build").id)
    assert "mincore_count_call" in line
