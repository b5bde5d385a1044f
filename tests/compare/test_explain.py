"""Profiles by function, counters by meaning, and both as text."""

import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from lab.compare import counters, explain
from lab.compare.explain import CaseExplanation, Explanation, FunctionRow, Initcall
from lab.compare.profiles import ASYNC, OUTSIDE, ArmProfile, Call, initcalls_of
from lab.core import text as core_text
from lab.guests.plugin import Block
from lab.kernels.symbols import Label, SymbolTable
from lab.report import explain_text
from lab.stats import verdict
from lab.stats.verdict import Comparison, Metric

from ..fakes import result as fakeresult

K = 0xFFFFFFFF81000000


KERNEL = SymbolTable([
    Label(K, "T", "clear_page"), Label(K + 0x100, "t", "fault"), Label(K + 0x200, "t", "fault.cold"),
    Label(K + 0x300, "t", "copy.constprop.0"), Label(K + 0x400, "t", "copy.isra.0"), Label(K + 0x500, "D", "data"),
])  # fmt: skip
USER = SymbolTable([Label(0x1000, "T", "main", 0x100), Label(0x1100, "T", "touch", 0x100)])
OTHER = SymbolTable([Label(0x1000, "T", "other", 0x1000)])

BASE = [
    Block(K, 100, 50_000, 10), Block(K + 8, 100, 50_000, 100), Block(K + 0x100, 40, 8_000, 20),
    Block(K + 0x300, 30, 3_000, 3), Block(0x1000, 10, 1_000, 1), Block(0x9000, 7, 700, 1),
]  # fmt: skip
TEST = [
    Block(K, 200, 100_000, 20), Block(K + 8, 200, 100_000, 200), Block(K + 0x104, 80, 16_001, 20),
    Block(K + 0x200, 5, 999, 5), Block(K + 0x400, 60, 6_000, 6), Block(0x1000, 20, 2_000, 2),
    Block(0xFFFFFFFFC0000010, 11, 1_100, 1),
]  # fmt: skip


def profile(blocks: Sequence[Block], operations: int) -> ArmProfile:
    return ArmProfile(blocks=blocks, operations=operations, kernel=[KERNEL], user=[USER, OTHER])


def explained(base: int = 10, test: int = 20) -> Explanation:
    return explain.explain(profile(BASE, base), profile(TEST, test))


def rows_of(explanation: Explanation) -> dict[str, FunctionRow]:
    return {row.name: row for row in explanation.rows}


# --- rows


def test_rows() -> None:
    rows = rows_of(explained())
    assert rows["clear_page"] == FunctionRow(
        name="clear_page", space="kernel", base_instructions=200, test_instructions=400,
        base_cycles=100_000, test_cycles=200_000, base_calls=10, test_calls=20,
    )  # fmt: skip
    # In the test arm it was never entered at its first instruction, and its cold piece is no call.
    assert (rows["fault"].base_calls, rows["fault"].test_calls, rows["fault"].test_cycles) == (20, None, 17_000)
    # Clones of one function are one row, and their calls are its calls.
    assert (rows["copy"].base_calls, rows["copy"].test_calls) == (3, 6)
    assert rows["main"].space == "user"
    assert "other" not in rows
    assert (rows["[unknown user]"].base_cycles, rows["[unknown user]"].test_cycles) == (700, 0)
    assert (rows["[unknown kernel]"].base_cycles, rows["[unknown kernel]"].test_cycles) == (0, 1_100)
    assert (rows["[unknown kernel]"].base_calls, rows["[unknown kernel]"].test_calls) == (0, None)


def test_sorted_by_what_they_contribute() -> None:
    explanation = explained()
    deltas = [abs(explanation.delta(row)) for row in explanation.rows]
    assert deltas == sorted(deltas, reverse=True)
    assert [row.name for row in explanation.rows][:3] == ["[unknown user]", "[unknown kernel]", "fault"]
    assert explain.by_cost(explanation, "instructions")[0].name == "[unknown user]"
    assert {row.name for row in explain.differing(explanation)} == {"fault", "[unknown kernel]", "[unknown user]"}
    assert len(explain.differing(explanation, least=Fraction(1, 3))) == 1


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_exact(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311

    def blocks() -> list[Block]:
        spots = [K, 0x800, 0xFFFFFFFFC0000000]
        return [
            Block(rng.choice(spots) + rng.randrange(0x2000), rng.randrange(10**15), rng.randrange(10**18), 1)
            for _ in range(500)
        ]

    base, test = blocks(), blocks()
    explanation = explain.explain(profile(base, 3), profile(test, 7))
    whole = explain.total(explanation.rows)
    assert whole.base_cycles == sum(block.cycles for block in base)
    assert whole.test_cycles == sum(block.cycles for block in test)
    assert whole.base_instructions == sum(block.instructions for block in base)
    assert whole.test_instructions == sum(block.instructions for block in test)
    shares = [explanation.share(row) for row in explanation.rows]
    assert sum(share for share in shares if share is not None) == 1
    # In whatever order the blocks come.
    rng.shuffle(base)
    assert explain.explain(profile(base, 3), profile(test, 7)) == explanation


# --- mechanisms


def compared(name: str, base: list[float], test: list[float], *, better: verdict.Better = "neither") -> Comparison:
    return verdict.compare_metric(Metric(name=name, unit="n", better=better), base, test, exact=True)


def test_mechanisms_by_how_much_they_moved() -> None:
    found = counters.mechanisms(
        [
            compared("thp_fault_fallback", [0, 0, 0], [1, 1, 1], better="lower"),
            compared("page_faults", [100, 100, 100], [750, 750, 750], better="lower"),
            compared("vmas", [12, 12, 12], [43, 43, 43], better="lower"),
            compared("thp_fault_alloc", [400, 400, 400], [0, 0, 0]),
            compared("pgfree", [5, 5, 5], [5, 5, 5]),
            compared("latency_p99", [5, 5, 5], [50, 50, 50], better="lower"),
            compared("throughput", [5, 5, 5], [1, 1, 1], better="higher"),
            compared("kernel_dtlb_walks_4k", [100, 100, 100], [90, 90, 90]),
            compared("nobody_knows", [1, 1, 1], [2, 2, 2]),
            compared("broken", [float("nan")], [1]),
        ]
    )
    assert [m.name for m in found] == [
        "thp_fault_alloc", "page_faults", "vmas", "thp_fault_fallback", "nobody_knows", "kernel_dtlb_walks_4k",
    ]  # fmt: skip
    assert (found[1].ratio, found[3].ratio) == (7.5, None)
    assert found[4].meaning == "" and "small pages" in found[5].meaning


# --- initcalls

# Of Debian's 6.1, shortened.
LOG = (Path(__file__).parents[1] / "data" / "initcalls-6.1.txt").read_text().splitlines()


def test_initcalls_are_read_from_the_log_and_the_rest_is_outside() -> None:
    found = initcalls_of(LOG, {"futex_init": "core"})
    assert found.pop(Call("do_populate_rootfs", ASYNC)) == 170_293
    outside = found.pop(Call(OUTSIDE))
    assert found == {
        Call("init_kprobes"): 6200, Call("futex_init", "core"): 196, Call("clocksource_done_booting"): 200,
        Call("unpopulated_init"): 1000, Call("init_subsystem"): 150,
    }  # fmt: skip
    assert outside + sum(found.values()) == 6_091_649
    assert initcalls_of(LOG[:3], {}) == {Call("init_kprobes"): 6200}, "a log that ends before init"


def test_initcalls_of_two_arms_meet_by_name_and_add_up() -> None:
    outside, gone, work = Call(OUTSIDE), Call("gone", "late"), Call("work", ASYNC)
    base = {Call("same"): 5000, gone: 3000, Call("slower", "core"): 1000, outside: 70_000, work: 100}
    test = {Call("same"): 5000, Call("new"): 9000, Call("slower", "core"): 3500, outside: 10_000, work: 700}
    rows = explain.initcalls(base, test)
    assert [(row.name, row.delta) for row in rows] == [
        ("new", 9000), ("gone", -3000), ("slower", 2500), ("work", 600), ("same", 0), (OUTSIDE, -60_000),
    ]  # fmt: skip
    assert rows[0].base is None and rows[1].test is None
    shown = explain.largest_initcalls(rows, 2)
    assert [row.name for row in shown] == ["new", "gone", "[2 others]", OUTSIDE, "total"]
    assert shown[2] == Initcall(name="[2 others]", base=6000, test=8500)
    assert (shown[-1].base, shown[-1].test) == (79_000, 27_500)
    assert sum(row.delta for row in shown[:-1]) == shown[-1].delta
    assert explain.largest_initcalls([]) == []
    assert explain.initcalls_by_level(rows) == [
        Initcall(name="core", base=1000, test=3500),
        Initcall(name="late", base=3000, test=0),
        Initcall(name=ASYNC, base=100, test=700),
    ]


# --- text


def shown(
    explanation: Explanation, *, width: int = 1000, everything: bool = False, initcalls: Sequence[Initcall] = ()
) -> str:
    result = fakeresult.result(base=fakeresult.arm("v6.11", "1"), test=fakeresult.arm("v6.12", "2"))
    why = CaseExplanation(
        result=result, case=result.cases[0], explanation=explanation, machine="zen4", model="full", cost="cycles",
        mechanisms=counters.mechanisms([compared("vmas", [12], [43])]), initcalls=initcalls,
    )  # fmt: skip
    return core_text.plain(lambda _: explain_text.render(why, width, everything=everything))


def test_text() -> None:
    text = shown(explained())
    assert "base  v6.11\ntest  v6.12\n" in text
    assert "cycles_per_op: 102.5 -> 162.5 (+58.5 %), the verdict's figure, of 6 seeds\n" in text
    assert "modelled cycles (zen4) per operation: 11.27 -> 11.3 (+0.3 %)" in text
    assert "instructions per operation: 28.7 -> 28.8 (+0.3 %)" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "fault 0.8 0.85 +0.05 142.9 % kernel 2 -> ?" in lines
    assert "[3 others] 10.4 10.4 0 0.0 %" in lines
    assert "vmas 12 -> 43 +258.3 % mappings of the process: buffers that lie apart cannot merge into one" in lines
    assert all(line == line.rstrip() for line in text.splitlines())


def test_text_of_initcalls() -> None:
    outside = {Call(OUTSIDE): 1_234_560}
    rows = explain.initcalls({Call("new\x1b[1m", "fs"): 5000, **outside}, {Call("other"): 40, **outside})
    text = shown(explained(), initcalls=rows)
    lines = [" ".join(line.split()) for line in text.partition("initcalls, ms of guest time\n")[2].splitlines()]
    assert lines[:2] == ["initcall level base test difference", "new\\x1b[1m fs 5.0 - -5.0"]
    assert lines[2:5] == ["other - 0.0 +0.0", f"{OUTSIDE} 1,234.6 1,234.6 +0.0", "total 1,239.6 1,234.6 -5.0"]
    assert lines[6:9] == ["by level", "level base test difference", "fs 5.0 0.0 -5.0"]
    assert "initcalls" not in shown(explained())


def test_text_of_everything_and_of_the_top(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(explained(), everything=True)
    assert "clear_page" in text and "others" not in text
    monkeypatch.setattr(explain_text, "_MOST_ROWS", 1)
    assert "[5 others]" in shown(explained())


def test_a_counter_below_zero_has_no_percentage() -> None:
    (found,) = counters.mechanisms([compared("vmas", [-2.0], [6.0])])
    assert found.ratio is None and explain_text.moved(found) == ""


def row_of(name: str, width: int) -> str:
    """The line of a kernel whose only function has that name."""
    arms = (
        ArmProfile(blocks=[Block(K, 1, cycles, 1)], operations=1, kernel=[SymbolTable([Label(K, "T", name)])])
        for cycles in (10**9, 10**9 + 10**6)
    )
    return next(line for line in shown(explain.explain(*arms), width=width).splitlines() if line.startswith(name[:10]))


@pytest.mark.parametrize(
    ("width", "rest"), [(120, ["100.0", "%", "kernel", "1"]), (88, ["100.0", "%", "1"]), (78, ["1"])]
)
def test_narrow_text_keeps_the_calls_longer_than_space_and_share(width: int, rest: list[str]) -> None:
    assert row_of("prot_commit_flush_ptes", width).split()[4:] == rest


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_narrow_text_keeps_its_lines(width: int) -> None:
    line = row_of("a_function_with_a_very_long_name_that_fits_nowhere_because_it_goes_on_and_on", width)
    assert "…" in line and "+1,000" in line
    assert width < 60 or len(line) <= width
