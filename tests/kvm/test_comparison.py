"""Comparisons under KVM: vCPUs on their CPUs, A/A, stopped and killed ones, and exact mode beside them."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from ..guest.conftest import Lab
from .conftest import AB, ARMS, CASE, LIVE, TEST, KvmLab, counted, counters, cpus_of

pytestmark = pytest.mark.kvm

_TWO = """\
#!/bin/sh
[ "$(grep -c ^processor /proc/cpuinfo)" = 2 ]
"""
"""A program that fails in a guest that has not two CPUs."""


# ---- two vCPUs


def test_two_vcpus_are_on_two_cpus_and_the_guest_has_both(kvm: KvmLab) -> None:
    script = kvm.lab.home / "scripts" / "two.sh"
    kvm.machine.put(script, _TWO, kvm.lab.user)
    with kvm.watched() as seen:
        document = kvm.json("ab", *ARMS, "-w", f"script:{script}", *LIVE, "--cpus", "2", "--rounds", "1")
    (done,) = counted(document)
    assert [boot["cpus"] for boot in done["boots"]] == [[0, 1]] * 2
    pinned = {process for (_, process), cpus in cpus_of(seen).items() if {"0", "1"} <= {*cpus}}
    assert len(pinned) >= 2, seen


# ---- A/A


def test_a_certificate_of_one_round_claims_to_resolve_nothing(kvm: KvmLab) -> None:
    document = kvm.json("aa", TEST, "-w", CASE, *LIVE, "--rounds", "1")
    (made,) = document["certificates"]
    assert (made["mode"], made["accelerator"], made["pairs"], made["verdict"]) == ("live", "kvm", 1, "unknown")
    assert made["resolves"] in ({}, []), made
    assert "resolves 0.0 %" not in kvm.run("aa", "--list").stdout


# ---- stopped and killed


def _digests(kvm: KvmLab, folder: Path) -> dict[str, str]:
    """The SHA-256 of a folder's files in the machine, by path."""
    found = kvm.machine.run("find", str(folder), "-type", "f", "-exec", "sha256sum", "{}", "+").stdout
    return {path: digest for digest, path in (line.split(maxsplit=1) for line in found.splitlines())}


def test_a_comparison_that_is_stopped_and_killed_goes_on_and_ends_as_any_other(kvm: KvmLab, exact: Any) -> None:
    folder = kvm.lab.home / "live-kvm-interrupted"
    boots = folder / "boots"
    ended = kvm.stop_when(boots, 1, "INT", *AB, *LIVE, "--rounds", "2", "--result", str(folder))
    assert ended.returncode == 130, ended
    assert "lab ab --resume " in ended.stderr and "Traceback" not in ended.stderr
    stopped = _digests(kvm, boots)
    ended = kvm.stop_when(boots, len(stopped) + 1, "KILL", "ab", "--resume", str(folder))
    assert ended.returncode == 128 + 9, ended
    assert not any("qemu" in name for name in kvm.processes()), "no guest outlives the lab"
    killed = _digests(kvm, boots)
    document = kvm.json("ab", "--resume", str(folder))
    finished = _digests(kvm, boots)
    assert 1 <= len(stopped) < len(killed) <= len(finished) == 4
    assert stopped.items() <= killed.items() <= finished.items(), "nothing is measured again"
    assert [one["number"] for one in counted(document)] == [1, 2]
    assert document["verdict"] == "unknown", "two rounds decide nothing"
    assert counters(document, "page_faults", "vmas") == counters(exact, "page_faults", "vmas")


# ---- exact mode in the machine


def test_the_time_of_a_guest_reaches_those_of_a_stored_result(kvm: KvmLab, exact: Any) -> None:
    said = kvm.refused(4, "replay", exact["result"], "--guest-timeout", "1s")
    stopped = re.search(r"stopped after (\d+) s", said)
    # A machine that is slow takes a little longer; the result's own limit is minutes.
    assert stopped and 1 <= int(stopped[1]) < 10 and "--guest-timeout" in said


def test_exact_mode_is_equal_to_the_byte_under_another_kernel_and_cpu(kvm: KvmLab, story: Lab, exact: Any) -> None:
    inside = kvm.json(*AB, "--mode", "exact", "--seeds", "1")
    assert inside["cases"] == exact["cases"]
    assert inside["environment"] == exact["environment"]
    results = story.home / ".local/share/kernel-ab-lab/results"
    ours, theirs = (results / document["result"] / "guests" for document in (exact, inside))
    outside = {
        str(path.relative_to(ours)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in ours.rglob("*")
        if path.is_file()
    }
    found = {str(Path(path).relative_to(theirs)): digest for path, digest in _digests(kvm, theirs).items()}
    assert found == outside and any(path.endswith("costs.jsonl") for path in found)
