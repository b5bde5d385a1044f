"""Verdicts over many cases and metrics, by hand and on noise."""

import pytest

from lab.stats import multiple
from lab.stats.multiple import CaseVerdict
from lab.stats.verdict import Outcome, compare_metric

from .test_verdict import FAULTS, SPEED, live, noisy


def case(name: str, word: str, p: float, *, control: bool = False) -> CaseVerdict:
    return CaseVerdict(name=name, verdict=Outcome(word), p_value=p, control=control)


def test_overall_counts_only_what_survives_holm() -> None:
    # sorted .002, .004, .5: Holm multiplies by 3, 2, 1 -> .006, .008, .5
    both = multiple.overall([case("a", "regression", 0.004), case("b", "same", 0.5), case("c", "improvement", 0.002)])
    assert (both.verdict, both.survived) == (Outcome.REGRESSION, ["a", "c"])
    # .004 * 3 = .012 > .01
    lone = multiple.overall([case("a", "regression", 0.004), case("b", "same", 0.5), case("c", "same", 1.0)])
    assert (lone.verdict, lone.survived) == (Outcome.UNKNOWN, [])
    assert "beyond chance" in lone.reason


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("same same", "same"), ("same improvement", "improvement"), ("improvement unknown", "unknown"),
        ("regression unknown improvement", "regression"), ("", "unknown"),
    ],
)  # fmt: skip
def test_overall_order(words: str, wanted: str) -> None:
    p = {"same": 1.0, "unknown": 1.0, "improvement": 1e-9, "regression": 1e-9}
    got = multiple.overall([case(f"c{i}", w, p[w]) for i, w in enumerate(words.split())])
    assert got.verdict == wanted and got.reason


def test_quiet_cases_together_raise_few_alarms() -> None:
    wrong = 0
    for run in range(60):
        cases = [multiple.case_verdict(str(k), [live(0.0, 0.05, 12, 1000 * run + k)]) for k in range(20)]
        wrong += multiple.overall(cases).verdict in (Outcome.REGRESSION, Outcome.IMPROVEMENT)
    assert wrong <= 2


def test_case_verdict_needs_one_primary() -> None:
    judged = compare_metric(SPEED, [1, 2, 3], [1, 2, 3], exact=True)
    other = compare_metric(FAULTS, [1, 2, 3], [1, 2, 3], exact=True)
    assert multiple.case_verdict("c", [other, judged]).verdict == Outcome.SAME
    for bad in ([other], [judged, judged]):
        with pytest.raises(ValueError, match="exactly one primary"):
            multiple.case_verdict("c", bad)


def test_secondary_metrics_are_marked_and_controlled() -> None:
    judged = compare_metric(SPEED, [1, 2, 3], [2, 4, 6], exact=True)
    found = compare_metric(FAULTS, [1, 2, 3], [2, 4, 6], exact=True)
    noise = [compare_metric(FAULTS, *noisy(0, 0.1, 8, seed), exact=False) for seed in range(5)]
    marked = multiple.mark_secondary([judged, found, *noise])
    assert [c.exploratory for c in marked] == [False, *[True] * 6]
    assert [c.survived for c in marked] == [None, True, *[False] * 5]


def test_a_control_that_moved_is_no_finding() -> None:
    better = multiple.overall([case("large", "improvement", 0.001), case("small", "improvement", 0.001, control=True)])
    assert (better.verdict, better.survived) == (Outcome.IMPROVEMENT, ["large", "small"])
    assert better.reason.startswith("1 of 1 case better, none worse; control moved (small): something else than")
    lone = multiple.overall([case("large", "same", 0.5), case("small", "regression", 0.001, control=True)])
    assert lone.verdict == Outcome.UNKNOWN and lone.reason.startswith("1 case within threshold; control moved (small)")
    still = multiple.overall([case("large", "regression", 0.001), case("small", "same", 0.5, control=True)])
    assert still.reason == "1 of 2 cases worse"
    alone = multiple.overall([case("small", "regression", 0.001, control=True)])
    assert (alone.verdict, alone.reason) == (Outcome.REGRESSION, "1 of 1 case worse")
