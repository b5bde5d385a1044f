"""The host in the machine: what the doctor finds, sets and puts back, and the probe that is kept."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import AB, BASE, LIVE, KvmLab

pytestmark = pytest.mark.kvm

KEPT = ".cache/kernel-ab-lab/checks/kvm.json"
"""The probe that is kept, in the lab's home."""

SWITCHES = {"/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]", "/proc/sys/vm/swappiness": "0"}
"""What `lab doctor --fix` sets here."""


def findings(document: Any) -> dict[str, tuple[str, str]]:
    return {one["name"]: (one["state"], one["text"]) for one in document["findings"]}


def doctor(kvm: KvmLab, *arguments: str) -> Any:
    """The doctor's document, for an ordinary user. The disk of this machine is small, so that it may exit with 4."""
    done = kvm.run("doctor", "--json", *arguments)
    assert done.returncode in (0, 4), done.stderr
    return json.loads(done.stdout)


def as_root(kvm: KvmLab, *arguments: str) -> subprocess.CompletedProcess[str]:
    return kvm.machine.run(str(kvm.lab.python), "-m", "lab", *arguments, env={"HOME": "/run/root"})


def switches(kvm: KvmLab) -> dict[str, str]:
    return {path: kvm.machine.run("cat", path).stdout.strip() for path in SWITCHES}


def kept_probe(kvm: KvmLab) -> Any:
    return json.loads(kvm.machine.run("cat", str(kvm.lab.home / KEPT)).stdout)


@pytest.fixture(scope="module")
def found(kvm: KvmLab) -> dict[str, tuple[str, str]]:
    return findings(doctor(kvm))


def test_the_doctor_boots_a_kernel_under_kvm_stores_that_and_sees_what_the_machine_lacks(
    kvm: KvmLab, found: dict[str, tuple[str, str]]
) -> None:
    assert found["live mode (KVM)"] == ("ok", "a kernel boots under KVM")
    assert kept_probe(kvm)["reason"] is None
    assert found["hardware counters"][0] == "limited" and "no PMU" in found["hardware counters"][1]
    assert found["live: governor"][0] == "limited"
    assert found["packages"][0] == "ok"


def test_fix_sets_what_there_is_to_set_and_restore_puts_it_back(kvm: KvmLab) -> None:
    before = switches(kvm)
    assert before.items().isdisjoint(SWITCHES.items()), "else nothing is tested"
    fixed = as_root(kvm, "doctor", "--fix", "--json")
    assert fixed.returncode == 0, fixed.stderr
    assert switches(kvm) == SWITCHES
    outcomes = {one["name"]: one["outcome"] for one in json.loads(fixed.stdout)["changes"]}
    assert (outcomes["THP"], outcomes["swap"], outcomes["governor"]) == ("set", "set", "absent")
    assert findings(json.loads(fixed.stdout))["live: THP"][0] == "ok"
    restored = as_root(kvm, "doctor", "--restore", "--json")
    assert restored.returncode == 0, restored.stderr
    assert switches(kvm) == before


# ---- kernels that boot nowhere

_NEWEST = """\
from lab.guests import kvm
print(next(kvm.kernels_to_try()))
"""


def test_a_newest_kernel_that_boots_nowhere_says_nothing_about_kvm(kvm: KvmLab, found: object) -> None:
    asked = kvm.machine.run(*kvm.as_user(str(kvm.lab.python), "-c", _NEWEST), env=kvm.environment())
    newest = asked.stdout.strip()
    kvm.machine.put(Path("/run/nowhere"), "no kernel at all\n", "root")
    assert kvm.machine.run("mount", "--bind", "/run/nowhere", newest).returncode == 0, asked.stderr
    try:
        assert findings(doctor(kvm))["live mode (KVM)"] == ("ok", "a kernel boots under KVM")
    finally:
        kvm.machine.run("umount", newest)


# ---- the limits and the CPU of guests

_PICKY = """\
#!/bin/sh
for word; do
    [ "$last" != -cpu ] || model=$word
    last=$word
done
case "$model $*" in "host "*kvm*)
    echo "qemu-system-x86_64: error: failed to set MSR 0x10a to 0x0" >&2
    exit 1 ;;
esac
exec qemu-system-x86_64 "$@"
"""
"""A QEMU as on hosts whose hypervisor does not let it write IA32_ARCH_CAPABILITIES."""


def test_the_time_of_a_guest_is_that_of_what_prepares_it(kvm: KvmLab, found: object) -> None:
    said = kvm.refused(4, *AB, *LIVE, "--rounds", "1", "--guest-timeout", "1s")
    assert "vng" in said and "--guest-timeout" in said


def test_guests_have_the_cpu_that_the_probe_came_up_with(kvm: KvmLab, found: object) -> None:
    picky = Path("/run/picky/qemu-system-x86_64")
    kvm.machine.put(picky, _PICKY, "root")
    kvm.machine.run("rm", str(kvm.lab.home / KEPT))
    document = kvm.json(*AB, *LIVE, "--rounds", "1", "--qemu", str(picky))
    assert document["environment"]["cpu"] == "host,-arch-capabilities"
    assert kept_probe(kvm)["cpu"] == "host,-arch-capabilities"


# ---- KVM that comes and goes


@pytest.fixture
def kvm_gone(kvm: KvmLab, found: object) -> Iterator[KvmLab]:
    """A /dev/kvm that opens, and is none."""
    assert kvm.machine.run("mount", "--bind", "/dev/null", "/dev/kvm").returncode == 0
    yield kvm
    kvm.machine.run("umount", "/dev/kvm")


def test_a_kvm_that_comes_and_goes_is_what_the_doctor_found_last(kvm_gone: KvmLab) -> None:
    state, text = findings(doctor(kvm_gone))["live mode (KVM)"]
    assert state == "limited" and "no kernel boots under it" in text
    assert kept_probe(kvm_gone)["reason"], "asked anew though a yes was kept, and stored"
    kvm_gone.machine.run("umount", "/dev/kvm")
    said = kvm_gone.refused(4, *AB, *LIVE)
    assert "no kernel boots under it" in said and "kvm.json" in said, "a no is kept, and says where"
    assert "no kernel boots under it" in kvm_gone.refused(4, "shell", BASE, "--accel", "kvm", "--", "true")
    assert findings(doctor(kvm_gone))["live mode (KVM)"][0] == "ok"
    assert kept_probe(kvm_gone)["reason"] is None
