"""The whole cost of a case, and the words that it takes back: the table of docs/verdict.md."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.stats import whole
from lab.stats.verdict import Comparison, Metric, Outcome, compare_metric

from ..scenarios.simulation import whole_cost

DOC = Path(__file__).parents[2] / "docs" / "verdict.md"
THRESHOLD, ALPHA = 0.02, 0.01
CYCLES, TIME = "modelled cycles/op", "ns/op"


Arms = tuple[Sequence[float], Sequence[float]]


def compared(name: str, base: Sequence[float], test: Sequence[float], *, unit: str = CYCLES) -> Comparison:
    """A metric of which less is better; one number is that of six seeds."""
    base, test = (values * 6 if len(values) == 1 else values for values in ([*base], [*test]))
    metric = Metric(name=name, unit=unit, better="lower", primary=name == "caller")
    return compare_metric(metric, base, test, threshold=THRESHOLD, alpha=ALPHA, exact=True)


def weighed(
    caller: Arms, deferred: Arms = ([0.0], [0.0]), waited: Arms = ([0.0], [0.0]), *, chosen: bool = False
) -> tuple[Comparison, whole.Whole | None]:
    """A caller's cost as its whole cost allows. It takes base 1000 ns, waits included."""
    times = [[1000 - waited[0][0] + wait for wait in arm] for arm in waited]
    return whole.weigh(
        compared("caller", *caller), compared("deferred_cycles", *deferred),
        compared("guest_time", *times, unit=TIME), compared("waited", *waited, unit=TIME),
        threshold=THRESHOLD, alpha=ALPHA, chosen=chosen,
    )  # fmt: skip


def rows() -> list[tuple[Arms, Arms, Arms, float, str, str]]:
    """The table in the documentation: caller, deferred work, waits, both together in percent, the word, its reason."""
    found = []
    for line in DOC.read_text().splitlines():
        row = r"\| (\S+) % \| (\d+) to (\d+) \| (\S+) % \| (\d+) to (\d+) \| `(.+)` \| (.+) \|"
        if match := re.fullmatch(row, line):
            change, base, test, together, before, after = (float(match[i]) for i in range(1, 7))
            caller = [1000.0], [1000.0 + 10 * change]
            deferred, waited = ([10 * base], [10 * test]), ([10 * before], [10 * after])
            found.append((caller, deferred, waited, together, match[7], match[8]))
    return found


@pytest.mark.parametrize(("caller", "deferred", "waited", "together", "word", "reason"), rows())
def test_a_word_is_what_the_whole_cost_allows(
    caller: Arms, deferred: Arms, waited: Arms, together: float, word: str, reason: str
) -> None:
    found, cost = weighed(caller, deferred, waited)
    assert (found.verdict, found.reason[: len(reason)]) == (word, reason)
    assert cost is not None and cost.together is not None
    assert cost.together.ratio == pytest.approx(1 + together / 100, abs=5e-4)
    assert weighed(caller, deferred, waited, chosen=True)[0] == compared("caller", *caller)


def test_the_table_has_every_word() -> None:
    assert {row[4] for row in rows()} == {"improvement", "same", "unknown"} and len(rows()) == 13


def test_scatter_of_what_is_deferred_leaves_it_open_and_asks_for_more_seeds() -> None:
    late = [0.0, 400.0, 150.0, 300.0, 20.0, 250.0]
    found, _ = weighed(([1000], [722]), ([10], late))
    assert found.verdict == Outcome.UNKNOWN and found.reason.startswith("may have moved") and found.more_blocks
    assert "[" in found.reason


def test_work_of_another_kind_in_a_few_seeds_takes_nothing_back() -> None:
    burst = [10.0, 11.0, 900.0, 10.0, 12.0, 10.0]
    found, cost = weighed(([1000], [722]), ([10], burst))
    assert found.verdict == Outcome.IMPROVEMENT
    assert cost is not None and cost.deferred is not None and cost.deferred.test == pytest.approx(63.5 / 6)
    assert whole.without_stray(burst) == [10.0, 11.0, 10.5, 10.0, 12.0, 10.0]
    often = [10.0, 900.0, 800.0, 10.0, 850.0, 10.0]
    assert whole.without_stray(often) == often


def test_waits_that_are_not_certain_are_no_word_either() -> None:
    scattered = [100.0, 300.0, 100.0, 0.0, 400.0, 200.0]
    found, _ = weighed(([1000], [1001]), waited=([100], scattered))
    assert found.verdict == Outcome.UNKNOWN and "the same work, perhaps later" in found.reason and found.more_blocks


def test_more_instructions_are_no_wait() -> None:
    executed = compared("guest_time", [1000], [1500], unit=TIME)
    idle = compared("waited", [0], [0], unit=TIME)
    time = whole.waits(executed, idle, threshold=THRESHOLD, alpha=ALPHA)
    assert time is not None and time.ratio == 1 and not time.is_change


def test_the_parts_are_the_means_of_all_seeds() -> None:
    _, cost = weighed(([1000], [722]), ([8], [286]), ([100], [100]))
    assert cost == whole.Whole(
        caller=whole.Amount(base=1000, test=722, ratio=pytest.approx(0.722), interval=pytest.approx((0.722, 0.722))),
        deferred=whole.Amount(base=8, test=286, ratio=pytest.approx(35.75)),
        together=whole.Amount(base=1000, test=1000, ratio=1, interval=(1, 1)),
        elapsed=whole.Amount(base=1000, test=1000, ratio=1, interval=(1, 1)),
        waited=whole.Amount(base=100, test=100, ratio=1, interval=(1, 1)),
    )
    assert cost.moved == pytest.approx(1.278)


def test_what_was_not_measured_is_none_and_takes_nothing_back() -> None:
    caller = compared("caller", [1000], [722])
    missing = compared("deferred_cycles", [float("nan")], [float("nan")])
    for deferred in (None, missing):
        found, cost = whole.weigh(caller, deferred, None, None, threshold=THRESHOLD, alpha=ALPHA, chosen=False)
        assert found is caller
        assert cost == whole.Whole(caller=cost.caller if cost else None) and cost.moved is None
    counted = compared("caller", [1000], [722], unit="instructions/op")
    deferred = compared("deferred_cycles", [8], [286])
    found, cost = whole.weigh(counted, deferred, None, None, threshold=THRESHOLD, alpha=ALPHA, chosen=False)
    assert found is counted and cost is not None and cost.together is None  # cycles and instructions do not add up


WORLDS = {label: (world, false) for label, world, false in whole_cost.worlds()}


@pytest.mark.parametrize(
    "label",
    [
        "10 % of the caller moved", "30 % of the caller moved, a burst in 15 % of windows",
        "waits +4 %, which scatter by 2 %", "10 % of deferred work more",
    ],
)  # fmt: skip
def test_a_false_word_is_rare(label: str) -> None:
    """60 comparisons of what `make bench-verdict ARGS='--table whole'` prints; at most one of them may be false."""
    world, false = WORLDS[label]
    assert false is not None
    assert whole_cost.words(world, 60, seed=7)[false] <= 1


def test_an_improvement_stays_one_where_nothing_moved() -> None:
    assert whole_cost.words(WORLDS["10 % better, nothing moved"][0], 60, seed=8)[Outcome.IMPROVEMENT] >= 57
