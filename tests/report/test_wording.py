"""Phrases that formats share: many cases in short, the whole cost of a case, and what settles an open one."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from lab import report
from lab.compare.results import AbResult, CaseResult
from lab.report import markdown, page, templates, text, wording
from lab.report.inputs import Comparisons, StoredComparison
from lab.stats.whole import Amount, Whole

from ..fakes import result as fakeresult
from ..fakes.result import DISPUTED, EQUAL, FAILED, SLOWER, UNSUPPORTED, UNSURE, WHOLE, case, reports, result

# ---- many cases

SIZES = [1.05 + i / 100 for i in range(12)]


def shown(document: AbResult) -> Comparisons:
    return Comparisons(items=[StoredComparison(raw=document, folder=Path("/nowhere"))])


def named(one: CaseResult, name: str, group: str = "") -> CaseResult:
    return replace(one, case=name, group=group, control=False)


def changed(number: int, size: float, group: str = "") -> CaseResult:
    return case(f"changed-{number}", [100.0 + i for i in range(6)], [size * (100.0 + i) for i in range(6)], group=group)


def many() -> AbResult:
    """Thirteen changes, one of each kind that is open, and four that are the same."""
    cases = [named(EQUAL, f"equal-{i}", "quiet") for i in range(4)]
    cases += [changed(i, size, "loud") for i, size in enumerate(SIZES)]
    cases += [changed(12, 0.5, "loud"), named(UNSURE, "unsure", "loud"), named(FAILED, "broken", "quiet")]
    return result(*cases, named(UNSUPPORTED, "lacking", "quiet"), suite="tiny")


def test_a_summary_counts_by_group_and_sorts_by_size() -> None:
    summary = wording.summary(many())
    assert summary
    assert summary.counts == [
        ("suite tiny", "regression", "improvement", "same", "unknown", "failed", "unsupported"),
        ("quiet", "0", "0", "4", "0", "1", "1"),
        ("loud", "12", "1", "0", "1", "0", "0"),
        ("all", "12", "1", "4", "1", "1", "1"),
    ]
    assert [one.case for one in summary.largest] == ["changed-12", *(f"changed-{i}" for i in range(11, 2, -1))]
    assert [one.case for one in summary.smaller] == ["changed-2", "changed-1", "changed-0"]
    assert [one.case for one in summary.open] == ["broken", "lacking", "unsure"]
    assert summary.same == 4 and summary.changes == "the 10 largest of 13 changes"


def test_many_cases_are_summarised_without_a_suite() -> None:
    some = [named(EQUAL, f"equal-{i}", "even" if i % 2 else "") for i in range(25)]
    assert wording.summary(result(*some[:24])) is None
    summary = wording.summary(result(*some))
    assert summary and summary.changes == "no case changed"
    assert summary.counts == [
        ("group", "regression", "improvement", "same", "unknown", "failed"),
        ("alloc-burst", "0", "0", "13", "0", "0"),
        ("even", "0", "0", "12", "0", "0"),
        ("all", "0", "0", "25", "0", "0"),
    ]


def test_text_names_what_changed_and_what_is_open_and_counts_the_rest() -> None:
    said = text.comparison(shown(many()))
    lines = [line.split("  ")[0] for line in said.splitlines()]
    wanted = ("suite tiny", "the 10 largest of 13 changes:", "changed-12", "changed-11")
    places = [lines.index(start) for start in wanted]
    assert places == sorted(places)
    assert re.search(r"^smaller: changed-2 \+7.0 %, changed-1 \+6.0 %, changed-0 \+5.0 %$", said, re.MULTILINE)
    assert re.search(r"^  broken +n/a  failed in the test arm only: .* exited with status 3: no", said, re.MULTILINE)
    assert re.search(r"^  unsure .* interval wider than", said, re.MULTILINE)
    assert "equal-" not in said
    assert "same: 4 cases, not shown (`lab report 20261121-090000-aaaa --format csv` has all)" in said


def test_the_page_has_all_cases_by_size() -> None:
    said = page.comparison(shown(many()))
    assert "Cases by group" in said
    rows = re.findall(r'<tr class="\w+" data-case="alloc-burst:([^"]+)"', said)
    assert rows == [one.case for one in wording.in_order(many())] and len(rows) == len(many().cases)
    assert rows[:2] == ["changed-12", "changed-11"] and rows[-1].startswith("equal-")
    assert "Cases by group" not in page.comparison(shown(result(EQUAL)))


def test_markdown_says_the_same() -> None:
    said = markdown.comparison(shown(many()))
    assert "| `loud` | 12 | 1 | 0 | 1 | 0 | 0 |" in said
    assert "The 10 largest of 13 changes:" in said and "Same: 4 cases, not shown." in said
    assert "Smaller: `alloc-burst:changed-2` +7.0 %, `alloc-burst:changed-1`" in said
    assert re.search(r"^- `alloc-burst:broken` n/a: `failed in the test arm only: ", said, re.MULTILINE)
    assert "equal-" not in said and "| `alloc-burst:changed-2` |" not in said


# ---- the whole cost


LINE = (
    "caller +58.0 %, deferred 100 to 250 cycles (+15.0 % of the caller), together +73.0 %, "
    "elapsed 2 ms to 2.5 ms (+25.0 %), of it waited 0 ns to 400 us"
)
WHOLLY = replace(SLOWER, whole=WHOLE)


def test_the_whole_cost_is_one_line() -> None:
    assert wording.three(WHOLE) == LINE
    assert wording.three(None) == wording.three(Whole(caller=WHOLE.caller)) == ""
    never_idle = replace(WHOLE, waited=Amount(base=0, test=0, ratio=1))
    assert wording.three(never_idle) == LINE.rpartition(", ")[0]


def test_the_page_and_a_narrow_terminal_have_it(tmp_path: Path) -> None:
    assert f"The whole cost of an operation: {LINE}." in report.render("html", reports(tmp_path, result(WHOLLY, EQUAL)))
    said = fakeresult.printed(text.show, result(WHOLLY, EQUAL), width=80)
    assert max(map(len, said.splitlines())) <= 80
    assert "deferred +15.0 %, elapsed +25.0 %" in said


# ---- open cases


WIDE = "interval wider than ±2 %"


def _open(reason: str, more: int | None = None, interval: tuple[float, float] | None = None) -> CaseResult:
    primary = replace(UNSURE.primary, reason=reason, more_blocks=more, interval=interval)
    return replace(UNSURE, metrics=[primary, *UNSURE.metrics[1:]])


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (DISPUTED, "`--metric instructions` or `--metric cycles` lets one of the two decide"),
        (_open(WIDE, 14), "`--max-seeds 20` settles it (14 more seeds, about 42 s)"),
        (_open(f"{WIDE}; 24 seeds cannot settle it", 600, (0.95, 1.081)), "`--threshold 9%` calls it the same"),
        (
            _open(f"{WIDE}; 24 seeds cannot settle it", None, (0.4, 2.5)),
            "no option settles it: the case scatters too much, a longer or warmed-up one scatters less",
        ),
        (_open("moved to threads and softirqs: 1"), "`--metric cycles` judges the caller's cost alone"),
        (_open("not beyond chance over all cases"), "`-w CASE` measures the case without correction for the others"),
        (SLOWER, ""),
    ],
)
def test_every_open_case_has_a_remedy(case: CaseResult, said: str) -> None:
    assert wording.remedy(case, result(case)) == said
    assert list(wording.remedies(result(case))) == ([said] if said else [])


def test_too_few_seeds_are_settled_by_six() -> None:
    found = result(_open("same in 3 of 3 seeds, 6 decide", 3), seeds=[1, 2, 3])
    assert wording.remedy(found.cases[0], found) == "`--seeds 6` settles it (3 more seeds, about 25 s)"


def test_the_documentation_has_every_remedy() -> None:
    page = (Path(__file__).parents[2] / "docs" / "verdict.md").read_text()
    assert [one.does for one in wording.REMEDIES if one.does not in page] == []


@pytest.mark.parametrize(("words", "drawn"), [
    ("`--seeds 6` settles it", "<code>--seeds 6</code> settles it"),
    ("`<b>` and `x`", "<code>&lt;b&gt;</code> and <code>x</code>"),
    ("a ` of its own", "a ` of its own"),
])  # fmt: skip
def test_a_page_sets_commands_as_code(words: str, drawn: str) -> None:
    assert templates.commands(words) == drawn
