"""A comparison as it is asked for: its mode, from the options and from what the host can do."""

from __future__ import annotations

import msgspec
import pytest

from lab.compare import live_guests, request
from lab.compare.request import ComparisonRequest
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.guests import kvm, perf_stat

QUIET = Progress(quiet=True)


def asked(**more: object) -> ComparisonRequest:
    values = {"base": "v1", "test": "v2", "workload": ("alloc-burst:layout-4632k",), **more}
    return msgspec.convert(values, ComparisonRequest)


@pytest.mark.parametrize(
    ("works", "more", "mode"),
    [
        (False, {}, "exact"),
        (True, {}, "live"),
        (True, {"mode": "exact"}, "exact"),
        (True, {"seeds": 3}, "exact"),
        (True, {"model": "full"}, "exact"),
        (True, {"metric": "instructions"}, "exact"),
        (True, {"explain": True}, "exact"),
        (True, {"robust": True}, "exact"),
        (True, {"workload": ("syscalls:nanosleep",)}, "exact"),
        (True, {"workload": ("syscalls:nanosleep,getppid",)}, "live"),
        (False, {"mode": "live"}, "live"),
        (False, {"rounds": 3}, "live"),
        (False, {"accel": "tcg"}, "live"),
    ],
)
def test_the_mode(monkeypatch: pytest.MonkeyPatch, works: bool, more: dict[str, object], mode: str) -> None:
    monkeypatch.setattr(kvm, "works", lambda qemu, timeout_s: works)
    monkeypatch.setattr(kvm, "accelerator", lambda asked, qemu, progress, **how: "tcg")
    monkeypatch.setattr(live_guests, "check", lambda chosen, plan: None)
    plan = request._live_plan(asked(**more), QUIET)
    assert (plan is not None) == (mode == "live")


@pytest.mark.parametrize(
    ("accelerator", "pmu", "perf", "counts"),
    [
        ("kvm", True, None, True),
        ("kvm", False, None, False),
        ("tcg", True, None, False),
        ("kvm", True, False, False),
        ("kvm", False, True, True),
    ],
)
def test_perf_counts_where_there_is_a_pmu(
    monkeypatch: pytest.MonkeyPatch, accelerator: str, pmu: bool, perf: bool | None, counts: bool
) -> None:
    monkeypatch.setattr(kvm, "accelerator", lambda *_, **__: accelerator)
    monkeypatch.setattr(perf_stat, "has_pmu", lambda: pmu)
    monkeypatch.setattr(live_guests, "check", lambda chosen, plan: None)
    plan = request._live_plan(asked(mode="live", perf=perf), QUIET)
    assert plan is not None and plan.perf == counts


def test_options_of_the_other_mode_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--seeds requires --mode exact"):
        request._live_plan(asked(mode="live", seeds=3), QUIET)
    with pytest.raises(UserError, match="--robust requires --mode exact"):
        request._live_plan(asked(mode="live", robust=True), QUIET)
    with pytest.raises(UserError, match="--seeds requires --mode exact"):
        request._live_plan(asked(rounds=3, seeds=3), QUIET)
    with pytest.raises(UserError, match="require --mode live"):
        request._live_plan(asked(mode="exact", duet=True), QUIET)


@pytest.mark.parametrize(
    "more", [{"metric": "instructions"}, {"model": "none"}, {"workload": ("fio",)}, {"mode": "auto", "model": "none"}]
)
def test_robust_needs_verdicts_that_rest_on_costs(more: dict[str, object]) -> None:
    with pytest.raises(UserError, match="no modelled cycles decide"):
        request.require_cycles(asked(**more))
    request.require_cycles(asked(metric="cycles"))
