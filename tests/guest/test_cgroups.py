"""cgroups and fairness in real guests: each level costs, and a group gets what its weight promises."""

import pytest

from .conftest import NEW, OLD, Lab, metrics

pytestmark = [pytest.mark.guest, pytest.mark.network]


def test_each_level_of_groups_makes_a_switch_dearer(lab: Lab) -> None:
    document = lab.ab(OLD, NEW, "-w", "cgroups", "--seeds", "1")
    assert not [case["failed"] for case in document["cases"] if case["failed"]]
    for arm in ("base", "test"):
        costs = {case["case"]: case["metrics"][0][arm][0] for case in document["cases"]}
        depths = [costs[f"pipe-pingpong-{levels}"] for levels in (0, 1, 3, 6)]
        assert depths == sorted(depths) and depths[-1] > depths[0] * 1.1
        assert costs["pipe-across-3"] > costs["pipe-across-1"]


def test_a_group_gets_the_share_that_its_weight_promises(lab: Lab) -> None:
    document = lab.ab(OLD, NEW, "-w", "fairness", "--seeds", "1")
    due = {"even": 50, "1-to-3": 25, "1-to-4-tasks": 50, "deep": 50}
    assert [case["case"] for case in document["cases"]] == list(due)
    for case, percent in due.items():
        found = metrics(document, case)
        for arm in ("base", "test"):
            assert found["due"][arm] == [percent]
            assert found["share"][arm] == [pytest.approx(percent, abs=1.5)]
