"""`make bench-verdict`: what live mode's verdict reaches on simulated hosts (docs/verdict.md). Never a test.

make bench-verdict                                          the tables quiet and power, five minutes on one core
make bench-verdict ARGS='--table errors'                    also quiet, power, same, rounds, planned
make bench-verdict ARGS='--table whole'                     exact mode: work that others do, and waits
make bench-verdict ARGS='--comparisons 2000 --jobs 2'       more comparisons a row, half a minute for 20 rounds of each
make bench-verdict ARGS='--table errors --rounds 40'        with another number of planned rounds
make bench-verdict ARGS='--table quiet --row 3'             that row alone, with the numbers it has in the table
"""

import argparse
import math
import os
from collections.abc import Iterator
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from lab.stats.verdict import Outcome

from .simulation import whole_cost
from .simulation.comparisons import Design, Figures, Noise, best_possible, figures, many

BUDGET_S = 600.0
EFFECTS = (0.5, 1.0, 2.0)
ROUNDS = 20
Row = tuple[str, Noise, Design]

STEADY = Noise(drift_sd=0.0, outliers=0.0)
"""A host whose boots and samples scatter, and nothing else."""

LONG = Design(max_blocks=200, budget_s=BUDGET_S)
"""A comparison that its budget ends, and not the number of its blocks."""

ANY_CHANGE = Design(threshold=0.0, fixed_iterations=2)
"""A comparison to which any change counts, so that it never ends by being the same."""


def quiet(comparisons: int, seed: int, jobs: int, only: int | None) -> None:
    """Kernels that are the same: how many comparisons call any metric changed."""
    rows = (
        ("1 case of 4 metrics, 40 blocks", Noise(), Design(metrics=4)),
        ("the same, 10 blocks of 10 iterations", Noise(), Design(metrics=4, max_blocks=10, fixed_iterations=10)),
        ("3 cases of 4 metrics, 20 blocks", Noise(), Design(cases=3, metrics=4, max_blocks=20)),
        ("the same, drift four times as large", Noise(drift_sd=2.0), Design(cases=3, metrics=4, max_blocks=20)),
        ("the same, 5 % outliers", Noise(outliers=0.05), Design(cases=3, metrics=4, max_blocks=20)),
        ("1 case, noise of the threshold's size", Noise(sigma=0.02), Design(metrics=4)),
        ("1 case, a budget of 600 s", Noise(), replace(LONG, metrics=4)),
        ("the same, then resumed for 1,200 s", Noise(), replace(LONG, metrics=4, resumed_s=2 * BUDGET_S)),
    )
    _head("kernels alike", "wrong at the end", "wrong at any look", "pooled t, p < .01", "pooled t, p < .05")
    for number, (label, noise, design) in enumerate(rows):
        if only not in (None, number + 1):
            continue
        f = figures(many(noise, design, comparisons, seed + number, jobs))
        _row(label, f"{f.wrong:.1f} %", f"{f.ever:.1f} %", f"{f.naive_1:.1f} %", f"{f.naive_5:.1f} %")


def power(comparisons: int, seed: int, jobs: int) -> None:
    """A loss of d sigma, 600 s of machine time: how often it is found, and when; then by one look at its end."""
    alone = LONG
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
    noises = [Noise(effect=effect, duet=duet) for effect in EFFECTS]
    return [figures(many(noise, design, comparisons, seed + place, jobs)) for place, noise in enumerate(noises)]


def errors(rounds: int) -> Iterator[Row]:
    """Kernels that are alike, on hosts of all kinds. Any change counts, however small."""
    design = replace(ANY_CHANGE, max_blocks=rounds)
    for label, noise in hosts():
        yield label, noise, design


def hosts() -> Iterator[tuple[str, Noise]]:
    """Laws of noise, two kinds of boots, and whole numbers."""
    yield "normal", STEADY
    yield "normal, drift, 2 % outliers", Noise()
    yield "drift four times as large", Noise(drift_sd=2.0)
    yield "10 % outliers", Noise(outliers=0.1)
    yield "t3", replace(STEADY, law="t3")
    yield "lognormal", replace(STEADY, law="lognormal")
    for share in (0.1, 0.2, 0.3, 0.4, 0.5):
        for by, sigma in ((0.01, 0.001), (0.05, 0.001), (0.05, 0.01), (0.3, 0.001), (1.0, 0.005)):
            noise = replace(STEADY, sigma=sigma, slow=share, slow_by=by)
            yield f"{100 * share:.0f} % of boots +{100 * by:.0f} %, noise {100 * sigma:g} %", noise
    for mean, sd in ((6, 1.0), (10, 1.0), (20, 0.5), (20, 1.0), (1000, 1.0)):
        noise = replace(STEADY, sigma=sd / mean, boot_sd=1.0, sample_sd=0.0, whole=mean)
        yield f"whole numbers {mean} +- {sd:g}", noise


def by_rounds(_: int) -> Iterator[Row]:
    """Kernels that are alike, by the number of planned rounds."""
    for label, noise in (
        ("normal", STEADY),
        ("50 % of boots +30 %, noise 0.1 %", replace(STEADY, sigma=0.001, slow=0.5, slow_by=0.3)),
        ("40 % of boots +5 %, noise 1 %", replace(STEADY, sigma=0.01, slow=0.4, slow_by=0.05)),
        ("whole numbers 20 +- 1", replace(STEADY, sigma=0.05, boot_sd=1.0, sample_sd=0.0, whole=20)),
    ):
        for rounds in (3, 6, 8, 10, 12, 16, 20, 30, 40):
            yield f"{label}, {rounds} rounds", noise, replace(ANY_CHANGE, max_blocks=rounds)


def same(rounds: int) -> Iterator[Row]:
    """Kernels that differ by twice the threshold, and more: how often they are called the same."""
    design = Design(max_blocks=rounds, fixed_iterations=2)
    twice = -math.log1p(-2 * design.threshold)
    for label, noise in (
        ("normal, noise 1 %", replace(STEADY, sigma=0.01)),
        ("normal, drift, 2 % outliers, noise 2 %", Noise(sigma=0.02)),
        ("t3, noise 1 %", replace(STEADY, sigma=0.01, law="t3")),
        ("lognormal, noise 1 %", replace(STEADY, sigma=0.01, law="lognormal")),
        *(
            (
                f"{100 * share:.0f} % of boots +{100 * by:.0f} %, noise 0.2 %",
                replace(STEADY, sigma=0.002, slow=share, slow_by=by),
            )
            for share in (0.1, 0.3, 0.5)
            for by in (0.01, 0.05, 0.3, 1.0)
        ),
        ("whole numbers 20 +- 0.5", replace(STEADY, sigma=0.025, boot_sd=1.0, sample_sd=0.0, whole=20)),
    ):
        yield f"4 % slower, {label}", replace(noise, effect=twice / noise.sigma), design
    for before, after, by, sigma in (
        (0.1, 0.4, 0.2, 0.002), (0.0, 0.25, 1.0, 0.005), (0.1, 0.35, 0.5, 0.005), (0.0, 0.45, 0.1, 0.002),
    ):  # fmt: skip
        noise = replace(STEADY, sigma=sigma, slow=before, slow_test=after, slow_by=by)
        label = f"{100 * before:.0f} -> {100 * after:.0f} % of boots +{100 * by:.0f} %, noise {100 * sigma:g} %"
        yield label, noise, design


def planned(_: int) -> Iterator[Row]:
    """A loss of d sigma by the number of planned rounds, and with a control that shares part of the noise."""
    for rounds, effect in ((8, 2.0), (10, 1.0), (12, 1.0), (18, 1.0), (20, 1.0), (21, 1.0), (30, 1.0)):
        design = replace(ANY_CHANGE, max_blocks=rounds)
        yield f"d = {effect:g}, {rounds} planned", replace(STEADY, effect=effect), design
    for shared, rounds in ((0.0, 15), (0.5, 18), (0.7, 15), (0.85, 10)):
        for effect in (1.0, 0.0):
            noise = replace(STEADY, effect=effect, shared=shared)
            label = f"d = {effect:g}, {rounds} planned, a control of correlation {shared:g}"
            yield label, noise, replace(ANY_CHANGE, max_blocks=rounds)


RATES = {"errors": (errors, 1000), "rounds": (by_rounds, 2000), "same": (same, 4000), "planned": (planned, 5000)}
"""The rows of a table, and what its seeds are ahead of those of the first table."""


def rates(table: str, comparisons: int, seed: int, jobs: int, only: int | None, rounds: int) -> None:
    """Print a table of shares: wrong words at the end, `same`, and true changes that are in their interval."""
    _head(table, "regression or improvement", "same", "interval covers", "rounds")
    rows, ahead = RATES[table]
    for number, (label, noise, design) in enumerate(rows(rounds)):
        if only in (None, number + 1):
            f = figures(many(noise, design, comparisons, seed + ahead + number, jobs))
            _row(label, f"{f.found:.2f} %", f"{f.same:.2f} %", f"{f.covered:.2f} %", f"{f.blocks:.1f}")


def whole(comparisons: int, seed: int, only: int | None) -> None:
    """Exact mode, with work that threads do and with waits: how often a word is false, and what is found."""
    _head("truth", "false", "false word", "improvement", "same", "unknown")
    for number, (label, world, false) in enumerate(whole_cost.worlds()):
        if only in (None, number + 1):
            found = whole_cost.words(world, comparisons, seed + number)
            wrong = found[false] if false else found[Outcome.IMPROVEMENT] + found[Outcome.REGRESSION]
            shares = (wrong, found[Outcome.IMPROVEMENT], found[Outcome.SAME], found[Outcome.UNKNOWN])
            _row(label, str(false or "any change"), *(f"{100 * share / comparisons:.2f} %" for share in shares))


def _head(*words: str) -> None:
    print(f"\n| {' | '.join(words)} |\n|{'---|' * len(words)}", flush=True)  # noqa: T201


def _row(*words: str) -> None:
    print(f"| {' | '.join(words)} |", flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = ["quiet", "power", *RATES, "whole"]
    parser.add_argument("--table", choices=every, action="append", help="only this table (repeatable)")
    parser.add_argument("--row", type=int, help="only this row of each table but power")
    parser.add_argument("--rounds", type=int, help="planned rounds of the tables errors (20) and same (40)")
    parser.add_argument("--comparisons", type=int, default=200, help="a row")
    parser.add_argument("--seed", type=int, default=2026, help="of the first row; each row has its own")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    asked = parser.parse_args()
    tables = asked.table or ["quiet", "power"]
    if "quiet" in tables:
        quiet(asked.comparisons, asked.seed, asked.jobs, asked.row)
    if "power" in tables:
        power(asked.comparisons, asked.seed, asked.jobs)
    for table in RATES:
        if table in tables:
            rounds = asked.rounds or (2 * ROUNDS if table == "same" else ROUNDS)
            rates(table, asked.comparisons, asked.seed, asked.jobs, asked.row, rounds)
    if "whole" in tables:
        whole(asked.comparisons, asked.seed, asked.row)


if __name__ == "__main__":
    main()
