"""`make scatter`: how far the numbers of one kernel differ from seed to seed, case by case.

make scatter                                            the suite `quick` on 6.1 and 6.12, about two minutes
make scatter ARGS='-w syscalls'                         all cases of a workload, about half an hour
make scatter ARGS='--kernel deb:trixie/6.12 --seeds 5'  one kernel, which is measured once
make scatter ARGS=--atlas                               all cases of the atlas, from its seeds of all kernels together
make scatter ARGS='--atlas --table contention'          those of a further table; -w contention@4: chooses some of them

Prints the standard deviation of each case's primary metric over the seeds, in percent of its mean, the largest first;
exits 1 if one is above `--most`.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lab.atlas import data
from lab.atlas.data import Cell

from .stories import lab

KERNELS = ("deb:bookworm/6.1", "deb:trixie/6.12")
SHOWN = 20

say = print


class Scatter(NamedTuple):
    """A case on one kernel. mean: of the seeds, in the metric's unit; sd_percent: of that."""

    sd_percent: float
    case: str
    kernel: str
    mean: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", action="append", help="SPEC; two at most")
    parser.add_argument("-w", "--workload", action="append", help="as `lab ab` takes it; without it, the suite quick")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--atlas", action="store_true", help="measure nothing: the seeds that the lab's atlas has")
    parser.add_argument("--table", default="", help="with --atlas: a further table")
    parser.add_argument("--most", type=float, default=100.0, help="the largest standard deviation allowed, in percent")
    asked = parser.parse_args()
    if asked.atlas:
        return _print(sorted(_of_atlas(asked.table, asked.workload or ("",)), reverse=True), asked.most)
    kernels: Sequence[str] = asked.kernel or KERNELS
    chosen = [word for name in asked.workload or () for word in ("-w", name)] or ["--suite", "quick"]
    arms = ("--base", kernels[0], "--test", kernels[-1], "--seeds", str(asked.seeds))
    document = json.loads(lab("ab", *arms, *chosen, "--json"))
    return _print(sorted(_scatters(document, kernels), reverse=True), asked.most)


def _print(rows: Sequence[Scatter], most: float) -> int:
    if not rows:
        sys.exit("no case has a number of two seeds")
    say("| case | kernel | mean | sd over the seeds |\n|---|---|---|---|")
    for row in rows[:SHOWN]:
        say(f"| {row.case} | {row.kernel} | {row.mean:,.1f} | {row.sd_percent:.2f} % |")
    for bound in (0.1, 0.5, 1.0, 2.0, 3.0):
        say(f"{sum(row.sd_percent <= bound for row in rows)} of {len(rows)} at most {bound:g} %")
    return int(rows[0].sd_percent > most)


def _scatters(document: dict[str, Any], kernels: Sequence[str]) -> Iterator[Scatter]:
    for case in document["cases"]:
        for metric in case["metrics"]:
            for arm, kernel in zip(("base", "test"), dict.fromkeys(kernels), strict=False):
                values = [value for value in metric[arm] or () if value is not None]
                if metric["primary"] and len(values) > 1 and (mean := statistics.fmean(values)):
                    sd_percent = 100 * statistics.stdev(values) / mean
                    yield Scatter(sd_percent, f"{case['workload']}:{case['case']}", kernel, mean)


def _of_atlas(table: str, workloads: Sequence[str]) -> Iterator[Scatter]:
    """Each case over the seeds of its kernels: the root of the mean of their variances, each relative to its mean."""
    atlas = data.load(table=table)
    for case, cells in atlas.cells.items():
        if not case.startswith(tuple(workloads)):
            continue
        seeds = [cell.cycles for cell in cells if isinstance(cell, Cell) and len(cell.cycles) > 1]
        means = [statistics.fmean(values) for values in seeds]
        if seeds and all(means):
            squares = [(statistics.stdev(one) / mean) ** 2 for one, mean in zip(seeds, means, strict=True)]
            kernels = f"{len(seeds)} kernels"
            yield Scatter(100 * math.sqrt(statistics.fmean(squares)), case, kernels, statistics.fmean(means))


if __name__ == "__main__":
    sys.exit(main())
