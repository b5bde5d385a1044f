"""A suite in real guests: its groups in the document, the summary in text, and two packages that differ as is known."""

import re

import pytest

from .conftest import NEW, OLD, Lab

pytestmark = [pytest.mark.guest, pytest.mark.smoke]


def test_the_quick_suite_between_two_packages(lab: Lab) -> None:
    document = lab.ab(OLD, NEW, "--suite", "quick", "--seeds", "1")
    assert document["suite"] == "quick" and len(document["cases"]) == 20
    assert not [case["case"] for case in document["cases"] if case["failed"]]
    assert {case["verdict"] for case in document["cases"]} == {"unknown"}, "one seed decides nothing"
    cases = {case["case"]: case for case in document["cases"]}
    assert (cases["fork-exec"]["group"], cases["fault-anon"]["group"]) == ("processes", "memory")
    # Since v6.11 an empty path with AT_EMPTY_PATH costs hardly more than fstat() itself.
    assert cases["fstat-empty-path"]["metrics"][0]["ratio"] < 0.7
    assert abs(cases["getppid"]["metrics"][0]["ratio"] - 1) < 0.02
    assert cases["pipe-pingpong"]["notes"][0] == "unseen: ipis"

    text = lab.run("report", document["result"]).stdout
    counts = re.search(r"^all +(\d+) +(\d+) +(\d+) +(\d+) +0$", text, re.MULTILINE)
    assert counts and sum(map(int, counts.groups())) == 20
