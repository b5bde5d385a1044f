"""The comparison: its document, and what several workloads and cases do to a verdict."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from lab.compare import comparison, judge, measurement, result_folders
from lab.compare.measurement import Measurement
from lab.compare.results import AbResult
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.paths import data_folder
from lab.core.progress import Progress
from lab.guests import exact, hardware
from lab.guests.hardware import Cost, Costs
from lab.kernels import spec
from lab.kernels.debs import DebSource
from lab.kernels.kernel import KernelSpec
from lab.stats import multiple
from lab.stats.sequential import SequentialTest
from lab.stats.verdict import Outcome
from lab.workloads import selection

from ..fakes import result as fakeresult
from ..fakes.guest import WORKLOAD, FakeGuests, FakeInstrument, Formula, alike, kernel, plan, pretend, write_workload
from ..fakes.work import quiet
from .conftest import Start

pytestmark = pytest.mark.usefixtures("own_home")


def slower(arm: str, seed: int, case: str) -> float:
    """The large case is slower in the test arm; the control is not."""
    return 100.0 + seed if arm == "base" or case == "small" else 60.0 + seed


Measure = Callable[..., tuple[AbResult, FakeGuests]]


@pytest.fixture
def measure(start: Start) -> Measure:
    """Measure with guests of a formula, in a result folder of its own."""

    def measured(formula: Formula = slower, *more: str, **changes: Any) -> tuple[AbResult, FakeGuests]:
        guests, go = start(formula, *more, into=result_folders.new_folder(None), jobs=2, **changes)
        return go(), guests

    return measured


def test_a_case_about_something_that_exact_mode_cannot_see_says_so(measure: Measure) -> None:
    text = 'unseen = ["devices"]\n' + WORKLOAD.replace("control = true", 'unseen = ["ipis"]')
    result, _ = measure(text=text)
    assert [case.notes for case in result.cases] == [["unseen: devices, ipis"], ["unseen: devices"]]


def test_a_metric_that_is_not_reported_is_no_comparison_and_no_crash(measure: Measure) -> None:
    more = '\n[[metric]]\nname = "absent"\nunit = "x"\nbetter = "neither"\ndescription = "d"\n'
    result, _ = measure(text=WORKLOAD + more)
    absent = next(metric for metric in result.cases[0].metrics if metric.name == "absent")
    assert absent.base == [None] * len(result.cases[0].metrics[0].base) and absent.method == "none"
    assert result.verdict == Outcome.REGRESSION


def test_two_workloads_are_two_series(tmp_path: Path, measure: Measure) -> None:
    other = write_workload(tmp_path / "other", WORKLOAD.replace('"mine"', '"other"').replace("512", "256"))
    result, guests = measure(slower, other)
    assert [f"{case.workload}:{case.case}" for case in result.cases] == [
        "mine:small", "mine:large", "other:small", "other:large",
    ]  # fmt: skip
    shapes = result.environment.guests
    assert {name: shape.memory_mb for name, shape in shapes.items()} == {"mine": 512, "other": 256}
    assert shapes["mine"].fingerprint != shapes["other"].fingerprint != result.environment.fingerprint
    assert len(guests.calls) == 24 == len([*(result_folders.results_dir() / result.result / "runs").iterdir()])


def test_what_will_be_run_is_said_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = plan(write_workload(tmp_path / "mine"))
    measurement = Measurement.of(wanted, tmp_path, wanted.base.spec)
    comparison.announce(measurement, wanted, Work(jobs=2, progress=Progress()))
    assert capsys.readouterr().err.startswith("2 cases, 6 to 12 seeds: 12 guests, 2 at a time: about ")


def test_arms_without_a_common_machine_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, tmp_path, FakeGuests(slower))
    one = kernel("base")
    monkeypatch.setattr(KernelSpec, "obtain", lambda spec, *_, **__: dataclasses.replace(one, bzimage=None))
    with pytest.raises(UserError, match="no machine type boots all of"):
        comparison.measure(plan(write_workload(tmp_path / "mine")), tmp_path, quiet())


@pytest.fixture
def modelled(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measure a workload that has a cost model of its own."""
    monkeypatch.setattr(
        measurement, "load_instrument", lambda machine, model: None if model == "none" else FakeInstrument(machine)
    )
    return partial(measure, text=WORKLOAD.replace('model = "none"', 'model = "tlb"'), model="auto")


def test_a_workloads_own_cost_model_decides_unless_another_is_asked_for(modelled: Measure) -> None:
    result, _ = modelled()
    (small, large) = result.cases
    (primary,) = (metric for metric in large.metrics if metric.primary)
    assert (primary.name, primary.better) == ("cycles_per_op", "lower")
    assert primary.ratio is not None and 1.2 < primary.ratio < 1.4
    assert (small.verdict, large.verdict) == (Outcome.SAME, Outcome.REGRESSION)
    assert large.guest_clock == "throughput"
    assert result.environment.guests["mine"].model == result.environment.model == FakeInstrument.identity
    plain, _ = modelled(model="none")
    assert [metric.name for metric in plain.cases[1].metrics if metric.primary] == ["throughput"]
    assert plain.cases[1].guest_clock is None
    assert plain.environment.fingerprint != result.environment.fingerprint


def fewer(arm: str, seed: int, case: str) -> float:
    """A fifth fewer instructions in the test arm's large case, which modelled cycles call worse."""
    return 800.0 if arm == "test" and case == "large" else 1000.0


def test_cycles_and_instructions_that_disagree_in_sign_decide_nothing(modelled: Measure) -> None:
    result, _ = modelled(counts=fewer)
    small, large = result.cases
    assert (small.verdict, large.verdict, result.verdict) == (Outcome.SAME, Outcome.UNKNOWN, Outcome.UNKNOWN)
    assert large.primary.reason.startswith("model +27.7 %")
    assert large.primary.reason.endswith(", instructions -20.0 %: rests on the model") and large.holm is None
    assert result.why(large) == large.primary.reason, "no seed more would settle it"
    assert len(large.primary.base) == 6, "and so no seed more was run"
    assert large.instructions is not None and large.instructions.ratio == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("metric", "primary", "word"),
    [("cycles", "cycles_per_op", "regression"), ("instructions", "instructions_per_op", "improvement")],
)
def test_the_users_choice_decides(modelled: Measure, metric: str, primary: str, word: str) -> None:
    result, _ = modelled(counts=fewer, metric=metric)
    large = result.cases[1]
    assert (large.primary.name, large.verdict, result.verdict, result.metric) == (primary, word, word, metric)
    assert result.notes[0] == f"{metric} decide (--metric {metric})"
    assert result.repeat == f"{result.reproduce} # --metric {metric}"
    other = "instructions" if metric == "cycles" else "cycles"
    assert set(large.beside) - {"kernel", "user"} == {other}


@pytest.mark.parametrize(
    ("counts", "notes"),
    [(fewer, ["instructions -20.0 %"]), (lambda arm, *_: 1000.0 + 10 * (arm == "test"), [])],  # below the threshold
)
def test_instructions_that_move_alone_are_a_remark(modelled: Measure, counts: Formula, notes: list[str]) -> None:
    large = modelled(alike, counts=counts)[0].cases[1]
    assert (large.verdict, large.notes) == (Outcome.SAME, notes)


def test_a_change_that_is_not_beyond_chance_over_all_cases_is_unknown() -> None:
    none = multiple.Overall(verdict=Outcome.UNKNOWN, survived=[], reason="")
    found = judge._beyond_chance(fakeresult.SLOWER, none, SequentialTest(0.01, exact=True))
    said = "not beyond chance over all cases"
    assert (found.verdict, found.holm, found.primary.reason) == (Outcome.UNKNOWN, False, said)


def test_cycles_cannot_decide_without_a_model(tmp_path: Path) -> None:
    workload, _ = selection.select(write_workload(tmp_path / "mine"))
    with pytest.raises(UserError, match="--metric cycles: mine has no cost model"):
        judge.metric_of(workload, "cycles", modelled=False)
    judge.metric_of(workload, "instructions", modelled=False)


MACHINES: dict[str, dict[str, tuple[float, ...]]] = {
    "one": {
        "instruction": (0.3, 0.2, 0.8), "walk_4k": (50, 25, 80), "pause": (140, 100, 200), "swapgs": (5, 2, 25),
        "atomic": (19,), "stlb_hit": (7,),
    },
    "two": {"instruction": (0.4,), "walk_4k": (60,), "pause": (60,), "swapgs": (5,), "atomic": (18,), "stlb_hit": (9,)},
    "three": {
        "instruction": (0.3,), "walk_4k": (50,), "pause": (89.8,), "swapgs": (5,), "atomic": (5.6,), "stlb_hit": (7,)
    },
}  # fmt: skip


def write_machine(folder: Path, name: str) -> str:
    """A machine file whose costs are made up; those without a range are no estimates."""
    machine = hardware.read(data_folder("machines") / "zen4.toml")
    made_up = {"l2_hit": (10.0,), "llc_hit": (100.0,), "memory": (400.0,), **MACHINES[name]}
    costs = {}
    for cost in machine.cost.given():
        value, low, high = (*made_up.get(cost, (1.0,)), None, None)[:3]
        costs[cost] = Cost(cycles=value or 0, low=low, high=high, source="made up", estimate=low is not None)
    path = folder / f"{name}.toml"
    path.write_text(hardware.to_toml(msgspec.structs.replace(machine, name=name, cost=Costs(**costs))))
    return str(path)


Robust = Callable[..., tuple[AbResult, FakeGuests]]


@pytest.fixture
def robust(modelled: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Robust:
    """Measure with `--robust`; the large case is these events in each arm, and the small one is equal in both."""
    machines = [write_machine(tmp_path, name) for name in MACHINES]
    monkeypatch.setattr(hardware, "names", lambda *_: machines)

    def measured(base: dict[str, float], test: dict[str, float], **more: Any) -> tuple[AbResult, FakeGuests]:
        def events(arm: str, seed: int, case: str) -> dict[str, float]:
            return test if (arm, case) == ("test", "large") else base

        return modelled(alike, **{"robust": True, "machine": machines[0], "events": events, **more})

    return measured


@pytest.mark.parametrize(
    ("base", "test", "word", "words"),
    [
        (
            {"instruction": 1000, "walk_4k": 2}, {"instruction": 1000, "walk_4k": 4}, "regression",
            "survives every corner: +5.9 % to +44.4 %; "
            "holds on all three machines (two +23.1 %, three +25.0 %)",
        ),
        (
            {"instruction": 1000, "walk_4k": 4}, {"instruction": 1000, "walk_4k": 2}, "improvement",
            "survives every corner: -30.8 % to -5.6 %; "
            "holds on all three machines (two -18.8 %, three -20.0 %)",
        ),
        (
            {"instruction": 1000, "walk_4k": 2}, {"instruction": 1000, "walk_4k": 2.3}, "regression",
            "depends on instruction: +0.9 % to +6.7 %; holds on all three machines (two +3.5 %, three +3.8 %)",
        ),
        (
            {"instruction": 1000, "walk_4k": 2}, {"instruction": 1000, "walk_4k": 2.11}, "same",
            "depends on walk_4k and instruction together: +0.3 % to +2.4 %; "
            "holds on all three machines (two +1.3 %, three +1.4 %)",
        ),
        (
            {"instruction": 1000}, {"instruction": 1000, "swapgs": 1, "stlb_hit": -0.1}, "same",
            "depends on swapgs or instruction: +0.2 % to +12.2 %; holds on all three machines",
        ),
        (
            {"instruction": 15000}, {"instruction": 15000, "pause": 1}, "regression",
            "depends on instruction: +0.8 % to +6.7 %; only on one (two +1.0 %, three +2.0 %)",
        ),
        (
            {"instruction": 2000}, {"instruction": 2000, "atomic": 1}, "regression",
            "depends on instruction: +1.2 % to +4.7 %; "
            "holds on one and two (two +2.2 %, three +0.9 %)",
        ),
    ],
)  # fmt: skip
def test_verdicts_at_other_costs(
    robust: Robust, base: dict[str, float], test: dict[str, float], word: str, words: str
) -> None:
    result, guests = robust(base, test)
    small, large = result.cases
    assert (large.verdict, small.verdict) == (word, "same")
    assert str(large.robustness).startswith(words)
    assert str(small.robustness).startswith("survives every corner: 0.0 % to 0.0 %; holds on all three machines")
    assert guests.boots.count(("test", 1)) == 3 and guests.boots.count(("test", 2)) == 1, "one seed on each machine"


@pytest.mark.parametrize(
    ("base", "test", "reason"),
    [
        # rep_start and rep_long cost 1 cycle each, an instruction 0.3
        (
            {"instruction": 100, "rep_start": 10}, {"instruction": 100},
            "model -25.0 %, 0.0 % without the starts of strings: rests on the model",
        ),
        (
            {"instruction": 100}, {"instruction": 95, "rep_start": 5, "rep_long": 5},
            "model +28.3 %, -5.0 % without the starts of strings: rests on the model",
        ),
        ({"instruction": 100, "rep_start": 10}, {"instruction": 90}, None),
    ],
)  # fmt: skip
def test_a_change_that_hangs_on_the_starts_of_strings_is_unknown(
    robust: Robust, base: dict[str, float], test: dict[str, float], reason: str | None
) -> None:
    result, _ = robust(base, test)
    small, large = result.cases
    assert small.verdict == Outcome.SAME and large.robustness is None if reason else large.robustness
    assert large.verdict == (Outcome.UNKNOWN if reason else Outcome.IMPROVEMENT)
    assert not reason or (large.primary.reason, large.primary.rests_on_model) == (reason, True)
    chosen, _ = robust(base, test, metric="cycles")
    assert chosen.cases[1].verdict.is_change, "the user has chosen"


def test_an_open_case_and_one_without_events_say_nothing_of_other_costs(robust: Robust) -> None:
    dearer = {"instruction": 1000.0, "walk_4k": 2.0}
    result, guests = robust({"instruction": 1000.0}, dearer, counts=fewer)
    small, large = result.cases
    assert large.verdict == Outcome.UNKNOWN and large.robustness is None and small.robustness is not None
    result, guests = robust({}, {}, events=None)
    assert [case.robustness for case in result.cases] == [None, None] and guests.boots.count(("test", 1)) == 1


def test_features_that_the_qemu_lacks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (data_folder("machines") / "zen4.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace(",+mmxext,", ",+mmxext,+fsrm,"))
    asked = []

    def cpuid(_: object, cpu: str) -> exact.GuestCpu:
        asked.append(cpu)
        return exact.GuestCpu({}, {(7, 0, "EDX"): 1 << 4})

    monkeypatch.setattr(exact, "cpuid", cpuid)
    qemu = exact.Qemu(path="/usr/bin/qemu-system-x86_64", version="7.2.22", numbers=(7, 2))
    for machine in (None, "zen4", str(tmp_path / "mine.toml")):
        measurement.name_refused_features(qemu, machine, Progress())
    assert len(asked) == 1 and "+fsrm" in asked[0], "the lab's own machines ask for what every QEMU has"
    assert "QEMU 7.2.22 lacks fsrm of" in capsys.readouterr().err


# ---- arms that are the same guest


SAME = "both arms are the same guest: "


def arm(settings: str = "", version: str = "1") -> KernelSpec:
    text = f"deb:x@{settings}" if settings else "deb:x"
    return KernelSpec(text=text, source=DebSource(package="x", version=version), settings=spec.parse(text).settings)


def remark(base: KernelSpec, test: KernelSpec, **own: Any) -> str | None:
    """The remark on two arms of a workload. own: its fields that are not those of `syscalls`."""
    workload = replace(selection.load("syscalls"), **own)
    return comparison.same_guest(base, test, [workload], exact.exact_machine())


@pytest.mark.parametrize("setting", ["mitigations=off", "cmdline.init_on_alloc=0", "thp=always"])
def test_a_setting_that_every_guest_has_makes_no_other_guest(setting: str) -> None:
    line = f"{SAME}{setting.removeprefix('cmdline.')} is so in every guest"
    assert remark(arm(), arm(setting)) == remark(arm(setting), arm()) == line


def test_two_kernels_or_settings_that_change_something_are_two_guests() -> None:
    assert remark(arm(), arm(version="2")) is None
    for setting in ("mitigations=auto", "thp=never", "env.A=1", "mount.fs=ext4", "sysctl.vm.swappiness=10"):
        assert remark(arm(), arm(setting)) is None
        assert remark(arm(setting), arm(setting)) == f"{SAME}their kernels and settings do not differ"
    said = remark(arm("mitigations=off"), arm("thp=always"))
    assert said == f"{SAME}mitigations=off, thp=always is so in every guest"


def test_a_workload_of_another_setting_makes_it_another_guest() -> None:
    own = {"thp": "never"}
    assert remark(arm(), arm("thp=always"), settings=own) is None
    assert remark(arm(), arm("thp=never"), settings=own) == f"{SAME}thp=never is so in every guest"
