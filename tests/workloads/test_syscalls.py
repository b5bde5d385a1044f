"""syscalls, compiled and run on this machine: every case of its table, what it prints, what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab.core.paths import data_folder
from lab.workloads import selection

from .test_alloc_burst import build, needs_compiler

FOLDER = data_folder("workloads") / "syscalls"
GROUPS = {"fs", "ipc", "mm", "net", "poll", "process", "sched", "security", "signal", "time"}
CASES = [case.name for case in selection.load("syscalls").cases]

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(FOLDER, tmp_path_factory.mktemp("build")) / "syscalls"


def run(program: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *words], capture_output=True, text=True, env=environment, check=False, timeout=60)


def in_tables() -> set[str]:
    """The names of all operations in the C sources."""
    found = (re.findall(r'^\t\{ "([a-z0-9-]+)", \w+, ', path.read_text(), re.MULTILINE) for path in FOLDER.glob("*.c"))
    return {name for names in found for name in names}


def measured(program: Path, case: str, **environment: str) -> Any:
    """The metrics of a case; the test is skipped if this kernel, or a container on it, does not offer the case."""
    done = run(program, "--case", case, **environment)
    if done.returncode == 4:
        assert done.stdout == ""
        assert re.fullmatch(r"syscalls: not supported on this kernel: .+: .+\n", done.stderr)
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert list(document) == ["metrics"]
    return document["metrics"]


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


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--case", "nothing"), "case 'nothing': no such operation"),
        (("--case", "mprotect-private-5"), "its size is a multiple of 4k, at most 64m"),
        (("--case", "mprotect-shared-65m"), "its size is a multiple of 4k, at most 64m"),
        ((), "usage: syscalls --case NAME"),
    ],
)
def test_other_names_are_misuse(program: Path, words: tuple[str, ...], complaint: str) -> None:
    done = run(program, *words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stdout == ""
