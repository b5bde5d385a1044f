"""The boot, and what every guest offers its programs: measured in real guests."""

import pytest

from .conftest import NEW, Lab, metrics

pytestmark = pytest.mark.guest


def test_a_boot_costs_the_same_whatever_the_seed(lab: Lab) -> None:
    document = lab.ab(NEW, NEW, "-w", "boot", "--seeds", "3")
    found = metrics(document)
    cycles, count, time = found["kernel_cycles"], found["kernel_instructions"], found["boot_time"]
    assert cycles["primary"] and len({*cycles["base"], *cycles["test"]}) == 1
    # An instruction takes 16 ns there, and the kernel waits for next to nothing.
    assert 0.5 < 16 * count["base"][0] / time["base"][0] < 1.5
    why = lab.json("explain", document["result"])
    assert len(why["initcalls"]) > 200 and all(call["base"] == call["test"] for call in why["initcalls"])
    # What the log costs is in it, and not in the measurement.
    logged_ns = 1000 * sum(call["base"] for call in why["initcalls"])
    assert time["base"][0] < logged_ns < 2 * time["base"][0]
    assert 0 < found["percpu_kb"]["base"][0] < found["slab_kb"]["base"][0] < found["mem_available_kb"]["base"][0]


@pytest.mark.parametrize(
    "selection",
    ["perf-bench:sched-pipe", "hackbench:pipes-threads", "fsmark:create-4k", "sysbench:threads", "python:files"],
)
def test_a_packaged_program_does_the_same_in_both_arms(lab: Lab, selection: str) -> None:
    found = metrics(lab.ab(NEW, NEW, "-w", selection, "--seeds", "2"))
    (primary,) = (metric for metric in found.values() if metric["primary"])
    assert primary["name"] == "cycles_per_op"
    assert primary["base"] == primary["test"] and min(primary["base"]) > 0


def test_bytes_go_over_the_loopback_interface(lab: Lab) -> None:
    found = metrics(lab.ab(NEW, NEW, "-w", "iperf3:tcp", "--seeds", "2"))
    assert found["bits_per_second"]["base"] == found["bits_per_second"]["test"]
    assert min(found["bits_per_second"]["base"]) > 1e6
