"""Aged memory and huge pages by request: the same kernel on both sides, and a setting that makes the difference."""

import json

import pytest

from .conftest import NEW, Lab, metrics

pytestmark = pytest.mark.guest

NEVER, ALWAYS = f"{NEW}@thp.defrag=never", f"{NEW}@thp.defrag=always"


def test_faults_on_aged_memory_wait_for_compaction_with_always_only_and_those_on_fresh_memory_do_not(lab: Lab) -> None:
    cases = "compaction-stall:fault-40-pinned,fault-40-fresh"
    stall = lab.ab(NEVER, ALWAYS, "-w", cases, "--seeds", "2")
    pinned = metrics(stall, "fault-40-pinned")
    assert pinned["latency_p50"]["ratio"] >= 20
    assert pinned["cycles_p50"]["ratio"] >= 20
    assert set(pinned["compact_stall"]["base"]) == {0.0}
    assert min(pinned["compact_stall"]["test"]) >= 40
    assert min(pinned["compact_fail"]["test"]) > 0
    # There is memory enough for every fault, only not in one piece.
    assert min(pinned["free_kb"]["base"]) > 40 * 2048
    assert min(pinned["thp_fault_fallback"]["base"]) == 40
    fresh = metrics(stall, "fault-40-fresh")
    assert fresh["cycles_per_op"]["ratio"] == pytest.approx(1, abs=0.01)
    assert fresh["latency_p50"]["ratio"] == pytest.approx(1, abs=0.01)
    assert set(fresh["compact_stall"]["test"]) == {0.0}
    assert set(fresh["thp_fault_alloc"]["test"]) == {40.0}


def test_a_large_vector_grows_more_slowly_on_aged_memory(lab: Lab) -> None:
    cases = "large-alloc:zero-128m-aged,zero-64k-aged"
    document = lab.ab(NEVER, ALWAYS, "-w", cases, "--seeds", "2")
    aged = metrics(document, "zero-128m-aged")
    assert all(a > n for n, a in zip(aged["total_time"]["base"], aged["total_time"]["test"], strict=True))
    assert min(aged["compact_stall"]["test"]) > 0 == max(aged["compact_stall"]["base"])
    assert metrics(document, "zero-64k-aged")["cycles_per_op"]["ratio"] == pytest.approx(1, abs=0.01)
    folder = next(lab.home.glob(f".local/share/*/results/{document['result']}"))
    runs = [json.loads(path.read_text()) for path in (folder / "runs").glob("*zero-128m-aged*.json")]
    assert len(runs) == 4
    for run in runs:
        curve = run["report"]["cases"][0]["series"]["rss"]
        assert len(curve) == 65
        assert curve == sorted(curve)
        assert curve[-1][1] == pytest.approx(128 << 10, rel=0.02)


def test_glibc_asks_for_huge_pages_when_its_tunable_says_so(lab: Lab) -> None:
    base = f"{NEW}@thp=madvise"
    test = f"{base},env.GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
    cases = "pointer-chase:chase-64m-malloc,chase-64k-malloc,chase-64m"
    document = lab.ab(base, test, "-w", cases, "--seeds", "2")
    asked = metrics(document, "chase-64m-malloc")
    assert set(asked["anon_huge_kb"]["base"]) == {0.0}
    assert set(asked["anon_huge_kb"]["test"]) == {65536.0}
    assert asked["dtlb_misses"]["ratio"] < 0.1
    assert asked["cycles_per_op"]["ratio"] < 0.95
    for control in ("chase-64k-malloc", "chase-64m"):
        assert metrics(document, control)["cycles_per_op"]["ratio"] == pytest.approx(1, abs=0.01)
