"""syscalls, compiled and run on this machine: every case of its table, and what it prints."""

from pathlib import Path
from typing import Any

import pytest

from lab.workloads import selection

from .programs import document_of, needs_compiler, run

WORKLOAD = "syscalls"
CASES = [case.name for case in selection.load(WORKLOAD).cases]

pytestmark = needs_compiler


def measured(program: Path, case: str, **environment: str) -> Any:
    done = run(program, "--case", case, **environment)
    metrics = document_of(WORKLOAD, done)["metrics"]
    assert done.stderr == ""
    return metrics


@pytest.mark.parametrize("case", CASES)
def test_a_case_runs_and_gives_declared_metrics_only(program: Path, case: str) -> None:
    metrics = measured(program, case)
    assert set(metrics) == {metric.name for metric in selection.load(WORKLOAD).metrics}
    assert metrics["ops"] >= 3
    assert metrics["operation_time"] > 0


def test_the_first_touch_faults_once_in_each_operation(program: Path) -> None:
    for case in ("fault-anon", "fault-shared"):
        metrics = measured(program, case)
        assert metrics["ops"] <= metrics["page_faults"] <= metrics["ops"] + 8, case


@pytest.mark.parametrize("case", ["stat-deep", "fork-exit", "madvise-dontneed"])
def test_neither_the_seed_nor_the_environment_changes_the_work(program: Path, case: str) -> None:
    counts = {measured(program, case, LAB_SEED=str(seed), LAB_PAD="x" * seed)["ops"] for seed in (1, 77)}
    assert len(counts) == 1
