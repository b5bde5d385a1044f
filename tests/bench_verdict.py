"""`make bench-verdict`: what live mode's verdict reaches on simulated hosts (docs/verdict.md). Never a test.

make bench-verdict                            both tables, some minutes on one core
make bench-verdict ARGS='--table power'       one of quiet, power
make bench-verdict ARGS='--comparisons 1000'  more comparisons a row
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from simulation.comparisons import Design, Figures, Noise, figures, many

BUDGET_S = 600.0


def quiet(comparisons: int, seed: int, jobs: int) -> None:
    """Kernels that are the same: how many comparisons call any metric changed."""
    rows = (
        ("1 case of 4 metrics, 40 blocks", Noise(), Design(metrics=4)),
        ("the same, 10 blocks of 10 iterations", Noise(), Design(metrics=4, max_blocks=10, fixed_iterations=10)),
        ("3 cases of 4 metrics, 20 blocks", Noise(), Design(cases=3, metrics=4, max_blocks=20)),
        ("the same, drift four times as large", Noise(drift_sd=2.0), Design(cases=3, metrics=4, max_blocks=20)),
        ("the same, 5 % outliers", Noise(outliers=0.05), Design(cases=3, metrics=4, max_blocks=20)),
        ("1 case, noise of the threshold's size", Noise(sigma=0.02), Design(metrics=4)),
    )
    _head("kernels alike", "wrong at the end", "wrong at any look", "pooled t, p < .01", "pooled t, p < .05")
    for number, (label, noise, design) in enumerate(rows):
        f = figures(many(noise, design, comparisons, seed + number, jobs))
        _row(label, f"{f.wrong:.1f} %", f"{f.ever:.1f} %", f"{f.naive_1:.1f} %", f"{f.naive_5:.1f} %")


def power(comparisons: int, seed: int, jobs: int) -> None:
    """A loss of d sigma, 600 s of machine time: how often it is found, and when."""
    designs = (
        ("as the lab does it, alpha .01", Design(max_blocks=200, budget_s=BUDGET_S), None),
        ("the same, alpha .05", Design(max_blocks=200, budget_s=BUDGET_S, alpha=0.05), None),
        ("15 x 3, one look, p < .01", Design(max_blocks=15, fixed_iterations=3, to_the_end=True), "planned_1"),
        ("15 x 3, one look, p < .05", Design(max_blocks=15, fixed_iterations=3, to_the_end=True), "planned_5"),
    )
    for duet in (False, True):
        _head("in duets" if duet else "in blocks", *(f"d = {d:g}" for d in (0.5, 1, 2)))
        for number, (label, design, planned) in enumerate(designs):
            if duet and planned:
                design = Design(max_blocks=30, fixed_iterations=3, to_the_end=True)
                label = label.replace("15 x", "30 x")
            found = [
                figures(many(Noise(effect=d, duet=duet), design, comparisons, seed + 10 * number + place, jobs))
                for place, d in enumerate((0.5, 1.0, 2.0))
            ]
            _row(label, *(_power(f, planned) for f in found))


def _power(f: Figures, planned: str | None) -> str:
    return f"{getattr(f, planned):.0f} %" if planned else f"{f.found:.0f} % ({f.seconds:.0f} s)"


def _head(*words: str) -> None:
    print(f"\n| {' | '.join(words)} |\n|{'---|' * len(words)}", flush=True)  # noqa: T201


def _row(*words: str) -> None:
    print(f"| {' | '.join(words)} |", flush=True)  # noqa: T201


def main() -> None:
    """Simulate and print Markdown tables, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=["quiet", "power"], action="append", help="only this table (repeatable)")
    parser.add_argument("--comparisons", type=int, default=200, help="a row")
    parser.add_argument("--seed", type=int, default=2026, help="of the first row; each row has its own")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    asked = parser.parse_args()
    for name, table in (("quiet", quiet), ("power", power)):
        if name in (asked.table or ("quiet", "power")):
            table(asked.comparisons, asked.seed, asked.jobs)


if __name__ == "__main__":
    main()
