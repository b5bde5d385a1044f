"""Guests under KVM that panic or hang, and shells."""

import pytest

from .conftest import ARMS, BASE, LIVE, KvmLab

pytestmark = pytest.mark.kvm

# Waits until some process has a vCPU of KVM.
_UNTIL_VCPU = """\
for ((look = 0; look < 120; look++)); do
    ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q anon_inode:kvm-vcpu && exit 0
    sleep 1
done
exit 1
"""


@pytest.mark.parametrize(
    ("name", "line", "more", "words"),
    [
        ("panic", "echo c >/proc/sysrq-trigger", (), ("sysrq triggered crash",)),
        ("hang", "while :; do sleep 1; done", ("--guest-timeout", "60s"),
         ("the guest hung; stopped after", "--guest-timeout")),
    ],
)  # fmt: skip
def test_an_arm_whose_guests_die_is_broken(
    kvm: KvmLab, name: str, line: str, more: tuple[str, ...], words: tuple[str, ...]
) -> None:
    script = kvm.lab.home / "scripts" / f"{name}.sh"
    kvm.machine.put(script, f"#!/bin/sh\n{line}\n", kvm.lab.user)
    said = kvm.refused(4, "ab", *ARMS, "-w", f"script:{script}", *LIVE, "--rounds", "1", *more)
    for word in ("arm is broken: its guest died 3 times in round 1", *words):
        assert word in said
    assert not any("qemu" in name for name in kvm.processes())


@pytest.fixture(scope="module")
def shells(kvm: KvmLab) -> KvmLab:
    """The lab that has booted the kernel of the shells once."""
    done = kvm.lab.run("shell", BASE, "--accel", "tcg", "--", "true")
    assert done.returncode == 0, done.stderr
    return kvm


def test_a_shell_is_under_kvm_and_ends_as_its_command(shells: KvmLab) -> None:
    shell = shells.start("shell", BASE, "--accel", "kvm", "--", "sh", "-c", "sleep 10; exit 7")
    seen = shells.machine.run("bash", "-c", _UNTIL_VCPU)
    ended = shells.machine.wait(shell)
    assert seen.returncode == 0 and ended.returncode == 7, ended
    assert not any("qemu" in name for name in shells.processes())


def test_a_shell_that_hangs_ends_in_its_time(shells: KvmLab) -> None:
    said = shells.refused(4, "shell", BASE, "--accel", "kvm", "--guest-timeout", "60s", "--", "sleep", "1000")
    assert "hung: it did not end within 60 s" in said
    assert not any("qemu" in name for name in shells.processes())
