"""Live mode under KVM: the part of `make kvm` that `make test` has, one comparison of one round."""

from typing import Any

import pytest

from .conftest import AB, KVM_GROUP, KvmLab, counted, counters

pytestmark = pytest.mark.kvm

COUNTERS = ("page_faults", "thp_fault_alloc", "vmas")


def test_one_round_under_kvm_has_the_counters_of_exact_mode_and_leaves_no_qemu(kvm: KvmLab, exact: Any) -> None:
    with kvm.watched() as seen:
        compared = kvm.json(*AB, "--mode", "live", "--rounds", "1", "--iterations", "1")
    assert (compared["mode"], compared["live"]["accelerator"]) == ("live", "kvm")
    assert compared["environment"]["cpu"] == "host"
    (qemu,) = {*(command["qemu"][0] for command in compared["live"]["commands"]["alloc-burst"].values())}
    assert qemu.endswith("qemu-system-x86_64")
    assert [one["number"] for one in counted(compared)] == [1]
    assert compared["live"]["planned_rounds"] == 1
    assert compared["live"]["perf"] is None, "this host has no PMU"
    live, modelled = (counters(document, *COUNTERS) for document in (compared, exact))
    assert live == modelled and set(live) == {*COUNTERS}
    # Every vCPU was on its CPU of the host.
    (cpus,) = {tuple(boot["cpus"]) for one in compared["live"]["rounds"] for boot in one["boots"]}
    by_guest: dict[int, list[str]] = {}
    for process, _, allowed in sorted({thread[1:] for thread in seen}):
        by_guest.setdefault(process, []).append(allowed)
    vcpu, others = str(cpus[0]), str(1 - cpus[0])
    pinned = [allowed for allowed in by_guest.values() if vcpu in allowed]
    assert len(pinned) >= 2, by_guest
    assert all(allowed.count(vcpu) == 1 and others in allowed for allowed in pinned), by_guest
    names = kvm.processes()
    assert "bash" in names and not any("qemu" in name for name in names)


def test_a_user_without_permission_is_told_the_group(kvm: KvmLab) -> None:
    stranger = KvmLab(kvm.machine, kvm.lab, groups="4243")
    said = stranger.refused(4, *AB, "--mode", "live", "--accel", "kvm")
    assert "not for this user" in said and str(KVM_GROUP) in said
