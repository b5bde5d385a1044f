"""Modelled metrics of a case: the counts of its windows as numbers that can be compared.

TLBs, caches and cycles are those of a machine file, fed by the instructions and accesses that the guest executed. See
docs/cost-model.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.guests.plugin import Window
from lab.stats.verdict import Metric

_MILLI = 1000

# The cost decides. The others explain it.
METRICS = (
    Metric(name="cycles_per_op", unit="modelled cycles/op", better="lower", primary=True),
    Metric(name="cycles_p50", unit="modelled cycles", better="lower"),
    Metric(name="cycles_p95", unit="modelled cycles", better="lower"),
    Metric(name="cycles_p99", unit="modelled cycles", better="lower"),
    Metric(name="user_instructions", unit="instructions/op", better="lower"),
    Metric(name="kernel_instructions", unit="instructions/op", better="lower"),
    Metric(name="string_bytes", unit="bytes/op", better="lower"),
    Metric(name="loads", unit="loads/op", better="lower"),
    Metric(name="stores", unit="stores/op", better="lower"),
    Metric(name="dtlb_misses", unit="modelled page walks/op", better="lower"),
    Metric(name="user_dtlb_misses", unit="modelled page walks/op", better="lower"),
    Metric(name="dtlb_l1_misses", unit="modelled misses/op", better="lower"),
    Metric(name="itlb_misses", unit="modelled page walks/op", better="lower"),
    Metric(name="l1d_misses", unit="modelled misses/op", better="lower"),
    Metric(name="l2_misses", unit="modelled misses/op", better="lower"),
    Metric(name="llc_misses", unit="modelled misses/op", better="lower"),
)

# The plugin's counters that a metric is the sum of.
_SUMS = {
    "string_bytes": ("string_bytes",),
    "loads": ("loads",),
    "stores": ("stores",),
    "dtlb_misses": ("dtlb_walks_4k", "dtlb_walks_2m"),
    "dtlb_l1_misses": ("dtlb_l1_misses",),
    "itlb_misses": ("itlb_walks",),
    "l1d_misses": ("l1d_misses",),
    "l2_misses": ("l2_misses",),
    "llc_misses": ("llc_misses",),
}


def summarize(windows: Sequence[Window], counted: float | None = None) -> dict[str, float]:
    """The metrics of one case from its windows: sums per operation, and percentiles over all operations.

    counted: the operations of a program that marks none (fio, stress-ng); None counts the whole case as one.
    """
    operations = sorted(cost for window in windows for cost in window.operations)
    count = len(operations) or counted or 1
    values = {"cycles_per_op": sum(window.millicycles for window in windows) / _MILLI / count}
    for share, name in ((50, "cycles_p50"), (95, "cycles_p95"), (99, "cycles_p99")):
        if operations:
            values[name] = _percentile(operations, share) / _MILLI
    values["user_instructions"] = sum(window.user["instructions"] for window in windows) / count
    values["kernel_instructions"] = sum(window.kernel["instructions"] for window in windows) / count
    for name, counters in _SUMS.items():
        _sum(values, name, counters, [mode for window in windows for mode in (window.user, window.kernel)], count)
    _sum(values, "user_dtlb_misses", _SUMS["dtlb_misses"], [window.user for window in windows], count)
    return values


def _sum(
    values: dict[str, float], name: str, counters: Sequence[str], modes: Sequence[Mapping[str, int]], count: float
) -> None:
    """Fill in a sum per operation, unless none of its counters is part of the model."""
    counts = [mode[counter] for mode in modes for counter in counters if counter in mode]
    if counts:
        values[name] = sum(counts) / count


def _percentile(ordered: Sequence[int], share: int) -> int:
    """The nearest-rank percentile: the smallest value that is not below `share` percent of all."""
    return ordered[max(0, -(-share * len(ordered) // 100) - 1)]
