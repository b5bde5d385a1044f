"""alloc-burst, compiled and run on this machine: what it prints, what it refuses, and what must hold."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.core.paths import data_folder
from lab.workloads import selection

PAGE = 4096
EXACT = ("throughput", "latency_p50", "latency_p95", "latency_p99", "page_faults", "ops")

needs_compiler = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("make")), reason="needs gcc and make to compile the workload"
)
pytestmark = needs_compiler


def build(source: Path, out: Path) -> Path:
    subprocess.run(["make", "-s", "-C", source, f"OUT={out}", "CC=gcc"], check=True, env={"PATH": os.environ["PATH"]})
    return out


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(data_folder("workloads") / "alloc-burst", tmp_path_factory.mktemp("build")) / "alloc-burst"


def run(program: Path, *words: str, seed: int = 1) -> subprocess.CompletedProcess[str]:
    env = {"LAB_SEED": str(seed)}
    return subprocess.run([program, *words], capture_output=True, text=True, env=env, check=False, timeout=60)


def measure(program: Path, case: str, *words: str, seed: int = 1) -> dict[str, float]:
    done = run(program, "--case", case, "--total", "32m", *words, seed=seed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    document = json.loads(done.stdout)
    assert list(document) == ["metrics"]
    metrics: dict[str, float] = document["metrics"]
    for name in EXACT:
        assert metrics[name] > 0, name
    assert metrics["latency_p50"] <= metrics["latency_p95"] <= metrics["latency_p99"]
    return metrics


def test_every_case_of_the_sweep_runs_and_gives_declared_metrics_only(program: Path) -> None:
    loaded = selection.load("alloc-burst")
    declared = {metric.name for metric in loaded.metrics}
    for case in loaded.cases:
        metrics = measure(program, case.name)
        assert set(metrics) <= declared, case.name
        assert set(EXACT) <= set(metrics), case.name


@pytest.mark.parametrize(
    ("case", "lengths"),
    [
        ("layout-512k", [512] * 64),
        ("layout-2052k", [2052] * 15),
        ("layout-8m", [8192] * 4),
        ("layout-6000k-mmap", [6000] * 5),
        ("alternate-2048k-1400k", [2048, 1400] * 14),
    ],
)
def test_layout_maps_what_fits_and_faults_every_page_in(program: Path, case: str, lengths: list[int]) -> None:
    metrics = measure(program, case)
    assert metrics["ops"] == len(lengths)
    pages = sum(lengths) * 1024 // PAGE
    assert pages / 512 <= metrics["page_faults"] <= pages + 64
    if "thp_fault_alloc" in metrics and metrics["thp_fault_alloc"] == 0:
        assert metrics["page_faults"] >= pages
    assert metrics["vmas"] <= len(lengths)


def test_single_touches_all_of_a_buffer_but_one_page_of_a_huge_one(program: Path) -> None:
    small = measure(program, "single-2052k")
    assert small["page_faults"] >= small["ops"] * 513 / 512
    huge = measure(program, "single-128m")
    assert huge["ops"] <= huge["page_faults"] <= huge["ops"] + 16
    assert huge["ops"] > small["ops"]


def test_rounds_and_total_bound_the_work(program: Path) -> None:
    assert measure(program, "single-1m", "--rounds", "3")["ops"] == 3
    assert measure(program, "burst-1m-2m", "--rounds", "50")["ops"] == 50
    assert measure(program, "layout-1m", "--total", "5m")["ops"] == 5


def test_a_burst_depends_on_its_seed_alone(program: Path) -> None:
    def sequence(seed: int) -> float:
        return measure(program, "burst-512k-1800k", seed=seed)["page_faults"]

    # The sizes drawn show in the faults, give or take huge pages; without those they are exact.
    if measure(program, "layout-4m").get("thp_fault_alloc", 0) > 0:
        pytest.skip("this machine gives huge pages, so fault counts depend on where buffers lie")
    assert sequence(1) == sequence(1)
    assert len({sequence(seed) for seed in range(5)}) > 1
    explicit = run(program, "--case", "burst-512k-1800k", "--total", "32m", "--seed", "3", seed=9)
    assert json.loads(explicit.stdout)["metrics"]["page_faults"] == sequence(3)


@pytest.mark.parametrize(
    "case",
    [
        "",
        "layout-",
        "layout-0k",
        "layout-12q",
        "layout-4632k-jemalloc",
        "layout-2m-4m",
        "layout-64m",
        "layout-99999999999999999999k",
        "single-33m",
        "burst-8m-2m",
        "sweep-2m",
    ],
)
def test_bad_names_are_misuse_in_one_line(program: Path, case: str) -> None:
    done = run(program, "--case", case, "--total", "32m")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("alloc-burst: ")


@pytest.mark.parametrize("source", ["workloads/alloc-burst", "images/guest"])
def test_the_same_bytes_from_any_folder(source: str, tmp_path: Path) -> None:
    first, _, rest = source.partition("/")
    here = data_folder(first) / rest
    # The marks' header is found beside the program's folder.
    shutil.copytree(data_folder("workloads") / "include", tmp_path / "other-place" / "workloads" / "include")
    elsewhere = tmp_path / "other-place" / first / rest
    shutil.copytree(here, elsewhere)
    name = "init" if first == "images" else "alloc-burst"
    one = build(here, tmp_path / "one") / name
    two = build(elsewhere, tmp_path / "two" / "deeper") / name
    assert one.read_bytes() == two.read_bytes()
    assert str(tmp_path).encode() not in one.read_bytes()
