"""Guests under KVM that panic or hang."""

from __future__ import annotations

import pytest

from .conftest import ARMS, LIVE, KvmLab

pytestmark = pytest.mark.kvm


def script(kvm: KvmLab, name: str, *lines: str) -> str:
    """A workload that runs these lines in its guest."""
    path = kvm.lab.home / "scripts" / f"{name}.sh"
    kvm.machine.put(path, "\n".join(["#!/bin/sh", *lines, ""]), kvm.lab.user)
    return f"script:{path}"


def test_an_arm_whose_kernel_panics_is_broken(kvm: KvmLab) -> None:
    workload = script(kvm, "panic", "echo c >/proc/sysrq-trigger")
    said = kvm.refused(4, "ab", *ARMS, "-w", workload, *LIVE, "--rounds", "1")
    assert "arm is broken: its guest died 3 times in round 1" in said
    assert "sysrq triggered crash" in said, "the panic's own words"
    assert not any("qemu" in name for name in kvm.processes())


def test_an_arm_whose_guests_hang_is_broken(kvm: KvmLab) -> None:
    workload = script(kvm, "hang", "while :; do sleep 1; done")
    said = kvm.refused(4, "ab", *ARMS, "-w", workload, *LIVE, "--rounds", "1", "--guest-timeout", "60s")
    assert "arm is broken: its guest died 3 times in round 1" in said
    assert "the guest hung; stopped after" in said and "--guest-timeout" in said
    assert not any("qemu" in name for name in kvm.processes())
