"""A result as text: what a reader must find in it."""

import pytest
from msgspec.structs import replace

from lab.compare.cause import Cause, CauseFunction
from lab.compare.results import AbResult, CaseResult
from lab.core.text import number
from lab.report import text, wording
from lab.stats.verdict import Comparison, Metric, Outcome

from ..fakes import result as fakeresult
from ..fakes.result import RATE, arm, case, compared, printed


def _result(*cases: CaseResult) -> AbResult:
    return fakeresult.result(
        *cases, fingerprint="abcdef0123456789", verdict=Outcome.REGRESSION, reason="1 of 2 cases worse",
        base=arm("efa7df3e3bb5^", "1", release="6.6.0", subject="mm: before"),
        test=arm("efa7df3e3bb5", "2", release="6.7.0", note="taking 2222, a [backport]"),
    )  # fmt: skip


SLOWER = case("layout-4632k", [100.0 + i for i in range(6)], [60.0 + i for i in range(6)], primary=RATE, holm=True)
EQUAL = case("layout-512k", [5000.0] * 6, [5000.0] * 6, primary=RATE, control=True)


def _text(result: AbResult, *, width: int | None = None) -> str:
    return printed(text.show, result, width)


def test_everything_a_reader_needs_is_there() -> None:
    text = _text(_result(SLOWER, EQUAL))
    for words in (
        "efa7df3e3bb5^", "111111111111", '("mm: before")', "Linux 6.6.0", "taking 2222, a [backport]",
        "layout-4632k", "layout-512k (control)", "op/s", "regression", "same", "5,000", "-39.0 %",
        "page_faults 10 -> 75", "verdict: regression: 1 of 2 cases worse (threshold 2 %, 6 seeds)",
        "QEMU 7.2.22", "microvm", "640 MiB", "fingerprint abcdef0123456789",
        "lab report 20261121-090000-aaaa", "lab replay 20261121-090000-aaaa",
    ):  # fmt: skip
        assert words in text, words


def test_the_footer_says_what_to_do_next() -> None:
    slower = case("one", [100.0, 101.0, 102.0] * 2, [150.0, 151.0, 152.0] * 2, holm=True)
    commits = {"base": arm("v1", "1", tree="mine"), "test": arm("v3", "3", tree="mine")}
    found = fakeresult.result(slower, **commits)
    page = f"lab report {found.result} -f html -o {found.result}.html"
    commit = f"lab bisect --tree mine --old v1 --new v3 -w {slower.name}"
    assert [*wording.next_steps(found).items()] == [
        ("why", f"lab explain {found.result}"), ("page", page), ("commit", commit), ("repeat", found.repeat),
    ]  # fmt: skip
    assert f"why: lab explain {found.result}" in _text(found)
    why = Cause(case=slower.name, cost="cycles", functions=[CauseFunction(name="clear_page", delta=48.0, share=0.96)])
    explained = _text(replace(found, cause=why))
    assert f"\nwhy: {slower.name} +49.5 %: clear_page makes 96 %" in explained
    assert f"functions: lab explain {found.result}" in explained
    parent = fakeresult.result(slower, **{**commits, "base": arm("v3^", "2", tree="mine")})
    assert "commit" not in wording.next_steps(parent), "there is one commit between the two"
    packages = fakeresult.result(slower, base=arm("deb:6.1", "1", commit=None), test=arm("deb:6.12", "3", commit=None))
    assert "commit" not in wording.next_steps(packages)
    same = fakeresult.result(case("one", [100.0] * 6, [100.0] * 6), **commits)
    assert [*wording.next_steps(same)] == ["page", "repeat"]


def test_worse_and_better_together_are_mixed() -> None:
    worse = case("worse", [100.0, 101.0, 102.0] * 2, [125.0, 126.25, 127.5] * 2, holm=True)
    better = case("better", [100.0, 101.0, 102.0] * 2, [80.0, 80.8, 81.6] * 2, holm=True)
    equal = case("equal", [100.0] * 6, [100.0] * 6)
    found = fakeresult.result(worse, better, equal)
    said = "mixed: 1 worse (to +25.0 %), 1 better (to -20.0 %), 1 same; geometric mean of all costs 0.0 % (threshold"
    assert f"verdict: {said}" in _text(found) and found.verdict == Outcome.REGRESSION
    lost = replace(found, reason=f"{found.reason}; 1 of 4 cases failed")
    assert wording.reason(lost).endswith("0.0 %; 1 of 4 cases failed")
    assert wording.word(fakeresult.result(worse, equal)) == "regression"


def test_one_seed_is_no_seeds() -> None:
    result = replace(_result(SLOWER, EQUAL), seeds=[1])
    assert "(threshold 2 %, 1 seed)\n" in _text(result)
    assert wording.sentence(result).endswith("(threshold 2 %, 1 seed, exact mode)")


@pytest.mark.parametrize("cases", [[SLOWER, EQUAL], [replace(SLOWER, case="c" * 40), EQUAL]])
def test_each_case_is_one_line_of_80_columns_on_a_terminal(cases: list[CaseResult]) -> None:
    shares = [
        compared(Metric(name=name, unit="cycles", better="lower"), [100.0] * 6, [110.0] * 6)
        for name in ("kernel_cycles", "user_cycles")
    ]
    cases = [replace(one, metrics=[*one.metrics, *shares]) for one in cases]
    piped = _text(_result(*cases)).splitlines()
    assert any(len(line) > 80 for line in piped) and any("kernel  " in line for line in piped)
    lines = _text(_result(*cases), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = (line for line in lines if line.rstrip().endswith("regression") and "[" in line)
    noted = next(line for line in lines if "page_faults 10 -> 75" in line)
    assert "[-41.5, -36.5]" in row and "kernel" not in "".join(line for line in lines if line.startswith("case"))
    assert lines.index(noted) > lines.index(row) + 1


@pytest.mark.parametrize(("cases", "words"), [
    ([fakeresult.UNSURE], ["unknown", "interval wider than", "more seeds would settle it"]),
    ([replace(SLOWER, holm=False), EQUAL], ["not beyond chance over all cases"]),
    ([SLOWER, replace(EQUAL, workload="fio")], ["alloc-burst:layout-4632k", "fio:layout-512k (control)"]),
])  # fmt: skip
def test_what_is_open_says_why_and_workloads_are_told_apart(cases: list[CaseResult], words: list[str]) -> None:
    text = _text(_result(*cases))
    assert [said for said in words if said not in text] == []


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0"),
    (7.0, "7"),
    (12345.678, "12,346"),
    (1234567.0, "1,234,567"),
    (0.000123456, "0.0001235"),
    (-3.5, "-3.5"),
])  # fmt: skip
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def _cost(name: str, test: float, *, primary: bool = False) -> Comparison:
    unit = "instructions/op" if name.startswith("instructions") else "modelled cycles/op"
    return compared(Metric(name=name, unit=unit, better="lower", primary=primary), [1000.0] * 6, [test] * 6)


@pytest.mark.parametrize(
    ("metrics", "columns", "cells"),
    [
        (
            [
                _cost("cycles_per_op", 1050.0, primary=True),
                _cost("kernel_cycles", 1000.0),
                _cost("user_cycles", 1100.0),
            ],
            "kernel user",
            "1,050 +5.0 % exact 0.0 % +10.0 %",
        ),
        (
            [
                _cost("cycles_per_op", 1100.0, primary=True),
                _cost("instructions_per_op", 1020.0),
                _cost("own", 600.0),
            ],
            "instructions",
            "1,100 +10.0 % exact +2.0 %",
        ),
        (
            [_cost("instructions_per_op", 1100.0, primary=True), _cost("cycles_per_op", 900.0)],
            "cycles",
            "1,100 +10.0 % exact -10.0 %",
        ),
        ([_cost("instructions_per_op", 1100.0, primary=True)], "", "1,100 +10.0 % exact"),
    ],
)
def test_the_other_costs_of_a_case_have_columns_beside_its_own(
    metrics: list[Comparison], columns: str, cells: str
) -> None:
    one = CaseResult(
        workload="alloc-burst", case="layout-3072k", control=False, verdict=Outcome.REGRESSION, metrics=metrics,
        guest_clock="own",
    )  # fmt: skip
    text = _text(replace(_result(one), metric="instructions"))
    unit = f"{metrics[0].name}, {metrics[0].unit}"
    assert f"\n{unit}{'; instructions: instructions_per_op' if columns == 'instructions' else ''}\ncase " in text
    heading, row = (line.split() for line in text.splitlines() if line.startswith(("case ", "layout-3072k ")))
    assert heading == ["case", "base", "test", "change", "interval", *columns.split(), "verdict"]
    assert row == ["layout-3072k", "1,000", *cells.split(), "regression"]
    assert "instructions decide (--metric instructions)" in text.partition("case ")[0]
    assert "# --metric instructions" in text.partition("repeat: ")[2]
