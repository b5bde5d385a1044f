"""A duet under KVM: both arms at once, each on its CPU.

Two guests at once came up in two of five machines of QEMU's emulation, and each of these guests alone in all. So no
commit asks for this file.
"""

import json
from typing import Any

import pytest

from .conftest import AB, LIVE, KvmLab, QemuThread, counted, counters, cpus_of

pytestmark = pytest.mark.kvm


@pytest.fixture(scope="module")
def duet(kvm: KvmLab) -> tuple[Any, list[QemuThread]]:
    """Two rounds with both arms at once, and the threads of QEMU meanwhile."""
    with kvm.watched() as seen:
        done = kvm.run(*AB, *LIVE, "--duet", "--rounds", "2", "--json")
    if "its guest died 3 times" in done.stderr:
        kvm.machine.lost("does not run two guests at once")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), seen


def test_the_arms_of_a_duet_swap_their_cpus(duet: tuple[Any, list[QemuThread]]) -> None:
    rounds = [{boot["arm"]: boot["cpus"] for boot in one["boots"]} for one in counted(duet[0])]
    assert rounds[0] in ({"base": [0], "test": [1]}, {"base": [1], "test": [0]})
    assert rounds[1] == {"base": rounds[0]["test"], "test": rounds[0]["base"]}


def test_the_arms_of_a_duet_run_at_once_each_on_its_own_cpu(duet: tuple[Any, list[QemuThread]]) -> None:
    pinned: dict[int, set[str]] = {}
    for (look, process), cpus in cpus_of(duet[1]).items():
        for cpu in {"0", "1"} & {*cpus}:
            pinned.setdefault(look, set()).add(f"{cpu} {process}")
    both = [seen for seen in pinned.values() if {one[0] for one in seen} == {"0", "1"}]
    assert both and all(len({one.split()[1] for one in seen}) == 2 for seen in both), pinned


def test_counters_of_a_duet_are_those_of_exact_mode(duet: tuple[Any, list[QemuThread]], exact: Any) -> None:
    names = ("page_faults", "vmas")
    assert counters(duet[0], *names) == counters(exact, *names)
