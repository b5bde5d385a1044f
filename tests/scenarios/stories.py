"""`make stories`: every story in exact mode, its effect and its control, beside what each must show.

The kernels are built first, and not timed. Prints a Markdown table; exits 1 if a line of it does not hold.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARENT, COMMIT, FIX = "efa7df3e3bb5^", "efa7df3e3bb5", "d4148aeab412"
TAX, BATCH = f"{FIX}+hugetlb-pin-tax", f"{FIX}+no-folio-batching"
TUNABLE = "env.GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
CLOCK = ("--model", "none")


@dataclass(frozen=True)
class Expected:
    """What one case must show: the test arm's metric over the base arm's, or the arms' values themselves."""

    case: str
    metric: str
    least: float = 0.0
    most: float = float("inf")
    of: str = "ratio"

    def holds(self, value: float) -> bool:
        return self.least <= value <= self.most

    def __str__(self) -> str:
        if self.least == self.most:
            return f"{self.least:g}"
        bounds = [f">= {self.least:g}"] * (self.least > 0) + [f"<= {self.most:g}"] * (self.most < float("inf"))
        return " and ".join(bounds)


@dataclass(frozen=True)
class Story:
    """One comparison, and what must come of it."""

    workload: str
    base: str
    test: str
    expected: Sequence[Expected]
    seeds: int = 3
    words: Sequence[str] = ()

    @property
    def selection(self) -> str:
        """The workload with the cases that something is expected of."""
        return f"{self.workload}:{','.join(dict.fromkeys(one.case for one in self.expected))}"


def same(case: str, metric: str, within: float = 0.01) -> Expected:
    """A control."""
    return Expected(case, metric, 1 - within, 1 + within)


STORIES = (
    Story("alloc-burst", PARENT, COMMIT, [
        Expected("layout-2560k", "dtlb_misses", least=10),
        Expected("layout-2560k", "cycles_per_op", least=1.05),
        Expected("layout-2560k", "throughput", most=0.8),
        Expected("single-2052k", "cycles_per_op", most=0.8),
        same("layout-1024k", "cycles_per_op"),
        same("layout-1024k", "dtlb_misses", 0.02),
        same("layout-1800k", "cycles_per_op"),
    ]),
    Story("alloc-burst", PARENT, FIX, [
        same("layout-2560k", "cycles_per_op"),
        same("layout-2560k", "dtlb_misses", 0.02),
        same("layout-1800k", "cycles_per_op"),
    ]),
    Story("aio-hugetlbfs", FIX, TAX, [
        Expected("read-64k", "throughput", 0.75, 0.92),
        Expected("read-1m", "throughput", 0.45, 0.85),
        Expected("uring-1m", "throughput", 0.45, 0.85),
        same("read-64k-malloc", "throughput"),
        same("read-1m-malloc", "throughput"),
        same("uring-1m-registered", "throughput"),
    ], words=CLOCK),
    Story("fio", FIX, TAX, [
        Expected("hugetlb-read-64k", "bandwidth", 0.8, 0.95),
        Expected("hugetlb-read-1m", "bandwidth", 0.6, 0.9),
        same("malloc-read-64k", "bandwidth"),
        same("malloc-read-1m", "bandwidth"),
    ]),
    Story("aio-hugetlbfs", FIX, f"{TAX}@cmdline.hugetlb_pin_tax=0", [
        same("read-64k", "throughput"),
        same("read-1m", "throughput"),
    ], words=CLOCK),
    Story("aio-hugetlbfs", FIX, BATCH, [Expected("read-1m", "throughput", most=0.9)], words=CLOCK),
    Story("compaction-stall", f"{FIX}@thp.defrag=never", f"{FIX}@thp.defrag=always", [
        Expected("fault-80-pinned", "latency_p50", least=20),
        Expected("fault-80-pinned", "compact_stall", most=0, of="base"),
        Expected("fault-80-pinned", "compact_stall", least=1, of="test"),
        same("fault-80-fresh", "latency_p50"),
        Expected("fault-80-fresh", "compact_stall", most=0, of="test"),
    ]),
    Story("compaction-stall", f"{FIX}@thp.defrag=never", f"{FIX}@thp.defrag=defer", [
        Expected("fault-80-pinned", "latency_p50", most=1.5),
        Expected("fault-80-pinned", "compact_stall", most=0, of="test"),
    ]),
    Story("large-alloc", f"{FIX}@thp.defrag=never", f"{FIX}@thp.defrag=always", [
        Expected("zero-256m-aged", "total_time", least=1.05),
        same("zero-256m-fresh", "total_time"),
        same("zero-64k-aged", "latency_p50"),
    ], words=CLOCK),
    Story("large-alloc", f"{FIX}@thp=never", f"{FIX}@thp=always", [
        Expected("zero-256m-fresh", "total_time", most=0.5),
        same("zero-64k-fresh", "latency_p50"),
    ], words=CLOCK),
    Story("pointer-chase", f"{FIX}@thp=never", f"{FIX}@thp=always", [
        Expected("chase-1g", "cycles_per_op", most=0.75),
        same("chase-64k", "cycles_per_op"),
    ]),
    Story("pointer-chase", f"{FIX}@thp=madvise", f"{FIX}@thp=madvise,{TUNABLE}", [
        Expected("chase-1g-malloc", "cycles_per_op", most=0.8),
        same("chase-64k-malloc", "cycles_per_op"),
    ]),
    Story("stress-ng", f"{FIX}@thp=never", f"{FIX}@thp=always", [
        Expected("malloc", "page_faults", most=0.9),
        same("radixsort", "bogo_rate", 0.05),
    ]),
    Story("script", FIX, TAX, [same("shell-pipeline", "elapsed")]),
)  # fmt: skip

#: Arrays in one place modulo 2 MiB against the same arrays spread: two cases of one kernel, not two arms.
ALIASED = (Expected("16", "cycles_per_op", most=1.1), Expected("64", "cycles_per_op", least=1.3))


def main() -> int:
    lab("kernel", "build", PARENT, COMMIT, FIX, TAX, BATCH)
    lab("image", "build")
    print("| workload | base | test | case, metric | must be | is | |\n|---|---|---|---|---|---|---|")  # noqa: T201
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        held = [_tell(story, Path(name) / str(number)) for number, story in enumerate(STORIES)]
        held.append(_tell_aliased(Path(name) / "aliased"))
    print(f"\n{time.monotonic() - started:.0f} s on {len(os.sched_getaffinity(0))} cores")  # noqa: T201
    return 0 if all(held) else 1


def _tell(story: Story, folder: Path) -> bool:
    metrics = _measured(story.base, story.test, story.selection, story.seeds, folder, story.words)
    held = True
    for one in story.expected:
        value = _value(metrics[one.case][one.metric], one.of)
        held &= _row(story.workload, story.base, story.test, f"{one.case}, {one.metric}", one, value)
    return held


def _tell_aliased(folder: Path) -> bool:
    metrics = _measured(FIX, FIX, "cache-alias:aliased-16,spread-16,aliased-64,spread-64", 1, folder)
    held = True
    for one in ALIASED:
        aliased, spread = (_value(metrics[f"{kind}-{one.case}"][one.metric], "base") for kind in ("aliased", "spread"))
        held &= _row(
            "cache-alias", f"spread-{one.case}", f"aliased-{one.case}", f"{one.metric}, full", one, aliased / spread
        )
    return held


def _row(workload: str, base: str, test: str, what: str, expected: Expected, value: float) -> bool:
    held = expected.holds(value)
    words = "" if held else "**does not hold**"
    print(f"| {workload} | {base} | {test} | {what} | {expected} | {value:.4g} | {words} |", flush=True)  # noqa: T201
    return held


def _measured(base: str, test: str, selection: str, seeds: int, folder: Path, words: Sequence[str] = ()) -> Any:
    """All metrics by case and name."""
    document = json.loads(
        lab(
            "ab", "--base", base, "--test", test, "-w", selection, "--seeds", str(seeds), "--result", str(folder),
            "--json", *words,
        )
    )  # fmt: skip
    return {case["case"]: {metric["name"]: metric for metric in case["metrics"]} for case in document["cases"]}


def _value(metric: Any, of: str) -> float:
    """The ratio of the arms' means, or the mean of one arm."""
    means = {arm: sum(metric[arm]) / len(metric[arm]) for arm in ("base", "test")}
    return float(means["test"] / means["base"] if of == "ratio" else means[of])


def lab(*arguments: str) -> str:
    """What the lab prints; its failure is the end."""
    done = subprocess.run([sys.executable, "-m", "lab", *arguments], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"lab {' '.join(arguments)} failed with status {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
