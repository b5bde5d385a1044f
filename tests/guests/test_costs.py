"""Modelled metrics from windows, against sums done by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lab.guests import costs
from lab.guests.plugin import Window


def window(millicycles: int, operations: Sequence[int] = (), **modes: dict[str, int]) -> Window:
    user = modes.get("user", {"instructions": 100, "loads": 7, "dtlb_walks_4k": 3})
    kernel = modes.get("kernel", {"instructions": 900, "loads": 13, "dtlb_walks_2m": 2})
    return Window(
        sequence=0, case=1, kind="own", complete=True, millicycles=millicycles, user=user, kernel=kernel,
        operations=list(operations),
    )  # fmt: skip


def test_sums_are_per_operation() -> None:
    values = costs.summarize([window(4_000_000, operations=[1_000_000, 3_000_000])])
    assert values["cycles_per_op"] == 2000
    assert values["user_instructions"] == 50
    assert values["kernel_instructions"] == 450
    assert values["loads"] == 10
    assert values["dtlb_misses"] == 2.5


def test_percentiles_are_values_that_occurred() -> None:
    values = costs.summarize([window(0, operations=[cost * 1000 for cost in range(100, 0, -1)])])
    assert (values["cycles_p50"], values["cycles_p95"], values["cycles_p99"]) == (50, 95, 99)


def test_several_windows_of_a_case_are_one() -> None:
    two = [window(1_000_000, operations=[1_000_000]), window(5_000_000, operations=[2_000_000, 3_000_000])]
    values = costs.summarize(two)
    assert values["cycles_per_op"] == 2000
    assert values["cycles_p50"] == 2000


def test_a_program_without_marks_is_one_operation() -> None:
    values = costs.summarize([window(7_000)])
    assert values["cycles_per_op"] == 7
    assert "cycles_p50" not in values


def test_what_is_not_modelled_is_left_out_and_not_zero() -> None:
    values = costs.summarize([window(1)])
    assert "llc_misses" not in values
    assert "stores" not in values


def test_one_metric_decides() -> None:
    assert [metric.name for metric in costs.METRICS if metric.primary] == ["cycles_per_op"]
    assert len({metric.name for metric in costs.METRICS}) == len(costs.METRICS)


@pytest.mark.parametrize("name", sorted({m.name for m in costs.METRICS} - {"cycles_p50", "cycles_p95", "cycles_p99"}))
def test_every_metric_is_filled_by_a_full_model(name: str) -> None:
    counters = dict.fromkeys(
        ("instructions", "string_bytes", "loads", "stores", "dtlb_walks_4k", "dtlb_walks_2m", "dtlb_l1_misses",
         "itlb_walks", "l1d_misses", "l2_misses", "llc_misses"), 1,
    )  # fmt: skip
    assert costs.summarize([window(1000, user=counters, kernel=counters)])[name] > 0
