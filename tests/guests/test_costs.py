"""Modelled metrics from windows, against sums done by hand."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from lab.core.errors import GuestFailed
from lab.guests import costs, hardware
from lab.guests.plugin import Operation, Span, Spent, Window
from lab.workloads.spec import Center, Measures

NOTHING = {"instructions": 0}
NONE = Spent(millicycles=(0, 0), user=NOTHING, kernel=NOTHING)


def operation(cycles: int, *, user: int = 0, instructions: int = 1, interruptions: int = 0) -> Operation:
    """An operation that costs so many cycles in the kernel and in user code."""
    return Operation(user * 1000, cycles * 1000, instructions, interruptions)


def window(millicycles: int, operations: Sequence[Operation] = (), **modes: dict[str, int]) -> Window:
    """A window that costs so much in the kernel, and nothing else in user code."""
    user = modes.get("user", {"instructions": 100, "loads": 7, "dtlb_walks_4k": 3})
    kernel = modes.get("kernel", {"instructions": 900, "loads": 13, "dtlb_walks_2m": 2})
    return Window(
        sequence=0, case=1, kind="own", complete=True, millicycles=millicycles + 30_000, user=user, kernel=kernel,
        in_program=Spent(millicycles=(0, millicycles), user=user, kernel=kernel),
        in_interrupts=Spent(millicycles=(0, 20_000), user=NOTHING, kernel=NOTHING),
        in_threads=Spent(millicycles=(0, 10_000), user=NOTHING, kernel=NOTHING),
        unprofiled=(0, 0), interruptions=sum(operation.interruptions for operation in operations) or 2,
        operations=list(operations),
    )  # fmt: skip


def test_sums_are_per_operation_and_what_interrupts_is_beside_them() -> None:
    values = costs.summarize([window(4_000_000, operations=[operation(1000), operation(3000)])])
    expected = {
        "cycles_per_op": 2000, "kernel_cycles": 2000, "user_cycles": 0, "user_instructions": 50,
        "kernel_instructions": 450, "instructions_per_op": 500, "loads": 10, "dtlb_misses": 2.5,
        "counted_operations": 2, "interrupt_cycles": 10, "thread_cycles": 5, "interruptions": 1,
    }  # fmt: skip
    assert {name: values[name] for name in expected} == expected


def test_percentiles_are_values_that_occurred() -> None:
    values = costs.summarize([window(0, operations=[operation(cost, user=1) for cost in range(100, 0, -1)])])
    shares = ("p50", "p95", "p99", "max")
    assert [values[f"cycles_{share}"] for share in shares] == [51, 96, 100, 101]
    assert values["kernel_cycles_p50"] == 50


def test_an_interruption_leaves_no_trace() -> None:
    """A tick came into one of four operations, and made it call the scheduler."""
    operations = [operation(1000), operation(1010), operation(4000, interruptions=1), operation(990)]
    values = costs.summarize([window(7_000_000, operations=operations)])
    assert values["kernel_cycles"] == 1000 and values["cycles_p99"] == 4000


@pytest.mark.parametrize(
    "odd",
    [
        operation(9000, interruptions=1),  # more than one interruption explains
        operation(4000, instructions=2, interruptions=1),  # of another kind
        operation(4000),  # not interrupted
    ],
)
def test_an_operation_that_costs_more_by_itself_counts_in_full(odd: Operation) -> None:
    operations = [operation(1000), operation(1000), odd]
    values = costs.summarize([window(sum(one.millicycles for one in operations), operations=operations)])
    assert values["kernel_cycles"] == pytest.approx((2000 + odd.kernel_millicycles / 1000) / 3)


def test_operations_that_are_mostly_interrupted_count_as_they_are() -> None:
    operations = [operation(1000), operation(2000, interruptions=1), operation(3000, interruptions=1)]
    assert costs.summarize([window(6_000_000, operations=operations)])["kernel_cycles"] == 2000


def test_several_windows_of_a_case_are_one() -> None:
    two = [window(1_000_000, operations=[operation(1000)]), window(5_000_000, operations=[operation(2000)] * 2)]
    values = costs.summarize(two)
    assert values["cycles_per_op"] == values["cycles_p50"] == 2000


def test_a_program_without_marks_is_one_operation_and_what_is_not_modelled_is_no_zero() -> None:
    values = costs.summarize([window(7_000)])
    assert values["cycles_per_op"] == 7
    assert not {"cycles_p50", "llc_misses", "stores"} & set(values)


def test_the_median_needs_marks() -> None:
    with pytest.raises(GuestFailed, match="marks no operation"):
        costs.summarize([window(1)], center="median")


@pytest.mark.parametrize(("measures", "center", "cycles", "count"), [
    ("all", "mean", "cycles_per_op", "instructions_per_op"),
    ("all", "median", "cycles_p50", "instructions_per_op"),
    ("kernel", "mean", "kernel_cycles", "kernel_instructions"),
    ("kernel", "median", "kernel_cycles_p50", "kernel_instructions"),
])  # fmt: skip
def test_instructions_stand_beside_what_decides(measures: Measures, center: Center, cycles: str, count: str) -> None:
    metrics = costs.metrics_of(measures, center)
    assert [metric.name for metric in metrics if metric.primary] == [metrics[0].name] == [cycles]
    assert sorted(metric.name for metric in metrics) == sorted({metric.name for metric in costs.METRICS})
    counts = costs.metrics_of(measures, center, "instructions")[0]
    assert (counts.name, counts.primary) == (count, True)
    assert costs.beside(cycles) == ("instructions", count) and costs.count_of(cycles) == count
    assert costs.beside(count) == ("cycles", costs.metrics_of(measures, "mean")[0].name)
    assert costs.beside("throughput") is None and costs.count_of(count) is None


@pytest.mark.parametrize("name", sorted({m.name for m in costs.METRICS}))
def test_every_metric_is_filled_by_a_full_model(name: str) -> None:
    counters = dict.fromkeys(
        ("instructions", "string_bytes", "loads", "stores", "dtlb_walks_4k", "dtlb_walks_2m", "dtlb_l1_misses",
         "itlb_walks", "l1i_misses", "fetch_stalls", "l1d_misses", "l2_misses", "llc_misses", "atomics",
         "mispredictions", "exceptions", "cr3_writes", "invlpgs", "tlb_invalidations", "zeroed_lines"), 1,
    )  # fmt: skip
    one = window(1000, operations=[operation(1)], user=counters, kernel=counters)
    one = msgspec.structs.replace(one, in_softirqs=one.in_interrupts, in_idle=NONE, steps=1)
    one = msgspec.structs.replace(one, irqs_off=Span(1, 1, 1, 1), preempt_off=Span(1, 1, 1, 1))
    values = {**costs.summarize([one]), **costs.guest_times([one], None, step_ns=16, elapsed_ns=None)}
    assert values[name] > 0 or name in ("user_cycles", "waited")


@pytest.mark.parametrize("kind", ["irqs_off", "preempt_off"])
def test_the_longest_span_is_that_of_all_windows(kind: str) -> None:
    spans = [Span(4_000, 9, 0x10, 0x20), Span(5_500, 7, 0x30, 0x40), None]
    values = costs.summarize([msgspec.structs.replace(window(1), **{kind: span}) for span in spans])
    assert (values[f"{kind}_max_cycles"], values[f"{kind}_max_instructions"]) == (5.5, 7)
    assert values.keys().isdisjoint(set(costs.SPANS) - {f"{kind}_max_cycles", f"{kind}_max_instructions"})


def test_deferred_work_is_softirqs_and_threads_without_idle() -> None:
    softirqs, idle = (msgspec.structs.replace(NONE, millicycles=(0, cycles)) for cycles in (12_000, 6_000))
    two = [msgspec.structs.replace(window(1), in_softirqs=spent, in_idle=idle) for spent in (softirqs, NONE)]
    assert costs.summarize(two)["deferred_cycles"] == (12 + 10 - 6 + 10 - 6) / 2
    assert "deferred_cycles" not in costs.summarize([window(1)])


HALTED = Spent(millicycles=(0, 1), user=NOTHING, kernel={"instructions": 1})


@pytest.mark.parametrize(
    ("idle", "elapsed_ns", "expected"),
    [
        (NONE, 1_700, {"guest_time": 800, "waited": 0}),  # what is beyond the steps is no wait
        (NONE, None, {"guest_time": 800, "waited": 0}),
        (HALTED, 2_000, {"guest_time": 1_000, "waited": 200}),
        (HALTED, 1_500, {"guest_time": 800, "waited": 0}),  # less than was executed
        (HALTED, None, {}),
    ],
)
def test_guest_time_is_executed_and_waited(idle: Spent, elapsed_ns: float | None, expected: dict[str, float]) -> None:
    one = msgspec.structs.replace(window(1, operations=[operation(1)] * 2), in_idle=idle, steps=100)
    assert costs.guest_times([one], None, step_ns=16, elapsed_ns=elapsed_ns) == expected
    assert costs.guest_times([window(1)], None, step_ns=16, elapsed_ns=1_000) == {}, "of older output"


def _kinds(operations: Sequence[Operation], *kinds: tuple[dict[str, int], dict[str, int]]) -> Window:
    """A window whose operations have these events, and the sum of them."""
    each = [kinds[operation.kind] for operation in operations]
    of_user, of_kernel = (dict(sum((Counter(kind[mode]) for kind in each), Counter())) for mode in (0, 1))
    user = sum(operation.user_millicycles for operation in operations)
    kernel = sum(operation.kernel_millicycles for operation in operations)
    whole = window(0, operations=operations)
    program = Spent(millicycles=(user, kernel), user=whole.user, kernel=whole.kernel, events=(of_user, of_kernel))
    return msgspec.structs.replace(whole, in_program=program, kinds=list(kinds))


PRICES = {
    "instruction": 1000, "walk_4k": 50_000, "prefetched": 14_000, "memory": 395_000, "l2_hit": 11_000,
    "rep_memory": 7000, "overlap": 2,
}  # fmt: skip


@pytest.mark.parametrize("measures", ["all", "kernel"])
@pytest.mark.parametrize("center", ["mean", "median"])
def test_events_are_what_the_metric_that_decides_is_the_sum_of(measures: Measures, center: Center) -> None:
    """One operation of five was interrupted, and walked pages on behalf of that."""
    kinds = [
        ({"instruction": 10}, {"instruction": 100, "walk_4k": 1}),
        ({"instruction": 10}, {"instruction": 200}),
        ({"instruction": 10}, {"instruction": 300, "walk_4k": 9}),
    ]
    operations = [
        Operation(
            round(costs.cycles(user, PRICES) * 1000), round(costs.cycles(kernel, PRICES) * 1000), 10, int(n == 2), n
        )
        for n in (0, 1, 1, 0, 2)
        for user, kernel in [kinds[n]]
    ]
    windows = [_kinds(operations, *kinds)]
    found = costs.events(windows, measures=measures, center=center)
    (primary, *_) = costs.metrics_of(measures, center)
    assert costs.cycles(found, PRICES) == pytest.approx(costs.summarize(windows, center=center)[primary.name])
    assert found.get("walk_4k", 0) == pytest.approx(0.5 if center == "mean" else 0)


def test_a_plugin_that_wrote_no_events() -> None:
    assert costs.events([window(0, operations=[operation(100)])], measures="all", center="mean") == {}


@pytest.mark.parametrize(
    ("event", "price"),
    [
        ("walk_4k", 50_000), ("memory", 395_000), ("overlapped_memory", 197_500), ("fetch_l2_hit", 11_000),
        ("prefetched", 14_000), ("waited_prefetched", 28_000), ("rep_memory", 7000), ("byte_of_line", 109),
    ],
)  # fmt: skip
def test_prices(event: str, price: int) -> None:
    assert costs.price(event, PRICES) == price


# ---- corners

EVENTS = [
    "instruction", "walk_4k", "l2_hit", "memory", "overlapped_l2_hit", "overlapped_memory", "fetch_l2_hit",
    "waited_prefetched", "prefetched", "rep_memory", "byte_of_line",
]  # fmt: skip
BOX = {
    "instruction": (500, 2000), "walk_4k": (20_000, 90_000), "prefetched": (8000, 24_000), "memory": (390_000, 400_000),
    "l2_hit": (4000, 30_000), "rep_memory": (3000, 9000), "overlap": (1, 5),
}  # fmt: skip


def _some_events(dice: random.Random) -> dict[str, float]:
    return {event: dice.choice((0, 1, 20, 300)) * dice.random() for event in EVENTS if dice.random() < 0.7} | {
        "instruction": 1 + 1000 * dice.random()
    }


@pytest.mark.parametrize("seed", range(8))
def test_corners_are_those_of_all_prices_in_the_box(seed: int) -> None:
    """Against every corner, and prices between: nothing lies outside, and what was found is reached."""
    dice = random.Random(seed)  # noqa: S311
    base, test = _some_events(dice), _some_events(dice)

    def ratio(prices: costs.Prices) -> float:
        return costs.cycles(test, prices) / costs.cycles(base, prices)

    least, most = costs.corners(base, test, PRICES, BOX)
    for at in (least, most):
        assert all(low <= at[name] <= high for name, (low, high) in BOX.items())
    names = list(BOX)
    tried = [dict(zip(names, values, strict=True)) for values in itertools.product(*BOX.values())]
    tried += [{name: dice.randint(*BOX[name]) for name in names} for _ in range(300)]
    ratios = [ratio(prices) for prices in (PRICES, *tried)]
    # What overlaps is divided in whole thousandths.
    assert ratio(least) <= min(ratios) + 1e-5
    assert ratio(most) >= max(ratios) - 1e-5


def test_the_box_of_a_machine_is_its_ranges() -> None:
    box = costs.box_of(hardware.load())
    assert (box["walk_4k"], box["stlb_hit"], box["overlap"]) == ((25_000, 80_000), (7000, 7000), (1, 8))
    assert set(box) == set(costs.prices_of(hardware.load()))
