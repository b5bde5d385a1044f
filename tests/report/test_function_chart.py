"""The chart of the functions that differ most."""

import xml.etree.ElementTree as ElementTree

import pytest

from lab.compare.explain import Explanation, FunctionRow, Space, StoredExplanation
from lab.report import function_chart

from ..fakes.result import EQUAL, SLOWER

SVG = "{http://www.w3.org/2000/svg}"


def row(name: str, base: int, test: int, *, space: Space = "kernel") -> FunctionRow:
    return FunctionRow(
        name=name, space=space, base_cycles=base, test_cycles=test, base_instructions=base, test_instructions=test
    )


def explanation(*rows: FunctionRow) -> Explanation:
    return Explanation(base_operations=1, test_operations=1, cycle_units=1, rows=list(rows))


MIXED = explanation(
    row("more", 100, 400),
    row("less", 300, 100),
    row("same", 250, 250),
    row("gone", 100, 0),
    row('operator<(a; b) & "c"\x01', 0, 50, space="user"),
)


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314


def bars(text: str) -> dict[str, tuple[float, float, str, str]]:
    """Left, width, class and tooltip of each bar, by the first line of its tooltip."""
    found = {}
    for group in parsed(text).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text
        name = title.text.split("\n")[0]
        found[name] = (float(rect.attrib["x"]), float(rect.attrib["width"]), rect.attrib["class"], title.text)
    return found


def test_svg_has_a_bar_for_each_function_that_differs() -> None:
    found = bars(function_chart.svg(MIXED, title="<base> & test", machine="zen4"))
    zero, most, kind, tip = found["more (kernel)"]
    assert kind == "more" and "base 100, test 400\n+300 (+300.0 %)" in tip
    left, width, kind, _ = found["less (kernel)"]
    assert kind == "less" and left + width == pytest.approx(zero, abs=0.02)
    assert width == pytest.approx(most * 200 / 300, abs=0.02)
    assert "(-100.0 %)" in found["gone (kernel)"][3]
    assert "only in test" in found['operator<(a; b) & "c"\ufffd (user)'][3]
    assert found["[1 others] (kernel)"][1] == 0  # `same`


def test_the_largest_differences_stand_and_the_others_are_one() -> None:
    many = explanation(*(row(f"f{i}", 1, 1 + i) for i in range(200)), row("big", 5000, 5500))
    found = bars(function_chart.svg(many, title="t", machine="zen4"))
    assert list(found)[:2] == ["big (kernel)", "f199 (kernel)"] and len(found) == function_chart.MOST_FUNCTIONS + 1
    others = next(bar for name, bar in found.items() if "others]" in name)
    assert f"+{sum(range(181)):,}" in others[3]


def test_a_share_of_a_case_that_is_the_same_is_none() -> None:
    stored = StoredExplanation(
        workload="w", case=EQUAL.case, machine="zen4", model="full", cost="cycles", explanation=MIXED
    )
    assert {line.share for line in function_chart.view(stored, EQUAL).rows} == {"-"}
    assert "600.0 %" in {line.share for line in function_chart.view(stored, SLOWER).rows}


def test_instructions_need_no_machine() -> None:
    text = function_chart.svg(MIXED, "instructions", title="t")
    assert "modelled" not in text
    with pytest.raises(ValueError, match="machine"):
        function_chart.svg(MIXED, title="t")
