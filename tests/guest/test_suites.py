"""A suite in real guests: its groups in the document, the summary in text, and two packages that differ as is known."""

from __future__ import annotations

import re

import pytest

from .conftest import Lab, verdicts

pytestmark = [pytest.mark.guest, pytest.mark.network]


def test_the_quick_suite_between_two_packages(lab: Lab) -> None:
    document = lab.json("ab", "--base", "deb:6.1", "--test", "deb:6.12", "--suite", "quick")
    assert document["suite"] == "quick" and len(document["cases"]) == 20
    assert not [case["case"] for case in document["cases"] if case["failed"]]
    groups = {case["case"]: case["group"] for case in document["cases"]}
    assert (groups["fork-exec"], groups["fault-anon"]) == ("processes", "memory")
    found = verdicts(document)
    # Since v6.11 an empty path with AT_EMPTY_PATH costs hardly more than fstat() itself.
    assert found["fstat-empty-path"] == "improvement"
    assert found["getppid"] == "same"
    (pingpong,) = (case for case in document["cases"] if case["case"] == "pipe-pingpong")
    assert pingpong["notes"][0] == "unseen: ipis"

    text = lab.run("report", document["result"]).stdout
    counts = re.search(r"^all +(\d+) +(\d+) +(\d+) +(\d+) +0$", text, re.MULTILINE)
    assert counts and sum(map(int, counts.groups())) == 20
    same = [name for name, verdict in found.items() if verdict == "same"]
    assert re.search(rf"^same: {len(same)} cases?, not shown", text, re.MULTILINE)
    assert not any(re.search(rf"^ *{name}\b", text, re.MULTILINE) for name in same)
