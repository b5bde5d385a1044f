"""A comparison as it is asked for: its mode, from the options and from what the host can do."""

import msgspec
import pytest

from lab.compare import live_guests, request
from lab.compare.request import ComparisonRequest
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.guests import kvm, perf_stat
from lab.kernels.debs import DebSource
from lab.kernels.kernel import KernelSpec

QUIET = Progress(quiet=True)


def asked(**more: object) -> ComparisonRequest:
    values = {"base": "v1", "test": "v2", "workload": ("alloc-burst:layout-4632k",), **more}
    return msgspec.convert(values, ComparisonRequest)


@pytest.mark.parametrize("mode", ["exact", "live"])
def test_the_mode(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(kvm, "accelerator", lambda asked, qemu, progress, **how: "kvm")
    monkeypatch.setattr(live_guests, "check", lambda chosen, plan: None)
    assert (request._live_plan(asked(mode=mode), QUIET) is not None) == (mode == "live")
    assert request._live_plan(asked(), QUIET) is None, "exact, whatever the host can do"


@pytest.mark.parametrize(
    ("accelerator", "pmu", "perf", "counts"),
    [
        ("kvm", True, None, True), ("kvm", False, None, False), ("tcg", True, None, False),
        ("kvm", True, False, False), ("kvm", False, True, True),
    ],
)  # fmt: skip
def test_perf_counts_where_there_is_a_pmu(
    monkeypatch: pytest.MonkeyPatch, accelerator: str, pmu: bool, perf: bool | None, counts: bool
) -> None:
    monkeypatch.setattr(kvm, "accelerator", lambda *_, **__: accelerator)
    monkeypatch.setattr(perf_stat, "has_pmu", lambda: pmu)
    monkeypatch.setattr(live_guests, "check", lambda chosen, plan: None)
    plan = request._live_plan(asked(mode="live", perf=perf), QUIET)
    assert plan is not None and plan.perf == counts


@pytest.mark.parametrize(("more", "said"), [
    ({"mode": "live", "seeds": 3}, "--seeds requires --mode exact"),
    ({"mode": "live", "robust": True}, "--robust requires --mode exact"),
    ({"mode": "live", "model": "full"}, "--model requires --mode exact"),
    ({"duet": True}, "--duet requires --mode live"),
    ({"rounds": 3, "seeds": 3}, "--rounds requires --mode live"),
    ({"accel": "tcg"}, "--accel requires --mode live"),
    ({"perf_record": True}, "--perf-record requires --mode live"),
])  # fmt: skip
def test_options_of_the_other_mode_are_refused(more: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        request._live_plan(asked(**more), QUIET)


@pytest.mark.parametrize("more", [{"metric": "instructions"}, {"model": "none"}, {"workload": ("fio",)}])
def test_robust_needs_verdicts_that_rest_on_costs(more: dict[str, object]) -> None:
    with pytest.raises(UserError, match="no modelled cycles decide"):
        request.require_metric(asked(robust=True, **more))
    request.require_metric(asked(robust=True, metric="cycles"))


def test_architectures_are_told_apart_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolved(options: ComparisonRequest, texts: list[str], progress: Progress) -> list[KernelSpec]:
        sources = [DebSource(package="p", version="1", architecture=text.partition("@arch=")[2]) for text in texts]
        return [KernelSpec(text=text, source=source) for text, source in zip(texts, sources, strict=True)]

    monkeypatch.setattr(ComparisonRequest, "resolve", resolved)
    with pytest.raises(UserError, match="are of different architectures: deb"):
        request.plan_of(asked(base="deb:6.1@arch=x86_64", test="deb:6.1@arch=arm64"), QUIET)


def test_cpus_of_exact_mode_are_those_of_the_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(**more: object) -> tuple[str, ...]:
        return request._contending(asked(workload=("contention:fstat",), **more)).workload

    assert of(mode="exact", cpus=4) == ("contention@4:fstat",)
    assert of(mode="exact", cpus=(1, 8)) == ("contention@1:fstat", "contention@8:fstat")
    assert of(mode="live", cpus=4) == ("contention:fstat",)
    with pytest.raises(UserError, match="require --mode exact"):
        of(mode="live", cpus=(1, 4))
    with pytest.raises(UserError, match="requires --mode live"):
        of(mode="exact", cpus=0)
