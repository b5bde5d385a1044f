"""Modelled metrics of a case: the counts of its windows as numbers that can be compared.

TLBs, caches and cycles are those of a machine file, fed by the instructions and accesses that the guest executed. The
program's own cost decides, with the kernel's work on its behalf; interruptions are a metric beside that. See
docs/cost-model.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from lab.core.errors import GuestFailed, GuestFailure
from lab.guests.hardware import Costs, Machine
from lab.guests.plugin import Operation, Spent, Window
from lab.stats.verdict import Metric
from lab.workloads.spec import Center, Measures

_MILLI = 1000


def _metrics(unit: str, *names: str) -> list[Metric]:
    return [Metric(name=name, unit=unit, better="lower") for name in names]


# The cost decides: which of it, the workload says. The others explain it.
METRICS = (
    *_metrics("modelled cycles/op", "cycles_per_op", "kernel_cycles", "user_cycles"),
    *_metrics("modelled cycles", "cycles_p50", "kernel_cycles_p50", "cycles_p95", "cycles_p99", "cycles_max"),
    *_metrics("modelled cycles/op", "interrupt_cycles", "thread_cycles", "deferred_cycles"),
    *_metrics("ns/op", "guest_time", "waited"),
    *_metrics("modelled cycles", "irqs_off_max_cycles"),
    *_metrics("instructions", "irqs_off_max_instructions"),
    *_metrics("modelled cycles", "preempt_off_max_cycles"),
    *_metrics("instructions", "preempt_off_max_instructions"),
    *_metrics("interruptions/op", "interruptions"),
    *_metrics("instructions/op", "instructions_per_op", "kernel_instructions", "user_instructions"),
    *_metrics("bytes/op", "string_bytes"),
    *_metrics("loads/op", "loads"),
    *_metrics("stores/op", "stores"),
    *_metrics("modelled page walks/op", "dtlb_misses", "user_dtlb_misses"),
    *_metrics("modelled misses/op", "dtlb_l1_misses"),
    *_metrics("modelled page walks/op", "itlb_misses"),
    *_metrics("modelled misses/op", "l1i_misses", "fetch_stalls", "l1d_misses", "l2_misses", "llc_misses"),
    *_metrics("instructions/op", "atomics"),
    *_metrics("modelled mispredictions/op", "mispredictions"),
    *_metrics("exceptions/op", "exceptions"),
    *_metrics("instructions/op", "cr3_writes", "invlpgs", "tlb_invalidations"),
    *_metrics("lines/op", "zeroed_lines"),
    Metric(name="counted_operations", unit="operations", better="neither"),
)

# For guests whose vCPUs contend.
MEETING = (
    *_metrics("moves/op", "moved_lines", "false_moves"),
    *_metrics("instructions/op", "contended_atomics"),
    *_metrics("modelled cycles/op", "wait_cycles", "queue_cycles", "sleep_cycles", "held_cycles"),
    *_metrics("operations of the first by those of the last", "unfairness"),
)

_PLAIN_COUNTS = {
    "instructions_per_op", "kernel_instructions", "user_instructions", "interruptions", "counted_operations",
    "tlb_invalidations", "zeroed_lines", "guest_time", "waited", "irqs_off_max_instructions",
    "preempt_off_max_instructions",
}  # fmt: skip

Basis = Literal["cycles", "instructions"]
"""The unit of a cost: modelled cycles, or executed instructions."""

BASES: tuple[Basis, ...] = get_args(Basis)

_CYCLES: dict[tuple[Measures, Center], str] = {
    ("all", "mean"): "cycles_per_op",
    ("all", "median"): "cycles_p50",
    ("kernel", "mean"): "kernel_cycles",
    ("kernel", "median"): "kernel_cycles_p50",
}

# Means, with either center: the plugin counts the kernel's instructions of a window, not of each operation.
_INSTRUCTIONS: dict[Measures, str] = {"all": "instructions_per_op", "kernel": "kernel_instructions"}

_COUNTS = {cycles: _INSTRUCTIONS[measures] for (measures, _), cycles in _CYCLES.items()}
_MEAN_CYCLES = {count: _CYCLES[measures, "mean"] for measures, count in _INSTRUCTIONS.items()}

# Metrics that are counters of the plugin, by the same names unless `_SUMS` says otherwise.
_COUNTED = (
    "string_bytes", "loads", "stores", "dtlb_misses", "dtlb_l1_misses", "itlb_misses", "l1i_misses", "fetch_stalls",
    "l1d_misses", "l2_misses", "llc_misses", "atomics", "mispredictions", "exceptions", "cr3_writes", "invlpgs",
    "tlb_invalidations", "zeroed_lines",
)  # fmt: skip
_WALKS = ("dtlb_walks_4k", "dtlb_walks_2m")
_SUMS = {"dtlb_misses": _WALKS, "itlb_misses": ("itlb_walks",)}

WHOLE = ("deferred_cycles", "guest_time", "waited")
"""The metrics of the whole cost of a case beside the caller's: the work that it leaves to others, and its time."""

SPANS = ("irqs_off_max_cycles", "irqs_off_max_instructions", "preempt_off_max_cycles", "preempt_off_max_instructions")
"""The longest spans without interrupts and without preemption."""

LATER = (*WHOLE, "cycles_max", *SPANS)
"""The metrics that the records of older labs do not have."""

WHOLE_METRICS = tuple(metric for metric in METRICS if metric.name in WHOLE)
"""The whole cost, in the order of `WHOLE`."""

WRITTEN_PAGE = 4_000
"""Cycles that writing a page of a file takes, an estimate: the flusher of 6.12 takes 3,400 to 4,100, on ext4 in RAM."""

TRACE = 5_000
"""Cycles that one interruption may leave in the operation that it fell into: a schedule, a few colder lines."""


def metrics_of(measures: Measures, center: Center, basis: Basis = "cycles", *, contends: bool = False) -> list[Metric]:
    """The modelled metrics of a workload; the first one decides. contends: its vCPUs do."""
    primary = _CYCLES[measures, center] if basis == "cycles" else _INSTRUCTIONS[measures]
    decides = [msgspec.structs.replace(metric, primary=True) for metric in METRICS if metric.name == primary]
    return [*decides, *(MEETING if contends else ()), *(metric for metric in METRICS if metric.name != primary)]


def count_of(cycles: str) -> str | None:
    """The instruction count of the same share as a metric of cycles that may decide; None for any other metric."""
    return _COUNTS.get(cycles)


def beside(primary: str) -> tuple[Basis, str] | None:
    """The metric that stands beside a deciding one, of the same share: instructions beside cycles, and vice versa.

    None beside a metric that is not modelled.
    """
    if (count := count_of(primary)) is not None:
        return "instructions", count
    cycles = _MEAN_CYCLES.get(primary)
    return ("cycles", cycles) if cycles else None


def summarize(windows: Sequence[Window], counted: float | None = None, *, center: Center = "mean") -> dict[str, float]:
    """The metrics of one case from its windows: the program's cost per operation, and its interruptions.

    An interrupted operation costs as much as the undisturbed ones of its kind (see `_excess`), except
    in the percentiles. counted: the operations of a program that marks none (fio, stress-ng); None counts each window
    as one. `GuestFailed` if the center is the median, and no operation is marked.
    """
    operations = [operation for window in windows for operation in window.operations]
    if center == "median" and not operations:
        raise GuestFailed(
            GuestFailure.MALFORMED, 'its program marks no operation, and center = "median" asks for the typical one'
        )
    count = len(operations) or counted or len(windows)
    own = [window.in_program for window in windows]
    user, kernel = (
        (sum(spent.millicycles[mode] for spent in own) - excess) / _MILLI / count
        for mode, excess in enumerate(_excess(operations))
    )
    values = {"cycles_per_op": user + kernel, "kernel_cycles": kernel, "user_cycles": user}
    values |= _percentiles(operations)
    values["interrupt_cycles"] = _cycles(window.in_interrupts for window in windows) / count
    values["thread_cycles"] = _cycles(window.in_threads for window in windows) / count
    if (deferred := [_deferred(window) for window in windows]) and None not in deferred:
        values["deferred_cycles"] = sum(filter(None, deferred)) / count
    for name in ("irqs_off", "preempt_off"):
        if spans := [span for window in windows if (span := getattr(window, name)) is not None]:
            longest = max(spans, key=lambda span: span.millicycles)
            values[f"{name}_max_cycles"] = longest.millicycles / _MILLI
            values[f"{name}_max_instructions"] = longest.instructions
    values["interruptions"] = sum(window.interruptions for window in windows) / count
    values["instructions_per_op"] = sum(spent.instructions for spent in own) / count
    values["kernel_instructions"] = sum(spent.kernel["instructions"] for spent in own) / count
    values["user_instructions"] = sum(spent.user["instructions"] for spent in own) / count
    for name in _COUNTED:
        _sum(
            values,
            name,
            _SUMS.get(name, (name,)),
            [mode for spent in own for mode in (spent.user, spent.kernel)],
            count,
        )
    _sum(values, "user_dtlb_misses", _WALKS, [spent.user for spent in own], count)
    values["counted_operations"] = count
    if windows and windows[0].of_vcpus:
        values |= _met(windows, count)
    return values


def _deferred(window: Window) -> float | None:
    """The cycles of softirqs and of threads except idle; None if the plugin did not tell them apart."""
    if window.in_softirqs is None or window.in_idle is None:
        return None
    return _cycles([window.in_softirqs, window.in_threads]) - _cycles([window.in_idle])


def guest_times(
    windows: Sequence[Window], counted: float | None, *, step_ns: int, elapsed_ns: float | None
) -> dict[str, float]:
    """The guest time of one operation, and the part of it in which nothing ran; empty if it is not known.

    step_ns: of the guest's clock, which counts instructions. elapsed_ns: of the windows, by the program or
    init; None if neither saw it, which matters only if the guest was idle in them. counted: as for `summarize`.
    """
    count = sum(len(window.operations) for window in windows) or counted or len(windows)
    executed = sum(window.steps * step_ns for window in windows if window.steps is not None)
    never_idle = all(window.in_idle is not None and not window.in_idle.instructions for window in windows)
    if any(window.steps is None for window in windows) or (elapsed_ns is None and not never_idle):
        return {}
    waited = 0.0 if never_idle or elapsed_ns is None else max(0.0, elapsed_ns - executed)
    return {"guest_time": (executed + waited) / count, "waited": waited / count}


def _met(windows: Sequence[Window], count: float) -> dict[str, float]:
    """Values of the metrics of contention, by name."""
    own = [window.in_program for window in windows]
    moved, essential, atomics, waited = (
        sum(mode[name] for spent in own for mode in (spent.user, spent.kernel)) / count
        for name in ("moves", "essential_moves", "contended_atomics", "waited")
    )
    queued, slept = (
        sum(mode.get(name, 0) for spent in own for mode in spent.events) / _MILLI / count
        for name in ("queued", "slept")
    )
    return {
        "moved_lines": moved,
        "false_moves": max(0.0, moved - essential),
        "contended_atomics": atomics,
        "wait_cycles": waited / _MILLI,
        "queue_cycles": queued,
        "sleep_cycles": slept,
        "held_cycles": max(_held(windows).values(), default=0) / _MILLI / count,
        "unfairness": max(max(window.of_vcpus) / max(1, min(window.of_vcpus)) for window in windows),
    }


def counts(values: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a case that are counted, not modelled."""
    return {name: value for name, value in values.items() if name in _PLAIN_COUNTS}


def _held(windows: Sequence[Window]) -> dict[int, int]:
    """The thousandths of cycles that each lock was held, by its line."""
    held: dict[int, int] = defaultdict(int)
    for window in windows:
        for line in window.lines:
            held[line.line] += line.held
    return held


def _sum(
    values: dict[str, float], name: str, counters: Sequence[str], modes: Sequence[Mapping[str, int]], count: float
) -> None:
    """Fill in a sum per operation, unless none of its counters is part of the model."""
    counts = [mode[counter] for mode in modes for counter in counters if counter in mode]
    if counts:
        values[name] = sum(counts) / count


def _cycles(parts: Iterable[Spent]) -> float:
    return sum(sum(spent.millicycles) for spent in parts) / _MILLI


def _excess(operations: Sequence[Operation]) -> tuple[float, float]:
    """The thousandths of user and kernel cycles that interruptions left in the operations that they fell into."""
    user = kernel = 0.0
    for undisturbed, interrupted in _interrupted(operations):
        typical_user = sum(operations[at].user_millicycles for at in undisturbed) / len(undisturbed)
        typical_kernel = sum(operations[at].kernel_millicycles for at in undisturbed) / len(undisturbed)
        user += sum(operations[at].user_millicycles - typical_user for at in interrupted)
        kernel += sum(operations[at].kernel_millicycles - typical_kernel for at in interrupted)
    return user, kernel


def _interrupted(operations: Sequence[Operation]) -> Iterator[tuple[list[int], list[int]]]:
    """The undisturbed operations of each kind, by number, and the operations whose interruptions left a trace.

    An interruption's own cost is not in them, but its trace is: the program calls the scheduler on its behalf. Such a
    trace is the cost of an interrupted operation beyond the mean of the undisturbed ones with as many user
    instructions, if most of these are undisturbed and it is small enough.
    """
    kinds: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for at, operation in enumerate(operations):
        kinds[operation.user_instructions][bool(operation.interruptions)].append(at)
    for undisturbed, interrupted in kinds.values():
        if len(undisturbed) <= len(interrupted):
            continue
        typical = sum(operations[at].millicycles for at in undisturbed) / len(undisturbed)
        traced = [
            at
            for at in interrupted
            if abs(operations[at].millicycles - typical) <= TRACE * _MILLI * operations[at].interruptions
        ]
        yield undisturbed, traced


def events(
    windows: Sequence[Window], counted: float | None = None, *, measures: Measures, center: Center
) -> dict[str, float]:
    """The counts, for one operation, that the cycles which decide are the sum of; empty if none were written.

    They are those of `summarize`: the mean of the operations without the traces of interruptions, or the operation in
    the middle.
    """
    modes = (0, 1) if measures == "all" else (1,)
    operations = [operation for window in windows for operation in window.operations]
    if not all(window.kinds or not window.operations for window in windows):
        return {}
    of_each = [window.kinds[operation.kind] for window in windows for operation in window.operations]
    if center == "median":
        return _added((of_each[_typical(operations, measures)][mode], 1) for mode in modes)
    count = len(operations) or counted or len(windows)
    parts = [(window.in_program.events[mode], 1 / count) for window in windows for mode in modes]
    for undisturbed, interrupted in _interrupted(operations):
        share = len(interrupted) / len(undisturbed) / count
        parts += [(of_each[at][mode], -1 / count) for at in interrupted for mode in modes]
        parts += [(of_each[at][mode], share) for at in undisturbed for mode in modes if share]
    return _added(parts)


def _typical(operations: Sequence[Operation], measures: Measures) -> int:
    """The number of the operation that is the median."""
    each = [operation.millicycles if measures == "all" else operation.kernel_millicycles for operation in operations]
    return _percentile(sorted(range(len(operations)), key=each.__getitem__), 50)


def _added(parts: Iterable[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """The sum of events, each taken so many times."""
    sums: dict[str, float] = defaultdict(float)
    for part, times in parts:
        for name, count in part.items():
            sums[name] += count * times
    return dict(sums)


def _percentiles(operations: Sequence[Operation]) -> dict[str, float]:
    if not operations:
        return {}
    whole = sorted(operation.millicycles for operation in operations)
    kernel = sorted(operation.kernel_millicycles for operation in operations)
    return {
        "cycles_p50": _percentile(whole, 50) / _MILLI,
        "kernel_cycles_p50": _percentile(kernel, 50) / _MILLI,
        "cycles_p95": _percentile(whole, 95) / _MILLI,
        "cycles_p99": _percentile(whole, 99) / _MILLI,
        "cycles_max": whole[-1] / _MILLI,
    }


def _percentile(ordered: Sequence[int], share: int) -> int:
    """The nearest-rank percentile: the smallest value that is not below `share` percent of all."""
    return ordered[max(0, -(-share * len(ordered) // 100) - 1)]


# ---- the same events at other costs

Prices = Mapping[str, int]
"""Costs in thousandths of a cycle by name, and `overlap`."""

_LINE = 64
_OVERLAPPED = "overlapped_"
_COSTS = {"waited_prefetched": "prefetched", "fetch_l2_hit": "l2_hit", "byte_of_line": "rep_memory"}


def prices_of(machine: Machine) -> dict[str, int]:
    """The prices of a machine, as the plugin has them."""
    words = (word.split("=") for word in machine.arguments())
    prices = {name: int(value) for name, value in words if name in Costs.__struct_fields__ or name == "overlap"}
    return {**prices, "move": round(machine.coherence.move.cycles * _MILLI)} if machine.coherence else prices


def price(event: str, prices: Prices) -> int:
    """The price of an event. The plugin has the same prices (`set_prices` in machines/plugin/machine.c)."""
    if event in ("queued", "slept"):  # thousandths of cycles
        return 1
    cost = prices[_cost_of(event)]
    if event.startswith(_OVERLAPPED):
        return cost // prices["overlap"]
    if event == "waited_prefetched":
        return cost * prices["overlap"]
    return cost // _LINE if event == "byte_of_line" else cost


def _cost_of(event: str) -> str:
    """The cost that an event's price follows from, besides `overlap`."""
    return _COSTS.get(event) or event.removeprefix(_OVERLAPPED)


def cycles(events: Mapping[str, float], prices: Prices) -> float:
    """The cycles that events are the sum of."""
    return sum(count * price(event, prices) for event, count in events.items()) / _MILLI


def without_string_starts(prices: Prices) -> dict[str, int]:
    """The prices with string instructions that begin for nothing: `rep movs` and `rep stos` cost their bytes and lines.

    Kernels choose between a string and plain moves by features that guests lack (ERMS, FSRM), so a short block may take
    a string that the modelled machine's kernel would not (arch/x86/lib/copy_user_64.S).
    """
    return {**prices, "rep_start": 0, "rep_long": 0}


def mean_of(events: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of the events of several runs."""
    return _added((each, 1 / len(events)) for each in events)


# ---- the corners of a machine's ranges

Box = Mapping[str, tuple[int, int]]
"""The lowest and the highest of each price."""


def box_of(machine: Machine) -> dict[str, tuple[int, int]]:
    """The ranges of a machine's prices."""
    given = machine.cost.given() | ({"move": machine.coherence.move} if machine.coherence else {})
    ranges = {name: cost.range for name, cost in given.items()}
    box = {name: (round(low * _MILLI), round(high * _MILLI)) for name, (low, high) in ranges.items()}
    return {**box, "overlap": machine.overlap.misses.range}


def corners(
    base: Mapping[str, float], test: Mapping[str, float], prices: Prices, box: Box
) -> tuple[dict[str, int], dict[str, int]]:
    """The prices in a box at which test costs the least, and the most, as a multiple of base.

    Both are linear in all prices except `overlap`, which is tried one by one; the ratio of two linear functions is
    largest at a corner. A price that does not matter stays unchanged.
    """
    least, most = (_extreme(base, test, prices, box, sign) for sign in (-1, 1))
    return least, most


def _extreme(
    base: Mapping[str, float], test: Mapping[str, float], prices: Prices, box: Box, sign: int
) -> dict[str, int]:
    found = [
        _farthest(base, test, {**prices, "overlap": overlap}, box, sign)
        for overlap in _overlaps(sorted({*base, *test}), prices, box)
    ]
    return max(found, key=lambda at: sign * _ratio(base, test, at))


def _ratio(base: Mapping[str, float], test: Mapping[str, float], prices: Prices) -> float:
    return cycles(test, prices) / cycles(base, prices)


def _overlaps(events: Sequence[str], prices: Prices, box: Box) -> Sequence[int]:
    if not any(event.startswith(_OVERLAPPED) or event == "waited_prefetched" for event in events):
        return [prices["overlap"]]
    low, high = box["overlap"]
    return range(low, high + 1)


def _farthest(
    base: Mapping[str, float], test: Mapping[str, float], prices: dict[str, int], box: Box, sign: int
) -> dict[str, int]:
    """The prices with the largest ratio (sign 1) or the smallest (-1), with `overlap` unchanged.

    Dinkelbach, On Nonlinear Fractional Programming (1967): whatever maximizes test - ratio * base, term by term, has a
    larger ratio, until none has.
    """
    names: dict[str, list[str]] = defaultdict(list)
    for event in sorted({*base, *test}):
        names[_cost_of(event)].append(event)
    choices: dict[str, list[tuple[int, float, float]]] = {}
    for name, events_of_it in names.items():
        if box[name][0] == box[name][1]:
            continue
        choices[name] = [
            (value, _sum_at(base, events_of_it, at), _sum_at(test, events_of_it, at))
            for value in (prices[name], *box[name])
            for at in [{**prices, name: value}]
        ]
    ratio = _ratio(base, test, prices)
    while True:
        at = {
            name: max(values, key=lambda one: sign * (one[2] - ratio * one[1]))[0] for name, values in choices.items()
        }
        further = _ratio(base, test, {**prices, **at})
        if sign * (further - ratio) <= _CLOSE:
            return prices
        prices, ratio = {**prices, **at}, further


_CLOSE = 1e-12


def _sum_at(events: Mapping[str, float], names: Iterable[str], prices: Prices) -> float:
    return sum(events.get(name, 0) * price(name, prices) for name in names)
