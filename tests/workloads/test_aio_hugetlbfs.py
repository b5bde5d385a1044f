"""aio-hugetlbfs, compiled and run on a file of this machine: what it prints, and what must hold."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.workloads import selection

from .programs import document_of, needs_compiler, run

WORKLOAD = "aio-hugetlbfs"
PAGE = 4096
DEVICE_BYTES = 8 << 20

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def device() -> Iterator[Path]:
    """A file that can be read past the page cache, which one in a tmpfs may not be."""
    with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="lab-test-") as file:
        file.write(os.urandom(DEVICE_BYTES))
        file.flush()
        try:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
        except OSError:
            pytest.skip(f"no direct I/O on {file.name}")
        yield Path(file.name)


@pytest.mark.parametrize(("case", "ops", "pages"), [
    ("read-64k-malloc", 4096, 16),
    ("read-1m-malloc", 256, 256),
    ("read-1m-d64-malloc", 512, 256),
    ("read-4k-d1-malloc", 4096, 1),
    ("uring-64k-d8-malloc", 4096, 16),
    ("uring-256k-malloc", 1024, 64),
])  # fmt: skip
def test_a_case_reads_what_it_says_and_pins_each_page(
    program: Path, device: Path, case: str, ops: int, pages: int
) -> None:
    done = run(program, "--case", case, "--device", device)
    if "cannot set up io_uring" in done.stderr:
        pytest.skip("no io_uring here")
    metrics = document_of(WORKLOAD, done)["metrics"]
    assert metrics["ops"] == ops and metrics["throughput"] > 0
    assert 0 < metrics["latency_p50"] <= metrics["latency_p95"] <= metrics["latency_p99"]
    # Others on this machine may pin pages at the same time, and filesystems may do it otherwise than devices.
    if metrics.get("pins_per_read"):
        assert metrics["pins_per_read"] >= pages


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("missing", None, "cannot open"), ("small", b"x" * PAGE, "has 4096 bytes, too few for a read of 65536")],
)
def test_a_device_that_will_not_do(program: Path, device: Path, name: str, content: bytes | None, message: str) -> None:
    path = device.with_name(f"{device.name}-{name}")
    try:
        if content is not None:
            path.write_bytes(content)
        done = run(program, "--case", "read-64k-malloc", "--device", path)
    finally:
        path.unlink(missing_ok=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_lab_knows_the_names_that_the_program_knows() -> None:
    workload = selection.load(WORKLOAD)
    for name in ("read-8k", "read-2m-d64-malloc", "uring-128k-d4-registered", *(case.name for case in workload.cases)):
        assert workload.case(name).name == name
    for name in ("read-64k-registered", "write-64k", "read-64", "read-64k-d0"):
        with pytest.raises(UserError):
            workload.case(name)
    # Whatever pins nothing per read, or nothing of hugetlbfs, is what must not change.
    assert {case.name for case in workload.cases if case.control} == {
        case.name for case in workload.cases if case.name.endswith(("-malloc", "-registered"))
    }
