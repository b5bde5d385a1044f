"""The mode of `lab ab`, from its options and from what the host can do."""

from __future__ import annotations

import msgspec
import pytest

from lab.cli import ab
from lab.compare import live_guests
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.guests import kvm

QUIET = Progress(quiet=True)


def asked(**more: object) -> ab.AbOptions:
    values: dict[str, object] = {
        "base": "v1", "test": "v2", "workload": ("alloc-burst:layout-4632k",), "tree": None, "mode": "auto",
        "threshold": 0.02, "seeds": None, "max_seeds": 24, "budget": None, "cc": "gcc", "base_cc": None,
        "test_cc": None, "qemu": "qemu-system-x86_64", "guest_timeout": 300.0, "model": "auto", "machine": "m",
        "jobs": None, "accel": "auto", "cpus": None, "numa": None, "duet": False, "rounds": None, "max_rounds": 40,
        "iterations": None, "perf": None, "perf_record": False, "fail_on": None,
        "require_verdict": False, "explain": False,
    }  # fmt: skip
    return msgspec.convert({**values, **more}, ab.AbOptions)


@pytest.mark.parametrize(
    ("works", "more", "mode"),
    [
        (False, {}, "exact"),
        (True, {}, "live"),
        (True, {"mode": "exact"}, "exact"),
        (True, {"seeds": 3}, "exact"),
        (True, {"model": "full"}, "exact"),
        (True, {"explain": True}, "exact"),
        (False, {"mode": "live"}, "live"),
        (False, {"rounds": 3}, "live"),
        (False, {"accel": "tcg"}, "live"),
    ],
)
def test_the_mode(monkeypatch: pytest.MonkeyPatch, works: bool, more: dict[str, object], mode: str) -> None:
    monkeypatch.setattr(kvm, "works", lambda qemu: works)
    monkeypatch.setattr(kvm, "accelerator", lambda asked, qemu, progress: "tcg")
    monkeypatch.setattr(live_guests, "check", lambda chosen, plan: None)
    plan = ab._live_plan(asked(**more), QUIET)
    assert (plan is not None) == (mode == "live")


def test_options_of_the_other_mode_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--seeds requires --mode exact"):
        ab._live_plan(asked(mode="live", seeds=3), QUIET)
    with pytest.raises(UserError, match="--model requires --mode exact"):
        ab._live_plan(asked(mode="live", model="full"), QUIET)
    with pytest.raises(UserError, match="--seeds requires --mode exact"):
        ab._live_plan(asked(rounds=3, seeds=3), QUIET)
    with pytest.raises(UserError, match="require --mode live"):
        ab._live_plan(asked(mode="exact", duet=True), QUIET)
