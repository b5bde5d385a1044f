"""The patterns of workloads that are other people's programs, against what these printed in guests."""

from pathlib import Path

import pytest

from lab.workloads import parsers, selection

DATA = Path(__file__).resolve().parents[1] / "data" / "suites"


def metrics(workload: str, case: str) -> dict[str, float]:
    """The metrics that a workload's patterns find in the output of a case."""
    lines = (DATA / f"{workload}.{case}.txt").read_text().splitlines()
    patterns = {metric.name: metric.pattern for metric in selection.load(workload).metrics if metric.pattern}
    found = {name: parsers.number(lines, pattern) for name, pattern in patterns.items()}
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize(
    ("workload", "case", "expected"),
    [
        ("fsmark", "create-4k", {"files_per_second": 1538.6}),
        ("hackbench", "sockets", {"time": 0.441}),
        # The last one is the receiver's.
        ("iperf3", "tcp", {"bits_per_second": 728754035.919788}),
        ("perf-bench", "syscall-basic", {"total_time": 1.065}),
        ("perf-bench", "sched-pipe", {"total_time": 1.961}),
        # The last line is the mean of ten runs.
        ("perf-bench", "futex-wake", {"wake_time": 47.1054}),
        ("sysbench", "threads", {"total_time": 1.9229, "events": 400}),
    ],
)
def test_the_patterns_find_what_the_program_printed(workload: str, case: str, expected: dict[str, float]) -> None:
    assert metrics(workload, case) == expected
    assert case in [known.name for known in selection.load(workload).cases]
