"""syscalls, compiled and run on this machine: every case of its table, and what it prints."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.core.paths import data_folder
from lab.workloads import selection

from .programs import document_of, needs_compiler, run

FOLDER = data_folder("workloads") / "syscalls"
GROUPS = {"fs", "ipc", "mm", "net", "poll", "process", "sched", "security", "signal", "time"}
CASES = [case.name for case in selection.load("syscalls").cases]

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def program(compiled: Callable[[str], Path]) -> Path:
    return compiled("syscalls")


def in_tables() -> set[str]:
    """The names of all operations in the C sources."""
    found = (re.findall(r'^\t\{ "([a-z0-9-]+)", \w+, ', path.read_text(), re.MULTILINE) for path in FOLDER.glob("*.c"))
    return {name for names in found for name in names}


def measured(program: Path, case: str, **environment: str) -> Any:
    """The metrics of a case."""
    done = run(program, "--case", case, **environment)
    metrics = document_of("syscalls", done)["metrics"]
    assert done.stderr == ""
    return metrics


@pytest.mark.parametrize("case", CASES)
def test_a_case_runs_and_gives_declared_metrics_only(program: Path, case: str) -> None:
    metrics = measured(program, case)
    assert set(metrics) == {metric.name for metric in selection.load("syscalls").metrics}
    assert metrics["ops"] >= 3
    assert metrics["operation_time"] > 0


def test_every_operation_is_a_case_of_a_group() -> None:
    loaded = selection.load("syscalls")
    assert set(loaded.groups) == GROUPS
    assert all(case.group for case in loaded.cases)
    assert in_tables() == {name for name in CASES if not re.fullmatch(loaded.case_pattern, name)}


def test_the_first_touch_faults_once_in_each_operation(program: Path) -> None:
    for case in ("fault-anon", "fault-shared"):
        metrics = measured(program, case)
        assert metrics["ops"] <= metrics["page_faults"] <= metrics["ops"] + 8, case


@pytest.mark.parametrize("case", ["stat-deep", "fork-exit", "madvise-dontneed"])
def test_neither_the_seed_nor_the_environment_changes_the_work(program: Path, case: str) -> None:
    counts = {measured(program, case, LAB_SEED=str(seed), LAB_PAD="x" * seed)["ops"] for seed in (1, 77)}
    assert len(counts) == 1
