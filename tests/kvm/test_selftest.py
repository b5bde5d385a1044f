"""`lab selftest` in the machine: what was found, and what could not be done."""

import json

import pytest

from .conftest import KvmLab

pytestmark = pytest.mark.kvm


def test_the_self_test_names_what_was_found_and_what_could_not_be_done(kvm: KvmLab) -> None:
    path = kvm.lab.home / "selftest.json"
    done = kvm.run("selftest", "--rounds", "6", "--output", str(path), "--json")
    assert "Traceback" not in done.stderr, done.stderr
    document = json.loads(done.stdout)
    steps = {step["name"]: step for step in document["steps"]}
    assert [step["state"] for step in document["steps"] if step["name"] != "doctor"] == [
        "ok", "ok", "ok", "ok", "not done", "ok",
    ]  # fmt: skip
    assert "this host has no PMU" in steps["hardware events"]["text"]
    assert steps["headline, exact mode"]["values"]["verdict"] == "regression"
    assert steps["A/A, live mode"]["values"]["pairs"] == 6
    assert json.loads(kvm.machine.run("cat", str(path)).stdout) | {"seal": ""} == document | {"seal": ""}
    assert str(kvm.lab.home) not in done.stdout, "no names"
