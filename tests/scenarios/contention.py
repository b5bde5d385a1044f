"""`make contention`: how far the change of each case moves with the quantum of turns and with the price of a move.

make contention                                       all cases on four vCPUs, 6.1 against 6.12, one seed
make contention ARGS='-w contention@8:fstat,fault-t --base deb:6.16 --test deb:6.17 --seeds 3'

Prints the change of each case at quanta of 20, 50 and 100 cycles, and at half and double the price, as a table for
docs/contention.md.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from lab.compare import contention, sampling
from lab.compare.measurement import ExactGuests, prepare
from lab.compare.plan import ArmPlan, MeasureOptions, Plan
from lab.compare.runs import Bench
from lab.compare.sampling import Series
from lab.core import process
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.stats import verdict

QUANTA = (20, 50, 100)
PRICES = (0.5, 2.0)
METRIC = "cycles_per_op"
GUEST_TIMEOUT_S = 3600.0
"""The limit of a guest that runs all cases; its vCPUs wait longer, the dearer a move is."""

say = print


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="deb:6.1", help="SPEC")
    parser.add_argument("--test", default="deb:6.12", help="SPEC")
    parser.add_argument("-w", "--workload", default="contention@4", help="as `lab ab` takes it")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    options = MeasureOptions(workload=(asked.workload,), seeds=asked.seeds, guest_timeout=GUEST_TIMEOUT_S)
    options.require()
    with Progress() as progress, process.scratch("lab-contention-") as folder:
        base, test = (ArmPlan(spec=spec, cc=options.cc) for spec in options.resolve([asked.base, asked.test], progress))
        work = Work(jobs=asked.jobs, progress=progress)
        (folder / "runs").mkdir()
        _table(prepare(Plan.of(options, base=base, test=test), folder, work), range(1, asked.seeds + 1), work)
    return 0


def _table(ready: ExactGuests, seeds: Sequence[int], work: Work) -> None:
    (one,) = ready.series
    instrument = one.bench.instrument
    assert instrument is not None and instrument.machine.coherence is not None
    price = instrument.machine.coherence.move.cycles
    variants = {f"quantum {quantum}": _with_quantum(one.bench, quantum) for quantum in QUANTA}
    variants |= {f"move of {price * share:g} cycles": contention.at_price(one.bench, price * share) for share in PRICES}
    columns = {name: Series(bench=bench, cases=one.cases) for name, bench in variants.items()}
    guests = []
    for column in columns.values():
        (column.bench.folder / "runs").mkdir(parents=True)
        guests += [(column, column.guest(arm, seed, one.cases, windows={})) for seed in seeds for arm in ready.arms]
    with work.progress.task("measuring", len(guests)) as task:
        sampling.run_all(guests, work, task, loss="case")
    say(f"| case | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for case in one.cases:
        changes = [column.change(case, METRIC) for column in columns.values()]
        say(f"| `{case.name}` | {' | '.join(verdict.percent(change) if change else 'none' for change in changes)} |")
    for name, column in columns.items():
        for _, died in column.died:
            say(f"{name}: {died}")


def _with_quantum(bench: Bench, quantum: int) -> Bench:
    """The same guests with turns of another length."""
    assert bench.instrument is not None
    folder = bench.folder / "quanta" / f"{quantum}"
    made = replace(bench, instrument=bench.instrument.contending(quantum), folder=folder)
    return made.with_fingerprint()


if __name__ == "__main__":
    sys.exit(main())
