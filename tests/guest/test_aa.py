"""The noise certificate of real guests: exact mode is equal to the last digit."""

import pytest

from .conftest import NEW, Lab

pytestmark = [pytest.mark.guest, pytest.mark.smoke]


def test_one_kernel_run_twice_gives_the_same_numbers(lab: Lab) -> None:
    cases = "alloc-burst:layout-4632k,layout-512k"
    found = lab.json("aa", NEW, "--mode", "exact", "-w", cases, "--seeds", "3", "--model", "tlb")["certificates"]
    assert [one["case"] for one in found] == ["alloc-burst:layout-4632k", "alloc-burst:layout-512k"]
    assert all(one["equal"] and one["verdict"] == "same" and one["pairs"] == 3 for one in found)
    listed = lab.json("aa", "--list")["certificates"]
    assert {one["case"] for one in found} <= {one["case"] for one in listed}
    assert all(one["changed"] == [] for one in listed if one["mode"] == "exact")
