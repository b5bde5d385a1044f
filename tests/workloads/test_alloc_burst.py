"""alloc-burst, compiled and run on this machine: what it prints, and what must hold."""

from pathlib import Path

import pytest

from lab.workloads import selection

from .programs import document_of, needs_compiler, run

WORKLOAD = "alloc-burst"
PAGE = 4096
EXACT = ("throughput", "latency_p50", "latency_p95", "latency_p99", "page_faults", "ops")

pytestmark = needs_compiler


def measure(program: Path, case: str, seed: int = 1) -> dict[str, float]:
    metrics: dict[str, float] = document_of(WORKLOAD, run(program, "--case", case, LAB_SEED=str(seed)))["metrics"]
    for name in EXACT:
        assert metrics[name] > 0, name
    assert metrics["latency_p50"] <= metrics["latency_p95"] <= metrics["latency_p99"]
    return metrics


def test_every_case_of_the_sweep_runs(program: Path) -> None:
    for case in selection.load(WORKLOAD).cases:
        measure(program, case.name)


@pytest.mark.parametrize(("case", "lengths"), [
    ("layout-512k", [512] * 128),
    ("layout-2052k", [2052] * 31),
    ("layout-8m", [8192] * 8),
    ("layout-6000k-mmap", [6000] * 10),
    ("layout-6000k-malloc", [6000] * 5),
    ("alternate-2048k-1400k", [2048, 1400] * 28),
])  # fmt: skip
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


def test_a_burst_depends_on_its_seed_alone(program: Path) -> None:
    def sequence(seed: int) -> float:
        return measure(program, "burst-512k-1800k", seed=seed)["page_faults"]

    # The sizes drawn show in the faults, give or take huge pages; without those they are exact.
    if measure(program, "layout-4m").get("thp_fault_alloc", 0) > 0:
        pytest.skip("this machine gives huge pages, so fault counts depend on where buffers lie")
    assert sequence(1) == sequence(1)
    assert len({sequence(seed) for seed in range(5)}) > 1
