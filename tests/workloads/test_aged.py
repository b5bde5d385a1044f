"""compaction-stall and large-alloc, compiled and run here on fresh memory; ageing is for guests only."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.core.paths import data_folder

from .programs import document_of, needs_compiler

pytestmark = needs_compiler

SHARED = data_folder("workloads") / "include"
Compiled = Callable[[str], Path]


def limited(program: Path, case: str, **env: str) -> subprocess.CompletedProcess[str]:
    # Never more than 200 MB: should ageing ever begin here, it must not get far.
    shell = ["sh", "-c", 'ulimit -v 200000; exec "$@"', "sh"]
    return subprocess.run(
        [*shell, program, "--case", case], capture_output=True, text=True, env=env, check=False, timeout=60
    )


def measure(program: Path, case: str) -> Any:
    return document_of(program.name, limited(program, case, LAB_SEED="1"))


def test_first_touches_are_counted_and_timed(compiled: Compiled) -> None:
    metrics = measure(compiled("compaction-stall"), "fault-20-fresh")["metrics"]
    assert metrics["ops"] == 20
    assert 0 < metrics["latency_p50"] <= metrics["latency_p95"] <= metrics["latency_p99"] <= metrics["latency_max"]
    assert metrics["throughput"] > 0


@pytest.mark.parametrize(("size", "steps"), [("64k", 16), ("4m", 64), ("6144k", 64), ("4k", 1)])
def test_a_vector_is_zeroed_step_by_step(compiled: Compiled, size: str, steps: int) -> None:
    document = measure(compiled("large-alloc"), f"zero-{size}-fresh")
    metrics = document["metrics"]
    assert metrics["ops"] == steps
    assert metrics["latency_p50"] <= metrics["latency_max"] <= metrics["total_time"]
    assert metrics["page_faults"] >= 1


def test_the_curve_grows_to_the_vectors_size(compiled: Compiled) -> None:
    document = measure(compiled("large-alloc"), "zero-64m-fresh")
    curve = document["series"]["rss"]
    assert len(curve) == 1 + document["metrics"]["ops"]
    assert curve[0] == [0, 0]
    assert curve == sorted(curve)
    assert curve[-1][0] == document["metrics"]["total_time"]
    # The kernel counts resident pages in batches for each CPU.
    assert curve[-1][1] == pytest.approx(64 << 10, rel=0.05)


@pytest.mark.parametrize(("program", "case"), [("compaction-stall", "fault-8-pinned"), ("large-alloc", "zero-4k-aged")])
def test_no_machine_is_aged_but_a_guest(compiled: Compiled, program: str, case: str) -> None:
    done = limited(compiled(program), case)
    assert (done.returncode, done.stdout) == (1, "")
    assert "this is not a lab guest" in done.stderr


# --- what the programs share, called from here ---


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("shared") / "shared.so"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-shared", "-fPIC", f"-I{SHARED}"]
    subprocess.run(["gcc", *flags, "-o", library, SHARED / "lab" / "program.c"], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.program_percentile.restype = ctypes.c_longlong
    return loaded


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [(1, 50, 1), (2, 50, 1), (3, 50, 2), (80, 50, 40), (80, 95, 76), (80, 99, 80), (100, 99, 99), (64, 100, 64)],
)
def test_percentiles_are_of_the_nearest_rank(shared: ctypes.CDLL, count: int, percent: int, expected: int) -> None:
    values = (ctypes.c_longlong * count)(*range(count, 0, -1))
    shared.program_sort(values, ctypes.c_size_t(count))
    assert list(values) == list(range(1, count + 1))
    assert shared.program_percentile(values, ctypes.c_size_t(count), percent) == expected
