"""Live mode under KVM: the part of `make kvm` that `make test` has, one comparison of one round."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from .conftest import AB, KvmLab

pytestmark = pytest.mark.kvm

ROOMS = Path(__file__).resolve().parents[2]
RESULT = "live-kvm"
COUNTERS = ("page_faults", "thp_fault_alloc", "vmas")

# The CPUs of each thread of each QEMU, seen once a second.
_WATCH = """\
while [ ! -e /mnt/watched ]; do
    for task in /proc/[0-9]*/task/*/; do
        read -r name <"$task/comm"
        case "$name" in qemu-system*|CPU*) ;; *) continue ;; esac
        while read -r key value; do
            case "$key" in
            Cpus_allowed_list:) echo "$task $value" ;;
            esac
        done <"$task/status"
    done 2>/dev/null
    sleep 1
done
"""


@pytest.fixture(scope="module")
def watched(kvm: KvmLab) -> list[tuple[str, str, str]]:
    """A comparison by `--mode auto`, and meanwhile the process, the thread and the CPUs of all threads of QEMU."""
    watch = kvm.machine.start("bash", "-c", _WATCH)
    kvm.results["live"] = kvm.json(*AB, "--rounds", "1", "--iterations", "1", "--result", str(kvm.lab.home / RESULT))
    (kvm.machine.folder / "watched").touch()
    lines = kvm.machine.wait(watch).stdout.splitlines()
    found = [re.fullmatch(r"/proc/(\d+)/task/(\d+)/ (\S+)", line) for line in lines]
    return sorted({match.groups() for match in found if match})


@pytest.fixture
def compared(kvm: KvmLab, watched: object) -> Any:
    """The document of the comparison."""
    return kvm.results["live"]


def test_the_mode_is_live_and_the_accelerator_kvm(compared: Any) -> None:
    assert (compared["mode"], compared["live"]["accelerator"]) == ("live", "kvm")
    assert compared["environment"]["cpu"] == "host"
    (qemu,) = {*(command["qemu"][0] for command in compared["live"]["commands"]["alloc-burst"].values())}
    assert qemu.endswith("qemu-system-x86_64")
    assert [one["number"] for one in compared["live"]["rounds"] if one["state"] in ("kept", "disturbed")] == [1]
    assert compared["live"]["planned_rounds"] == 1
    assert compared["live"]["perf"] is None, "this host has no PMU"


def test_the_document_follows_its_schema(compared: Any) -> None:
    schema = json.loads((ROOMS / "reports" / "schemas" / "lab.ab-1.json").read_text())
    jsonschema.validate(compared, schema)


def test_counters_are_those_of_exact_mode(compared: Any, exact: Any) -> None:
    live, modelled = (
        {m["name"]: (m["base"][0], m["test"][0]) for m in document["cases"][0]["metrics"] if m["name"] in COUNTERS}
        for document in (compared, exact)
    )
    assert live == modelled and set(live) == {*COUNTERS}


def test_every_vcpu_was_on_its_host_cpu(compared: Any, watched: list[tuple[str, str, str]]) -> None:
    (cpus,) = {tuple(boot["cpus"]) for one in compared["live"]["rounds"] for boot in one["boots"]}
    by_guest: dict[str, list[str]] = {}
    for process, _, allowed in watched:
        by_guest.setdefault(process, []).append(allowed)
    vcpu, others = str(cpus[0]), str(1 - cpus[0])
    pinned = [seen for seen in by_guest.values() if vcpu in seen]
    assert len(pinned) >= 2, by_guest
    assert all(seen.count(vcpu) == 1 and others in seen for seen in pinned), by_guest


def test_the_answer_of_the_probe_is_kept(kvm: KvmLab, compared: Any) -> None:
    kept = kvm.machine.run("cat", str(kvm.lab.home / ".cache/kernel-ab-lab/checks/kvm.json"))
    assert json.loads(kept.stdout)["reason"] is None


def test_no_qemu_is_left(kvm: KvmLab, compared: Any) -> None:
    names = kvm.machine.run("bash", "-c", "cat /proc/[0-9]*/comm").stdout
    assert "bash" in names and "qemu" not in names


def test_a_user_without_permission_is_told_the_group(kvm: KvmLab) -> None:
    stranger = KvmLab(kvm.machine, kvm.lab, groups="4243")
    done = stranger.run(*AB, "--mode", "live", "--accel", "kvm")
    assert done.returncode == 4 and "not for this user" in done.stderr and "4242" in done.stderr
