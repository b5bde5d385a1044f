"""`make bench-search`: what live mode's search reaches on simulated hosts (docs/live-search.md). Never a test.

make bench-search                          all tables, a quarter of an hour on one core
make bench-search ARGS='--table figures'   one of figures, calibration, drift, goals (only when asked for)
make bench-search ARGS='--searches 50'     fewer searches a row
"""

import argparse
import math
import os
import statistics
from collections.abc import Iterator, Sequence

# Matrices here are small: threads would only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from lab.bisection.live_search import StoppingRules

from .simulation.searches import INDEPENDENT, Figures, Found, halvings, many
from .simulation.world import Noise

FOUND = StoppingRules(confirm_alpha=None)
SURER = StoppingRules(confirm_alpha=None, confidence=0.97)
NO_MODEL = StoppingRules(confirm_alpha=None, drifts=INDEPENDENT)
Row = tuple[str, Noise, StoppingRules | None, str]


def figures() -> Iterator[Row]:
    """Accuracy and cost; None as the rules is `git bisect run` with a threshold."""
    wide, long = Noise(commits=1024, effect=2.0), Noise(commits=1024, effect=1.0)
    short = Noise(commits=128, effect=1.0)
    yield "1,024 commits, d = 5", Noise(commits=1024, effect=5.0), FOUND, ""
    yield "1,024 commits, d = 2", wide, FOUND, "97 %, 100 samples, 13 builds"
    yield "1,024 commits, d = 2, confirmed", wide, StoppingRules(), ""
    yield "1,024 commits, d = 1", long, FOUND, "95 %, 320 samples, 15 builds"
    yield "128 commits, d = 1", short, FOUND, "95 %, 250 samples, 11 builds"
    yield "128 commits, d = 1, confirmed", short, StoppingRules(), "295 samples"
    yield "128 commits, d = 2, a tenth unbuildable", Noise(commits=128, effect=2.0, broken=0.1), FOUND, ""
    yield "128 commits, ends alike", Noise(commits=128, effect=0.0), StoppingRules(), "named 1 %"
    yield "git bisect, 10 boots a step, 1,024, d = 2", wide, None, ""
    yield "git bisect, 10 boots a step, 128, d = 1", short, None, ""
    yield "1,024 commits, d = 2, stop at .97", wide, SURER, ""


def goals() -> Iterator[Row]:
    """What has to be reached, for more searches than the whole table is worth."""
    yield from (row for row in figures() if row[2] is FOUND and row[3])


def calibration() -> Iterator[Row]:
    """The stop level against how often it is right."""
    for level in (0.80, 0.90, 0.95, 0.99):
        rules = StoppingRules(confirm_alpha=None, confidence=level)
        yield f"stop at {level:.2f}", Noise(commits=128, effect=1.0), rules, ""


def drift() -> Iterator[Row]:
    """With the drift model and without."""
    for sd in (0.0, 0.5, 1.0):
        noise = Noise(commits=128, effect=2.0, drift_sd=sd)
        yield f"drift sd {sd:g}", noise, FOUND, ""
        yield f"drift sd {sd:g}, no model of it", noise, NO_MODEL, ""


TABLES = {"figures": figures, "calibration": calibration, "drift": drift, "goals": goals}
ALL = ("figures", "calibration", "drift")
HEADINGS = (
    "searches", "right", "named", "claimed", "of named right", "wrong of confirmed", "begun", "samples", "builds",
    "cost", "to reach", "CPU",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=TABLES, action="append", help="only this table (repeatable)")
    parser.add_argument("--only", default="", help="only rows with this text")
    parser.add_argument("--searches", type=int, default=200, help="a row")
    parser.add_argument("--seed", type=int, default=2026, help="of the first row; each row has its own")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    asked = parser.parse_args()
    for name in asked.table or ALL:
        print(f"\n{name}, {asked.searches} searches a row\n")  # noqa: T201
        print(f"| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|")  # noqa: T201
        everything: list[Found] = []
        for number, (label, noise, rules, goal) in enumerate(TABLES[name]()):
            if asked.only not in label:
                continue
            seed = asked.seed + 100 * list(TABLES).index(name) + number
            if rules is None:
                result, found = halvings(noise, asked.searches, seed)
            else:
                result, found = many(noise, rules, asked.searches, seed, asked.jobs)
                everything += found
            print(_line(label, result, goal), flush=True)  # noqa: T201
        print(f"\n{_forecasts(everything)}")  # noqa: T201


def _line(label: str, f: Figures, goal: str) -> str:
    shares = (
        f"{value:.1f} %" if math.isfinite(value) else "-" for value in (f.right, f.named, f.claimed, f.right_named)
    )
    wrong = f"{f.misled} of {f.confirmed}" if f.confirmed else "-"
    counts = f"{wrong} | {f.begun:.1f} % | {f.samples:.0f} | {f.builds:.1f} | {f.seconds:.0f} s"
    return f"| {label} | {' | '.join(shares)} | {counts} | {goal} | {f.cpu_s:.0f} s |"


def _forecasts(found: Sequence[Found]) -> str:
    """How long each search said that it would still take, at its first visit, against how long it took."""
    firsts = [each.forecasts[0] for each in found if each.forecasts]
    ratios = sorted(took / promised for promised, took in firsts)
    if len(ratios) < 2:
        return "No search went beyond the ends twice."
    low, middle, high = statistics.quantiles(ratios, n=4)
    return (
        f"Time taken after the ends, over that first promised: median {middle:.2f}, quartiles {low:.2f} to {high:.2f}."
    )


if __name__ == "__main__":
    main()
