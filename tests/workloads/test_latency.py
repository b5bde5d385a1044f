"""latency, compiled and run on this machine: its table of cases, and what it prints."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.core.paths import data_folder
from lab.workloads import selection

from .programs import document_of, needs_compiler, run

FOLDER = data_folder("workloads") / "latency"

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def program(compiled: Callable[[str], Path]) -> Path:
    return compiled("latency")


@pytest.mark.parametrize("case", ["nanosleep", "posix-timer", "setitimer-running", "uring-timeout", "wake-futex"])
def test_a_case_runs_and_gives_declared_metrics_only(program: Path, case: str) -> None:
    metrics = document_of("latency", run(program, "--case", case))["metrics"]
    assert set(metrics) == {metric.name for metric in selection.load("latency").metrics}
    assert metrics["ops"] == 500
    assert 0 < metrics["grain"] <= metrics["latency_p50"] <= metrics["latency_p99"] <= metrics["latency_max"]
    assert metrics["grain"] <= metrics["latency_mid"] <= metrics["latency_p99"]


def test_every_kind_of_waiting_is_a_case_of_a_group() -> None:
    loaded = selection.load("latency")
    found = {
        name for path in FOLDER.glob("*.c") for name in re.findall(r'^\t\{ "([a-z0-9-]+)",', path.read_text(), re.M)
    }
    assert found == {case.name for case in loaded.cases}
    assert set(loaded.groups) == {"timers", "busy", "wake"} and all(case.group for case in loaded.cases)


def test_the_guests_clock_decides_by_the_middle_half() -> None:
    loaded = selection.load("latency")
    assert loaded.model == "none" and loaded.primary.name == "latency_mid"
    rings = [case.name for case in loaded.cases if loaded.kconfig_of(case)]
    assert rings == [case.name for case in loaded.cases if case.name.startswith("uring-")]
