"""latency in real guests: time-outs end when they are due, seeds are equal, and a kernel without io_uring says so."""

import pytest

from .conftest import NEW, OLD, Lab

pytestmark = [pytest.mark.guest, pytest.mark.network]

TICK_NS = 4_000_000
"""Of Debian's kernels, whose CONFIG_HZ is 250."""


def test_no_time_out_waits_for_a_tick(lab: Lab) -> None:
    document = lab.ab(OLD, NEW, "-w", "latency:timers", "--seeds", "1")
    assert document["cases"]
    for case in document["cases"]:
        assert not case["failed"], case["failed"]
        (median,) = [metric for metric in case["metrics"] if metric["name"] == "latency_p50"]
        # Beyond a tick, half of all time-outs would be late by at least an eighth of one.
        assert max(*median["base"], *median["test"]) < TICK_NS / 8, case["case"]


def test_one_kernel_run_twice_waits_equally_long(lab: Lab) -> None:
    cases = "latency:nanosleep,uring-timeout,timerfd-busy,wake-pipe"
    found = lab.json("aa", NEW, "--mode", "exact", "-w", cases, "--seeds", "3")["certificates"]
    assert [one["verdict"] for one in found] == ["same"] * 4
    assert all(one["equal"] and one["metric"] == "latency_mid" for one in found)


def test_a_kernel_without_io_uring_says_so(lab: Lab) -> None:
    without = f"{NEW}@sysctl.kernel.io_uring_disabled=2"
    document = lab.ab(without, without, "-w", "latency:uring-timeout,nanosleep", "--seeds", "1")
    failed = {case["case"]: case["failed"]["kind"] if case["failed"] else None for case in document["cases"]}
    assert failed == {"uring-timeout": "unsupported", "nanosleep": None}
