"""A night with live mode under KVM."""

import pytest

from .conftest import FirstNight, KvmLab

pytestmark = pytest.mark.kvm


def test_a_night_compares_in_both_modes(kvm: KvmLab, first_night: FirstNight) -> None:
    arrived = kvm.machine.run(*kvm.as_user(*first_night.arrival()), env=kvm.environment())
    assert arrived.returncode == 0, arrived.stderr
    night = kvm.json("nightly", "run", "--plan", str(first_night.plan))
    assert (night["number"], night["outcome"]) == (2, "regression"), night
    (branch,) = night["branches"]
    assert [one["mode"] for one in branch["measured"]] == ["exact", "live"]
    live = kvm.json("report", branch["measured"][1]["result"])
    assert (live["mode"], live["live"]["accelerator"]) == ("live", "kvm")
    assert not any("qemu" in name for name in kvm.processes())
