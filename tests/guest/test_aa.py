"""The noise certificate of real guests: exact mode is equal to the last digit."""

from __future__ import annotations

import pytest

from .conftest import TEST, Lab

pytestmark = [pytest.mark.guest, pytest.mark.build]


def test_one_kernel_run_twice_gives_the_same_numbers(story: Lab) -> None:
    document = story.json(
        "aa", TEST, "--mode", "exact", "-w", "alloc-burst:layout-4632k,layout-512k", "--seeds", "3", "--model", "tlb"
    )
    found = document["certificates"]
    assert [one["case"] for one in found] == ["alloc-burst:layout-4632k", "alloc-burst:layout-512k"]
    assert all(one["equal"] and one["verdict"] == "same" and one["pairs"] == 3 for one in found)
    listed = story.json("aa", "--list")["certificates"]
    assert {one["case"] for one in found} <= {one["case"] for one in listed}
    assert all(one["changed"] == [] for one in listed if one["mode"] == "exact")


def test_what_it_cannot_do_is_refused(story: Lab) -> None:
    assert "a kernel is needed" in story.refused(2, "aa")
    assert "no result 'nothing'" in story.refused(2, "aa", "--resume", "nothing")
