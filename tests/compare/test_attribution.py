"""Tests of the sentence about the functions behind a change."""

import pytest

from lab.compare import attribution
from lab.compare.explain import Explanation, FunctionRow

from ..fakes import result as fakeresult
from ..fakes.result import case

SLOWER = case("slower", [100.0, 101.0, 102.0] * 2, [150.0, 151.0, 152.0] * 2)
FASTER = case("faster", [100.0, 101.0, 102.0] * 2, [50.0, 50.5, 51.0] * 2)


def _row(name: str, base: int, test: int, calls: tuple[int | None, int | None] = (1, 1)) -> FunctionRow:
    """A function's modelled cycles and calls for one operation."""
    return FunctionRow(
        name=name, space="kernel", base_cycles=1000 * base, test_cycles=1000 * test, base_calls=calls[0],
        test_calls=calls[1],
    )  # fmt: skip


def _sentence(*rows: FunctionRow, of: fakeresult.CaseResult = SLOWER) -> str:
    explanation = Explanation(base_operations=1, test_operations=1, rows=list(rows))
    found = attribution.cause_of(explanation, of, "cycles")
    return str(found) if found else ""


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([_row("new", 0, 2000, (0, 2048))], "new makes 100 % of it (+2,000 cycles per operation, 2,048 new calls)"),
        (
            [_row("moved", 8000, 80), _row("here", 0, 8100, (0, 4)), _row("flush", 0, 900, (0, 1))],
            "flush makes 83 % of it (+900 cycles per operation, 1 new call); "
            "here and moved cancel out but for 180 cycles",
        ),
        (
            [_row("a", 100, 200), _row("b", 50, 130, (2, 3)), _row("c", 9, 59, (None, 1)), _row("d", 0, 20)],
            "a makes 40 % of it (+100 cycles per operation, 1 call as before) and b 32 % (+80, calls 2 -> 3)",
        ),
        ([_row("less", 90, 50)], ""),
        ([_row("equal", 90, 90)], ""),
    ],
)
def test_the_functions_that_make_most_of_a_change_are_named(rows: list[FunctionRow], sentence: str) -> None:
    assert _sentence(*rows) == sentence


def test_of_an_improvement_it_names_what_is_gone() -> None:
    said = _sentence(_row("copy", 80, 0, (2, 0)), _row("new", 0, 10, (0, 1)), of=FASTER)
    assert said == "copy makes 114 % of it (-80 cycles per operation, 2 calls fewer)"


@pytest.mark.parametrize(
    ("primary", "cost"), [("kernel_cycles_p50", "cycles"), ("kernel_instructions", "instructions")]
)
def test_functions_are_counted_in_what_decides(primary: str, cost: str) -> None:
    metric = fakeresult.Metric(name=primary, unit="", better="lower", primary=True)
    assert attribution.cost_of(case("one", [1.0] * 6, [2.0] * 6, primary=metric)) == cost
    assert attribution.cost_of(case("one", [1.0] * 6, [2.0] * 6, primary=fakeresult.RATE)) is None
