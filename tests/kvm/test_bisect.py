"""A bisection of four commits in live mode under KVM. All that it builds is built on the host before."""

import pytest

from ..guest.conftest import Lab, plant
from .conftest import LIVE, KvmLab

CASE = "alloc-burst:single-128m"
"""Its time changes by far more than an emulator's noise."""

pytestmark = [pytest.mark.kvm, pytest.mark.build]


def test_live_mode_finds_the_commit_of_four(kvm: KvmLab, story: Lab) -> None:
    planted = plant(story, "neutral*2 culprit neutral", "live-kvm")
    culprit, tip = planted.only("culprit").id, planted.tip
    # The kernels that a search may boot, and by its proof in exact mode the one without the culprit.
    kernels = [*(commit.id for commit in planted.commits), f"{culprit}^+layout-1", f"{culprit}+layout-1"]
    built = story.run("kernel", "build", *kernels)
    assert built.returncode == 0, built.stderr
    ends = ("--old", planted.start, "--new", tip, "-w", CASE)
    exact = story.json("bisect", *ends)
    assert [change["commit"] for change in exact["changes"]] == [culprit]
    live = kvm.json("bisect", *ends, *LIVE)
    assert (live["mode"], live["outcome"], live["candidates"]) == ("live", "found", 4)
    (change,) = live["changes"]
    assert change["commit"] == culprit and change["direction"] == exact["changes"][0]["direction"]
    assert live["live"]["outcome"] == "confirmed" and live["live"]["probability"] > 0.99
    assert change["proof"]["confirmed"]
    assert not any("qemu" in name for name in kvm.processes())
