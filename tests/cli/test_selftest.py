"""`lab selftest`: its steps, what it does not do, and what it does not tell."""

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from lab.cli import selftest
from lab.cli.selftest import CASE
from lab.core.errors import HostFailed
from lab.guests import exact, kvm, perf_stat

from ..fakes.command import Lab
from ..fakes.guest import QEMU

CHECK = {
    "operations": 500.0,
    "user": {"perf": 18_180.0, "model": 18_000.0, "ratio": 1.01},
    "kernel": {"perf": 4_400.0, "model": 4_000.0, "ratio": 1.1},
}


def compared(mode: str, verdict: str, **counts: float) -> Any:
    metrics = [{"name": "time", "primary": True, "ratio": 1.2, "base": [1.0]}]
    metrics += [{"name": name, "primary": False, "ratio": 1.0, "base": [value]} for name, value in counts.items()]
    live = {"model_checks": {CASE: {"base": CHECK, "test": CHECK}}} if mode == "live" else None
    return {"mode": mode, "cases": [{"verdict": verdict, "metrics": metrics}], "live": live}


CERTIFICATE = {
    "verdict": "same", "pairs": 10, "disturbed": 1, "quantiles": {}, "block_sd": 0.01, "resolves": {"10": 0.02},
}  # fmt: skip


class Commands:
    """Stands for the lab's own commands: gives their documents."""

    live = "regression"
    broken = ""

    def __call__(self, *argv: str, statuses: object = ()) -> Any:
        if argv[0] == self.broken:
            raise HostFailed(f"`lab {argv[0]}` failed: no {platform.node()} in {Path.home()}")
        if argv[0] == "ab":
            if "live" in argv:
                return compared("live", self.live, **{"perf-dtlb-load-misses": 3_000.0})
            return compared("exact", "regression", dtlb_misses=5.0)
        return {
            "doctor": {"findings": [{"name": "disk", "state": "ok"}, {"name": "turbo", "state": "limited"}]},
            "aa": {"certificates": [CERTIFICATE]},
            "machine": {"machine": {"clock": {"ghz": 3.0}}, "notes": []},
        }[argv[0]]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Commands:
    """A host where everything works."""
    made = Commands()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(selftest, "_lab", made)
    monkeypatch.setattr(exact, "find_qemu", lambda *_, **__: QEMU)
    monkeypatch.setattr(kvm, "require", lambda qemu, **how: "host")
    monkeypatch.setattr(perf_stat, "has_pmu", lambda: True)
    return made


def states() -> dict[str, str]:
    return {step["name"]: step["state"] for step in json.loads(Path("selftest.json").read_text())["steps"]}


def test_a_host_where_everything_works(commands: Commands, lab: Lab) -> None:
    page = lab("selftest").out
    assert {*states().values()} == {"ok"} and len(states()) == 7
    assert "agrees with exact mode" in page and "limited: turbo" in page
    events = json.loads(Path("selftest.json").read_text())["steps"][5]["values"]
    assert events == {
        "user instructions": CHECK["user"],
        "kernel instructions": CHECK["kernel"],
        "dTLB misses": {"perf": 6.0, "model": 5.0, "ratio": 1.2},
    }
    assert "selftest.json exists" in lab("selftest", status=2).err


def test_what_a_host_cannot_do_is_named(commands: Commands, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(qemu: str, **how: object) -> str:
        raise kvm.Refusal("there is no /dev/kvm")

    monkeypatch.setattr(kvm, "require", refuse)
    lab("selftest")
    assert [name for name, state in states().items() if state == "ok"] == [
        "doctor", "headline, exact mode", "machine measure",
    ]  # fmt: skip
    monkeypatch.setattr(kvm, "require", lambda qemu, **how: "host")
    monkeypatch.setattr(perf_stat, "has_pmu", lambda: False)
    lab("selftest", "--force")
    assert [name for name, state in states().items() if state != "ok"] == ["hardware events"]


def test_opposite_signs_fail(commands: Commands, lab: Lab) -> None:
    commands.live = "improvement"
    lab("selftest", status=4)
    assert states()["headline, live mode"] == "failed"
    commands.live = "unknown"
    lab("selftest", "--force")  # a host that cannot tell does not contradict


def test_a_step_that_fails_stops_no_other_and_names_nobody(commands: Commands, lab: Lab) -> None:
    commands.broken = "machine"
    lab("selftest", status=4)
    assert [name for name, state in states().items() if state == "failed"] == ["machine measure"]
    text = Path("selftest.json").read_text()
    assert "no HOST in ~" in text and platform.node() not in text
