"""`make bench-verdict`: what live mode's verdict reaches on simulated hosts (docs/verdict.md). Never a test.

make bench-verdict                               both tables, five minutes on one core
make bench-verdict ARGS='--table power'          one of quiet, power
make bench-verdict ARGS='--comparisons 1000'     more comparisons a row
make bench-verdict ARGS='--table quiet --row 3'  that row alone, with the numbers it has in the table
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from .simulation.comparisons import Design, Figures, Noise, best_possible, figures, many

BUDGET_S = 600.0
EFFECTS = (0.5, 1.0, 2.0)


def quiet(comparisons: int, seed: int, jobs: int, only: int | None) -> None:
    """Kernels that are the same: how many comparisons call any metric changed."""
    rows = (
        ("1 case of 4 metrics, 40 blocks", Noise(), Design(metrics=4)),
        ("the same, 10 blocks of 10 iterations", Noise(), Design(metrics=4, max_blocks=10, fixed_iterations=10)),
        ("3 cases of 4 metrics, 20 blocks", Noise(), Design(cases=3, metrics=4, max_blocks=20)),
        ("the same, drift four times as large", Noise(drift_sd=2.0), Design(cases=3, metrics=4, max_blocks=20)),
        ("the same, 5 % outliers", Noise(outliers=0.05), Design(cases=3, metrics=4, max_blocks=20)),
        ("1 case, noise of the threshold's size", Noise(sigma=0.02), Design(metrics=4)),
        ("1 case, a budget of 600 s", Noise(), Design(metrics=4, max_blocks=200, budget_s=BUDGET_S)),
        (
            "the same, then resumed for 1,200 s",
            Noise(),
            Design(metrics=4, max_blocks=200, budget_s=BUDGET_S, resumed_s=2 * BUDGET_S),
        ),
    )
    _head("kernels alike", "wrong at the end", "wrong at any look", "pooled t, p < .01", "pooled t, p < .05")
    for number, (label, noise, design) in enumerate(rows):
        if only not in (None, number + 1):
            continue
        f = figures(many(noise, design, comparisons, seed + number, jobs))
        _row(label, f"{f.wrong:.1f} %", f"{f.ever:.1f} %", f"{f.naive_1:.1f} %", f"{f.naive_5:.1f} %")


def power(comparisons: int, seed: int, jobs: int) -> None:
    """A loss of d sigma, 600 s of machine time: how often it is found, and when; then by one look at its end."""
    alone = Design(max_blocks=200, budget_s=BUDGET_S)
    designs = (
        ("the lab", alone),
        ("the lab with 3 metrics more", replace(alone, metrics=4)),
        ("the lab, then resumed for 600 s", replace(alone, resumed_s=BUDGET_S)),
        ("the lab with alpha = .05", replace(alone, alpha=0.05)),
    )
    for duet in (False, True):
        _head("in duets" if duet else "in blocks", *(f"d = {d:g}" for d in EFFECTS))
        for number, (label, design) in enumerate(designs):
            found = _of_effects(design, duet, comparisons, seed + 10 * number, jobs)
            _row(label, *(f"{f.found:.0f} % ({f.seconds:.0f} s)" for f in found))
        for alpha in (0.01, 0.05):
            bounds = [best_possible(Noise(effect=d, duet=duet), BUDGET_S, alpha) for d in EFFECTS]
            _row(f"no test of {100 * alpha:g} % can find more than", *(f"{bound:.0f} %" for bound in bounds))
        for number, (boots, iterations) in enumerate(((60, 1), (30, 3)) if duet else ((30, 1), (15, 3))):
            design = Design(max_blocks=boots, fixed_iterations=iterations, to_the_end=True)
            found = _of_effects(design, duet, comparisons, seed + 100 + 10 * number, jobs)
            _row(f"{boots} x {iterations}, one look, p < .01", *(f"{f.planned_1:.0f} %" for f in found))
            _row(f"{boots} x {iterations}, one look, p < .05", *(f"{f.planned_5:.0f} %" for f in found))


def _of_effects(design: Design, duet: bool, comparisons: int, seed: int, jobs: int) -> list[Figures]:
    return [
        figures(many(Noise(effect=d, duet=duet), design, comparisons, seed + place, jobs))
        for place, d in enumerate(EFFECTS)
    ]


def _head(*words: str) -> None:
    print(f"\n| {' | '.join(words)} |\n|{'---|' * len(words)}", flush=True)  # noqa: T201


def _row(*words: str) -> None:
    print(f"| {' | '.join(words)} |", flush=True)  # noqa: T201


def main() -> None:
    """Simulate and print Markdown tables, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=["quiet", "power"], action="append", help="only this table (repeatable)")
    parser.add_argument("--row", type=int, help="only this row of the table quiet")
    parser.add_argument("--comparisons", type=int, default=200, help="a row")
    parser.add_argument("--seed", type=int, default=2026, help="of the first row; each row has its own")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    asked = parser.parse_args()
    tables = asked.table or ["quiet", "power"]
    if "quiet" in tables:
        quiet(asked.comparisons, asked.seed, asked.jobs, asked.row)
    if "power" in tables:
        power(asked.comparisons, asked.seed, asked.jobs)


if __name__ == "__main__":
    main()
