"""syscalls in real guests: every case runs or says what its kernel lacks; packages differ where it is known."""

from typing import Any

import pytest

from lab.workloads import selection

from .conftest import FIX, Lab, verdicts

pytestmark = pytest.mark.guest


@pytest.mark.build
def test_every_case_that_needs_no_more_runs_on_the_smallest_kernel_or_says_what_it_lacks(story: Lab) -> None:
    # The others would have the lab build another kernel.
    syscalls = selection.load("syscalls")
    names = ",".join(case.name for case in syscalls.cases if not syscalls.kconfig_of(case))
    document = story.ab(FIX, FIX, "-w", f"syscalls:{names}", "--seeds", "1")
    # Guard regions are of v6.13.
    lacking = [(case["case"], case["failed"]["kind"]) for case in document["cases"] if case["failed"]]
    assert lacking == [("madvise-guard", "unsupported")]
    for case in document["cases"]:
        if not case["failed"]:
            primary = case["metrics"][0]
            assert primary["name"] == "kernel_cycles_p50" and primary["base"] == primary["test"], case["case"]
    (smallest,) = story.json("kernel", "build", FIX)["kernels"]
    assert document["base"]["build"] == smallest["build"]


@pytest.mark.network
def test_every_case_runs_on_a_distributors_kernel(lab: Lab) -> None:
    document = lab.ab("deb:6.1", "deb:6.12", "-w", "syscalls")
    # Guard regions are of v6.13.
    assert [case["case"] for case in document["cases"] if case["failed"]] == ["madvise-guard"]
    found = verdicts(document)
    # Since v6.11 an empty path with AT_EMPTY_PATH costs hardly more than fstat() itself.
    assert found["fstat-empty-path"] == "improvement"
    # More instructions, but less for strings among them.
    assert found["fstat"] in ("same", "unknown")
    assert found["getppid"] == "same"
    # 6.1 copies 16 bytes by a string, as kernels do on CPUs without ERMS; 6.12 does not.
    assert found["clock-gettime"] == "unknown"
    assert require_agreement(document) > 180


def require_agreement(document: Any) -> int:
    """No case is called a change whose instructions certainly moved the other way; gives the number of cases."""
    compared = 0
    for case in document["cases"]:
        metrics = {metric["name"]: metric for metric in case["metrics"]}
        cycles, count = metrics["kernel_cycles_p50"], metrics["kernel_instructions"]
        if case["failed"] or not cycles["ratio"] or not count["interval"]:
            continue
        compared += 1
        low, high = count["interval"]
        other = low > 1.02 if cycles["ratio"] < 1 else high < 0.98
        if other:
            assert case["verdict"] in ("same", "unknown"), (case["case"], cycles["ratio"], count["ratio"])
        if "rests on the model" in cycles["reason"]:
            assert case["verdict"] == "unknown", case["case"]
            strings = "without the starts of strings" in cycles["reason"]
            assert strings or (cycles["ratio"] > 1) != (count["ratio"] > 1), case["case"]
    return compared


@pytest.mark.network
def test_what_a_seed_places_elsewhere_moves_no_case(lab: Lab) -> None:
    # The greatest difference between seeds, in percent. The operations of vfork-exec are not all of one kind.
    most = {"posix-mq": 0.5, "madvise-remove": 0.5, "madvise-pageout": 0.5, "vfork-exec": 1.0}
    words = ("-w", f"syscalls:{','.join(most)}", "--seeds", "3")
    document = lab.ab("deb:6.12", "deb:trixie-backports/6.16", *words)
    apart = {
        (case["case"], arm): 100 * (max(metric[arm]) / min(metric[arm]) - 1)
        for case in document["cases"]
        for metric in case["metrics"]
        if metric["name"] == "kernel_cycles_p50"
        for arm in ("base", "test")
    }
    assert len(apart) == 8
    assert {key: percent for key, percent in apart.items() if percent > most[key[0]]} == {}
