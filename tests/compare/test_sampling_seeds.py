"""What few seeds may say: when three decide, which seeds are odd, and when no more are spent."""

from __future__ import annotations

import random

import pytest

from lab.compare import sampling
from lab.stats.verdict import Comparison, Metric, Outcome, compare_metric

CYCLES = Metric(name="cycles", unit="cycles", better="lower", primary=True)


def weighed(
    base: list[float], test: list[float], *, three_decide: bool = False, threshold: float = 0.02, max_seeds: int = 24
) -> Comparison:
    compared = compare_metric(CYCLES, base, test, threshold=threshold, exact=True)
    return sampling.weigh(compared, three_decide=three_decide, threshold=threshold, max_seeds=max_seeds)


@pytest.mark.parametrize(("factor", "word"), [(1.0, "same"), (1.01, "same"), (1.5, "regression"), (0.5, "improvement")])
def test_three_seeds_decide_only_where_nothing_differs(factor: float, word: str) -> None:
    base = [100.0, 100.0, 100.0]
    test = [100.0 * factor] * 3
    found = weighed(base, test)
    assert (found.verdict, found.reason, found.more_blocks) == (
        Outcome.UNKNOWN, f"{word} in 3 of 3 seeds, 6 decide", 3,
    )  # fmt: skip
    assert weighed(base, test, three_decide=True).verdict == word
    assert weighed(base * 2, test * 2).verdict == word


def test_an_effect_of_one_seed_is_named_and_never_the_same() -> None:
    found = weighed([100.0] * 6, [100.0] * 5 + [148.0])
    assert found.verdict == Outcome.UNKNOWN and found.reason.startswith("1 of 6 seeds: +48.0 %; interval wider than")
    # So many others that the average is inside the threshold, whose noise hides nothing.
    noise = [100.0, 100.1, 99.9, 100.05, 99.95] * 8
    whole = compare_metric(CYCLES, [100.0] * 41, [*noise, 103.0], exact=True)
    assert whole.verdict == Outcome.SAME
    found = weighed([100.0] * 41, [*noise, 103.0])
    assert (found.verdict, found.reason, found.more_blocks) == (
        Outcome.UNKNOWN, "1 of 41 seeds: +3.0 %; 24 seeds cannot settle it", None,
    )  # fmt: skip
    assert weighed([100.0] * 40, noise).verdict == Outcome.SAME


def test_what_twice_the_most_seeds_would_not_settle_says_so_after_six() -> None:
    swings = [100.0 + (-1) ** seed * 20 for seed in range(6)]
    found = weighed([100.0] * 6, swings)
    assert not sampling.can_be_settled(found, 24)
    assert found.reason == "interval wider than ±2 %; 24 seeds cannot settle it"
    assert sampling.can_be_settled(weighed([100.0] * 5, swings[:5]), 24), "too early to tell"
    assert sampling.can_be_settled(found, 4000) and not sampling.can_be_settled(found, 100)
    mild = [100.0 + (-1) ** seed * 2 for seed in range(6)]
    assert sampling.can_be_settled(weighed([100.0] * 6, mild), 24)
    nothing = compare_metric(CYCLES, [float("nan")] * 6, [1.0] * 6, exact=True)
    assert not sampling.can_be_settled(nothing, 24), "no number of seeds gives it a number"


# ---- windows


def test_windows_follow_their_scatter_and_not_their_place() -> None:
    assert sampling.windows_wanted([[100.0, 100.0, 100.0]] * 6) == 0
    assert sampling.windows_wanted([[130.0, 101.0, 100.0]] * 6) == 0, "the first one is dear in every guest"
    assert sampling.windows_wanted([[100.0 + guest] * 3 for guest in range(6)]) == 0, "a seed's own level"
    chance = random.Random(7)  # noqa: S311
    one_percent = [[(100 + guest % 7) * chance.gauss(1, 0.01) for _ in range(3)] for guest in range(400)]
    assert sampling.windows_wanted(one_percent) in (4, 5), "of 1 %, four have half a percent"
    wild = [[100.0 * (1 + (guest + place) % 2) for place in range(3)] for guest in range(6)]
    assert sampling.windows_wanted(wild) == 12, "and no more than that"
