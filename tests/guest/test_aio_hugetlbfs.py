"""aio-hugetlbfs on real kernels: what pinning page by page costs reads into huge pages, and whom it costs nothing."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import FIX, Lab, metrics

pytestmark = [pytest.mark.guest, pytest.mark.build]

TAXED = f"{FIX}+hugetlb-pin-tax"
HUGE, CONTROLS = ("read-64k", "read-1m", "uring-64k"), ("read-64k-malloc", "uring-64k-registered")
PATCHES = Path(__file__).resolve().parents[2] / "kernels" / "patches"


@pytest.fixture(scope="module")
def taxed(story: Lab) -> Any:
    cases = ",".join([*HUGE, *CONTROLS])
    return story.ab(FIX, TAXED, "-w", f"aio-hugetlbfs:{cases}", "--seeds", "2")


def test_reads_into_huge_pages_pay_by_their_pages_and_others_nothing(taxed: Any) -> None:
    for case in HUGE:
        throughput, cycles = metrics(taxed, case)["throughput"], metrics(taxed, case)["cycles_per_op"]
        assert all(test < 0.9 * base for base, test in zip(throughput["base"], throughput["test"], strict=True))
        assert all(test > 1.1 * base for base, test in zip(cycles["base"], cycles["test"], strict=True))
    small, large = (metrics(taxed, case)["throughput"]["ratio"] for case in ("read-64k", "read-1m"))
    assert large < small - 0.1
    for case in CONTROLS:
        for name in ("throughput", "cycles_per_op"):
            assert metrics(taxed, case)[name]["ratio"] == pytest.approx(1, abs=0.01)
    pages = {"read-64k": 16, "read-1m": 256, "uring-64k": 16, "read-64k-malloc": 16, "uring-64k-registered": 0}
    for case, expected in pages.items():
        pins = metrics(taxed, case)["pins_per_read"]
        assert set(pins["base"]) == set(pins["test"]) == {expected}


def test_the_same_kernel_without_the_tax_is_as_fast_as_before(story: Lab) -> None:
    without = f"{TAXED}@cmdline.hugetlb_pin_tax=0"
    document = story.ab(FIX, without, "-w", "aio-hugetlbfs:read-1m", "--seeds", "2")
    for name in ("throughput", "cycles_per_op"):
        assert metrics(document, "read-1m")[name]["ratio"] == pytest.approx(1, abs=0.01)


def test_the_locks_are_counted(story: Lab, taxed: Any) -> None:
    document = story.json("explain", taxed["result"], "--case", "read-1m")
    rows = {row["name"]: row for row in document["rows"]}
    assert max(rows, key=lambda name: rows[name]["test_cycles"] - rows[name]["base_cycles"]) == "pay_pin_tax"
    locks = rows["_raw_spin_lock_irqsave"]
    assert document["test_operations"] == document["base_operations"]
    taken = (locks["test_calls"] - locks["base_calls"]) / document["test_operations"]
    # For every page of 1 MiB twice: when the read begins and when it ends.
    assert taken == pytest.approx(2 * 256, rel=0.01)


@pytest.mark.parametrize("revision", ["HEAD~3", "HEAD~2", "HEAD~1", "HEAD"])
def test_the_patches_fit_every_commit_of_the_default_tree(story: Lab, tmp_path: Path, revision: str) -> None:
    repo = next(story.home.glob(".local/share/*/trees/default.git"))
    show = ["git", "-c", "safe.directory=*", f"--git-dir={repo}", "show"]
    patches = [patch for name in ("hugetlb-pin-tax", "no-folio-batching") for patch in (PATCHES / name).glob("*.patch")]
    assert len(patches) >= 2
    for patch in sorted(patches):
        for path in [line.split()[1][2:] for line in patch.read_text().splitlines() if line.startswith("+++ ")]:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            before = subprocess.run([*show, f"{revision}:{path}"], capture_output=True, check=True)
            (tmp_path / path).write_bytes(before.stdout)
        # git forgives no fuzz, and with --verbose it tells of offsets.
        words = ["git", "apply", "--check", "--verbose", str(patch)]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "Checking patch" in done.stderr and "offset" not in done.stderr
