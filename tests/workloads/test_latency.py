"""latency, compiled and run on this machine: its table of cases, what it prints, what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.core.paths import data_folder
from lab.workloads import selection

from .test_alloc_burst import build

FOLDER = data_folder("workloads") / "latency"

pytestmark = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("make")), reason="needs gcc and make to compile the workload"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(FOLDER, tmp_path_factory.mktemp("build")) / "latency"


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"LAB_SEED": "1"}
    return subprocess.run([program, *words], capture_output=True, text=True, env=env, check=False, timeout=60)


@pytest.mark.parametrize("case", ["nanosleep", "posix-timer", "setitimer-running", "uring-timeout", "wake-futex"])
def test_a_case_runs_and_gives_declared_metrics_only(program: Path, case: str) -> None:
    done = run(program, "--case", case)
    if done.returncode == 4:
        assert re.fullmatch(r"latency: not supported on this kernel: \w+: .+\n", done.stderr)
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)["metrics"]
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


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(("--case", "nothing"), "case 'nothing': no such case"), ((), "usage: latency --case NAME")],
)
def test_other_names_are_misuse(program: Path, words: tuple[str, ...], complaint: str) -> None:
    done = run(program, *words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stdout == ""
