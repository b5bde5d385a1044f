"""Live mode under KVM: the part of `make kvm` that `make test` has, one comparison of one round."""

from typing import Any

import pytest

from .conftest import AB, KVM_GROUP, KvmLab, QemuThread, counted, counters

pytestmark = pytest.mark.kvm

COUNTERS = ("page_faults", "thp_fault_alloc", "vmas")


@pytest.fixture(scope="module")
def watched(kvm: KvmLab) -> tuple[Any, list[QemuThread]]:
    """A comparison by `--mode live`, and the threads of QEMU meanwhile."""
    with kvm.watched() as seen:
        document = kvm.json(*AB, "--mode", "live", "--rounds", "1", "--iterations", "1")
    return document, seen


@pytest.fixture
def compared(watched: tuple[Any, list[QemuThread]]) -> Any:
    """The document of the comparison."""
    return watched[0]


def test_the_mode_is_live_and_the_accelerator_kvm(compared: Any) -> None:
    assert (compared["mode"], compared["live"]["accelerator"]) == ("live", "kvm")
    assert compared["environment"]["cpu"] == "host"
    (qemu,) = {*(command["qemu"][0] for command in compared["live"]["commands"]["alloc-burst"].values())}
    assert qemu.endswith("qemu-system-x86_64")
    assert [one["number"] for one in counted(compared)] == [1]
    assert compared["live"]["planned_rounds"] == 1
    assert compared["live"]["perf"] is None, "this host has no PMU"


def test_counters_are_those_of_exact_mode(compared: Any, exact: Any) -> None:
    live, modelled = (counters(document, *COUNTERS) for document in (compared, exact))
    assert live == modelled and set(live) == {*COUNTERS}


def test_every_vcpu_was_on_its_host_cpu(watched: tuple[Any, list[QemuThread]]) -> None:
    compared, seen = watched
    (cpus,) = {tuple(boot["cpus"]) for one in compared["live"]["rounds"] for boot in one["boots"]}
    by_guest: dict[int, list[str]] = {}
    for process, _, allowed in sorted({thread[1:] for thread in seen}):
        by_guest.setdefault(process, []).append(allowed)
    vcpu, others = str(cpus[0]), str(1 - cpus[0])
    pinned = [allowed for allowed in by_guest.values() if vcpu in allowed]
    assert len(pinned) >= 2, by_guest
    assert all(allowed.count(vcpu) == 1 and others in allowed for allowed in pinned), by_guest


def test_no_qemu_is_left(kvm: KvmLab, compared: Any) -> None:
    names = kvm.processes()
    assert "bash" in names and not any("qemu" in name for name in names)


def test_a_user_without_permission_is_told_the_group(kvm: KvmLab) -> None:
    stranger = KvmLab(kvm.machine, kvm.lab, groups="4243")
    said = stranger.refused(4, *AB, "--mode", "live", "--accel", "kvm")
    assert "not for this user" in said and str(KVM_GROUP) in said
