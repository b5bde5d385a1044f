"""Tests of what the output says of open cases."""

from pathlib import Path

import msgspec
import pytest

from lab.compare.results import CaseResult
from lab.report import templates, wording

from ..fakes import result as fakeresult
from ..fakes.result import DISPUTED, SLOWER, UNSURE

DOCS = Path(__file__).parents[2] / "docs"


def _open(reason: str, more: int | None = None, interval: tuple[float, float] | None = None) -> CaseResult:
    primary = msgspec.structs.replace(UNSURE.primary, reason=reason, more_blocks=more, interval=interval)
    return msgspec.structs.replace(UNSURE, metrics=[primary, *UNSURE.metrics[1:]])


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (DISPUTED, "`--metric instructions` or `--metric cycles` lets one of the two decide"),
        (_open("interval wider than ±2 %", 14), "`--max-seeds 20` settles it (14 more seeds, about 42 s)"),
        (
            _open("interval wider than ±2 %; 24 seeds cannot settle it", 600, (0.95, 1.081)),
            "`--threshold 9%` calls it the same",
        ),
        (
            _open("interval wider than ±2 %; 24 seeds cannot settle it", None, (0.4, 2.5)),
            "no option settles it: the case scatters too much, a longer or warmed-up one scatters less",
        ),
        (_open("moved to threads and softirqs: 1"), "`--metric cycles` judges the caller's cost alone"),
        (_open("not beyond chance over all cases"), "`-w CASE` measures the case without correction for the others"),
        (SLOWER, ""),
    ],
)
def test_every_open_case_has_a_remedy(case: CaseResult, said: str) -> None:
    assert wording.remedy(case, fakeresult.result(case)) == said
    assert list(wording.remedies(fakeresult.result(case))) == ([said] if said else [])


def test_too_few_seeds_are_settled_by_six() -> None:
    found = fakeresult.result(_open("same in 3 of 3 seeds, 6 decide", 3), seeds=[1, 2, 3])
    assert wording.remedy(found.cases[0], found) == "`--seeds 6` settles it (3 more seeds, about 25 s)"


def test_the_documentation_has_every_remedy() -> None:
    page = (DOCS / "verdict.md").read_text()
    assert [one.does for one in wording.REMEDIES if one.does not in page] == []


@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        ("`--seeds 6` settles it", "<code>--seeds 6</code> settles it"),
        ("`<b>` and `x`", "<code>&lt;b&gt;</code> and <code>x</code>"),
        ("a ` of its own", "a ` of its own"),
    ],
)
def test_a_page_sets_commands_as_code(words: str, drawn: str) -> None:
    assert templates.commands(words) == drawn
