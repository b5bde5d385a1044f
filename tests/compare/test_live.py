"""`lab ab --mode live` without guests: from a plan to its document, after any stop, and in every format."""

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from lab import report
from lab.cli import ab, main
from lab.compare import boots, certificates, comparison, live, live_guests, measurement, replay, result_folders
from lab.compare.boots import BootRecord, GuestSetup
from lab.compare.live_results import Counted, ModelCheck
from lab.compare.plan import LivePlan, Plan
from lab.compare.results import AbResult, CaseResult
from lab.compare.rounds import Covariate
from lab.compare.runs import GuestRun, Run
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure, HostFailed, UserError
from lab.core.progress import Progress
from lab.guests import hardware, kvm, live_machine, perf_stat
from lab.guests import host as guest_host
from lab.guests.live_machine import LiveGuest
from lab.guests.plugin import Brackets, Instrument, Model
from lab.guests.run import Arm, RunningGuests
from lab.report import document
from lab.report.inputs import open_comparisons
from lab.stats.verdict import Metric, Outcome
from lab.workloads import selection

from ..fakes import live as fakelive
from ..fakes import result as fakeresult
from ..fakes.guest import WORKLOAD, FakeGuests, plan, pretend, write_workload
from ..fakes.work import quiet
from .test_round_runner import Host

HOW = LivePlan(accelerator="tcg", max_rounds=24, iterations=2, seed=1)
FACT = guest_host.HostFact(name="governor", value="powersave", state="limited", text="a text", remedy="a remedy")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    found = Host(lambda arm, seed, case: (50.0 if (arm, case) == ("test", "large") else 100.0) + seed % 3)
    pretend(monkeypatch, tmp_path, FakeGuests())
    fakelive.pretend(monkeypatch, tmp_path, found)
    monkeypatch.setattr(guest_host, "survey", lambda cpus, root=None: [FACT])
    return found


def planned(tmp_path: Path, **changes: object) -> Plan:
    return plan(write_workload(tmp_path / "mine"), mode="live", live=msgspec.structs.replace(HOW, **changes))


def measured(tmp_path: Path, wanted: Plan, **means: Any) -> AbResult:
    folder = tmp_path / "result"
    if not (folder / "plan.json").exists():
        result_folders.store_plan(result_folders.new_folder(folder), wanted)
    return comparison.measure(result_folders.load_plan(folder), folder, quiet(**means))


def test_a_document_of_live_mode(tmp_path: Path, host: Host) -> None:
    host.troubles = iter([["steal 3 %"]])
    found = measured(tmp_path, planned(tmp_path))
    assert {case.case: case.verdict for case in found.cases} == {"small": Outcome.SAME, "large": Outcome.REGRESSION}
    assert (found.mode, found.verdict, found.pairs) == ("live", Outcome.REGRESSION, "round")
    assert found.live is not None and found.live.host == [FACT]
    assert [one.state for one in found.live.rounds[:2]] == ["repeated", "kept"]
    assert found.seeds == [*range(1, len(found.seeds) + 1)]
    assert len(found.cases[0].metrics[0].base) == len(found.seeds), "one number a round"
    assert found.live.commands["mine"]["base"].qemu == ["qemu", "-S"]
    assert records.load(tmp_path / "result" / "result.json", AbResult) == found
    jsonschema.validate(json.loads(records.encode(found)), document.schema())


@pytest.mark.parametrize("is_open", [True, False])
def test_what_a_program_prints_beside_its_metrics_is_compared_where_its_workload_is_open(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    def boot(bench: GuestSetup, arm: Arm, *words: Any, **how: Any) -> BootRecord:
        record = host.boot(bench, arm, *words, **how)
        for values in record.values.values():
            values["lookups"] = [7.0 if arm.name == "base" else 14.0] * record.iterations
        if record.name.endswith("1"):
            record.values["small"]["once"] = [1.0] * record.iterations
        return record

    monkeypatch.setattr(boots, "boot", boot)
    wanted = planned(tmp_path)
    write_workload(tmp_path / "mine", WORKLOAD.replace("vcpus", "open_metrics = true\nvcpus") if is_open else WORKLOAD)
    for case in measured(tmp_path, wanted).cases:
        printed = [metric for metric in case.metrics if metric.name not in ("throughput", "faults")]
        assert [metric.name for metric in printed] == ["lookups"] * is_open
        assert all(metric.ratio == pytest.approx(2.0) and metric.verdict is None for metric in printed)


@pytest.mark.parametrize("changes", [
    {},
    {"fixed_rounds": True, "duet": True, "iterations": None, "perf": True, "perf_record": True},
    {"mirror": True, "nodes": 2},
    {"vcpus": 3},
])  # fmt: skip
def test_the_command_that_repeats_it_asks_for_the_same(tmp_path: Path, host: Host, changes: dict[str, object]) -> None:
    wanted = planned(tmp_path, **changes)
    how = wanted.live
    assert how is not None
    program, name, *words = shlex.split(live.again(wanted, how))
    assert (program, name) == ("lab", "ab")
    # In the settings of the whole program: click keeps the help option of a command that it has seen once.
    asked = ab.ab.make_context("ab", words, **main.lab.context_settings).params
    assert (asked["mode"], asked["accel"], asked["duet"]) == ("live", "tcg", how.duet)
    assert (asked["base"], asked["test"]) == (wanted.base.spec.text, wanted.test.spec.text)
    assert (asked["base_cc"], asked["test_cc"]) == (wanted.base.cc, wanted.test.cc)
    assert ([*asked["workload"]], asked["threshold"]) == (wanted.workloads, wanted.threshold)
    assert asked["rounds"] == (how.max_rounds if how.fixed_rounds else None)
    assert how.fixed_rounds or asked["max_rounds"] == how.max_rounds
    assert (asked["cpus"], asked["numa"]) == (0 if how.mirror else how.vcpus, how.nodes)
    assert (asked["iterations"], asked["perf"], asked["perf_record"]) == (how.iterations, how.perf, how.perf_record)


def test_guests_have_the_cpu_model_of_the_probe(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s, models = [], []

    def require(qemu: str, *, guest_timeout_s: float = 0) -> str:
        limits_s.append(guest_timeout_s)
        return "host,-arch-capabilities"

    def compose(guest: LiveGuest, kernel: Path, root: Path, timeout_s: float) -> tuple[list[str], list[str]]:
        models.append(guest.cpu)
        limits_s.append(timeout_s)
        return ["vng", "--run"], ["qemu", "-S"]

    monkeypatch.setattr(kvm, "require", require)
    monkeypatch.setattr(live_machine, "compose", compose)
    found = measured(tmp_path, planned(tmp_path, accelerator="kvm"))
    assert found.environment.cpu == "host,-arch-capabilities" and {*models} == {"host,-arch-capabilities"}
    assert {*limits_s} == {60.0}, "the guests' limit is that of the probe and of vng"


def test_the_planned_rounds_are_in_the_document_and_older_ones_are_read_without(tmp_path: Path, host: Host) -> None:
    found = measured(tmp_path, planned(tmp_path))
    assert found.live is not None and found.live.planned_rounds == 24
    assert str(found.live).startswith(f"{len(found.seeds)} rounds of 24 planned")
    older = json.loads(records.encode(found))
    del older["live"]["planned_rounds"]
    for case in older["cases"]:
        case["metrics"] = [{**metric, "method": "e-value"} for metric in case["metrics"]]
    read = msgspec.convert(older, AbResult)
    assert read.live is not None and read.live.planned_rounds is None
    assert str(read.live).startswith(f"{len(found.seeds)} rounds")
    jsonschema.validate(older, document.schema())


def test_covariates_are_those_of_the_beginning(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that is made meanwhile, or was lost, changes nothing."""
    known = {"mine:large": Covariate(control="mine:small", slope=0.5, correlation=0.8, pairs=30)}
    monkeypatch.setattr(certificates, "covariates", lambda cases, present, **how: known)
    wanted = planned(tmp_path)
    found = measured(tmp_path, wanted)
    assert found.live is not None and found.live.covariates == known
    assert found.why(found.cases[1]) == "adjusted by mine:small"
    monkeypatch.setattr(certificates, "covariates", lambda cases, present, **how: {})
    folder = tmp_path / "result"
    assert live.covariates_of(folder, ["mine:large"], wanted, HOW, "7.2") == known
    # One that began before there were any, and a certificate itself, have none.
    monkeypatch.setattr(certificates, "covariates", lambda cases, present, **how: known)
    (folder / "covariates.json").unlink()
    assert live.covariates_of(folder, ["mine:large"], wanted, HOW, "7.2") == {}
    other = result_folders.new_folder(tmp_path / "other")
    certificate = msgspec.structs.replace(wanted, certificate=True)
    assert live.covariates_of(other, ["mine:large"], certificate, HOW, "7.2") == {}


@pytest.mark.parametrize("form", sorted(report.FORMATS["comparison"]))
def test_every_format_shows_it(tmp_path: Path, host: Host, form: str) -> None:
    measured(tmp_path, planned(tmp_path))
    shown = report.render(form, open_comparisons([str(tmp_path / "result")]))
    assert "large" in shown
    assert " seeds" not in shown.replace("over all seeds", ""), "rounds, in live mode"


def test_a_profile_that_fails_costs_no_verdict(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def boot(*words: Any, **how: Any) -> BootRecord:
        if how["name"] == "profile-test-mine":
            raise GuestFailed(GuestFailure.PANIC, f"{how['name']}: the kernel panicked")
        return host.boot(*words, **how)

    monkeypatch.setattr(boots, "boot", boot)
    with Progress() as progress:
        found = measured(tmp_path, planned(tmp_path, perf_record=True), progress=progress)
    assert found.verdict == Outcome.REGRESSION
    assert "no profile: profile-test-mine: the kernel panicked" in capsys.readouterr().err
    assert "profile-base-mine" in host.booted and "profile-test-mine" not in host.booted
    assert found.live is not None and not found.live.profiles


def test_each_death_is_told_at_once(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[int] = []

    def boot(*words: Any, **how: Any) -> BootRecord:
        told.append(capsys.readouterr().err.count("round 1: a guest died: the guest hung"))
        raise GuestFailed(GuestFailure.HANG, "the guest hung")

    monkeypatch.setattr(boots, "boot", boot)
    with pytest.raises(GuestFailed) as error:
        measured(tmp_path, planned(tmp_path), progress=Progress())
    assert "its guest died 3 times in round 1" in error.value.message
    assert told == [0, 1, 1], "each is told before the next try"


def test_a_line_a_round(tmp_path: Path, host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.troubles = iter([["steal 3 %"]])
    measured(tmp_path, planned(tmp_path), progress=Progress())
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("cases: 2; up to 24 rounds of 2 guests by tcg on CPUs 0; ")
    assert lines[1].startswith("this host adds noise: governor powersave; ")
    assert lines[2] == "round 1: repeated: steal 3 %"
    assert re.match(r"round 1, \d+ s: mine:small", lines[3])
    assert "; at most 17 more rounds, about " in lines[3]
    assert "regression" in lines[-1] and "at most" not in lines[-1]


def test_what_fits_into_a_budget_is_said_once(
    tmp_path: Path, host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of 10 s: 4 are done when 60 s are left, so 10 in all."""
    host.keep_time(monkeypatch)
    measured(tmp_path, planned(tmp_path), deadline=100.0, progress=Progress())
    lines = capsys.readouterr().err.splitlines()
    said = [number for number, line in enumerate(lines) if line.startswith("planned")]
    assert [lines[number] for number in said] == ["planned for this budget: 10 rounds, 2 iterations a boot"]
    assert lines[said[0] + 1].startswith("round 4, 10 s: ")


def test_a_duet_has_two_seats_and_is_not_replayed(tmp_path: Path, host: Host) -> None:
    found = measured(tmp_path, planned(tmp_path, duet=True, max_rounds=2, fixed_rounds=True))
    assert found.live is not None and found.seeds == [1, 2]
    assert [cpu_set.cpus for cpu_set in found.live.cpu_sets["mine"]] == [[0], [1]]
    with pytest.raises(UserError, match="no two runs are equal to the last digit"):
        replay.replay(str(tmp_path / "result"), quiet())


def test_a_case_that_says_nothing_in_live_mode_is_unsupported(tmp_path: Path, host: Host) -> None:
    text = WORKLOAD.replace("control = true", 'exact_only = "it sleeps"')
    mine = write_workload(tmp_path / "mine", text)
    found = measured(tmp_path, plan(mine, mode="live", live=HOW))
    small, large = found.cases
    assert small.failed and (small.word, small.failed.arms) == ("unsupported", ["base", "test"])
    assert found.why(small) == "unsupported in both arms: mine:small says nothing in live mode: it sleeps"
    assert (large.word, found.verdict) == ("regression", Outcome.REGRESSION)
    assert found.reason == "1 of 1 case worse; 1 of 2 cases unsupported"
    jsonschema.validate(json.loads(records.encode(found)), document.schema())
    ab.require_every_case(found)
    for form in ("text", "md", "html", "junit", "csv"):
        assert "small" in report.render(form, open_comparisons([str(tmp_path / "result")])), form
    with pytest.raises(UserError, match="mine:small says nothing in live mode: it sleeps") as caught:
        live_guests.plan(selection.select_all([f"{mine}:small"]), "tcg", None, max_rounds=20)
    assert caught.value.hint == "measure it with --mode exact"


def test_a_case_that_a_kernel_lacks_is_unsupported_and_the_others_are_judged(tmp_path: Path, host: Host) -> None:
    host.lacking = {"base": ["small"]}
    wanted = planned(tmp_path)
    found = measured(tmp_path, wanted)
    small, large = found.cases
    assert found.why(small) == "unsupported in the base arm only: base arm: small is not there"
    assert (large.word, found.reason) == ("regression", "1 of 1 case worse; 1 of 2 cases unsupported")
    assert len(large.primary.base) == len(found.seeds)
    boots_before = len(host.booted)
    again = measured(tmp_path, wanted)
    assert again.cases == found.cases and len(host.booted) == boots_before, "stored rounds say it again"
    host.lacking = {"base": ["small"], "test": ["large"]}
    (tmp_path / "other").mkdir()
    with pytest.raises(GuestFailed, match="is not there") as caught:
        measured(tmp_path / "other", planned(tmp_path / "other"))
    assert caught.value.kind == GuestFailure.UNSUPPORTED


def test_what_the_host_cannot_do_is_refused_first(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = planned(tmp_path)
    chosen = selection.select_all(wanted.workloads)
    live_guests.check(chosen, HOW)
    with pytest.raises(UserError, match="not enough CPUs"):
        live_guests.check(chosen, msgspec.structs.replace(HOW, vcpus=8))

    def refuse(memory_mb: int, guests: int) -> None:
        raise HostFailed("too little memory")

    monkeypatch.setattr(guest_host, "require_memory", refuse)
    with pytest.raises(HostFailed, match="too little memory"):
        live_guests.check(chosen, HOW)


# ---- the model checked by a PMU: instructions that perf counted in hardware beside exact mode's


class CountingGuests(FakeGuests):
    """Guests of exact mode: a whole program has 9,000,000 user instructions, its window fewer, in 500 operations."""

    def __init__(self) -> None:
        super().__init__()
        self.brackets: list[tuple[str, Brackets | None]] = []
        self.failure: GuestFailed | None = None

    def measure(self, guest: GuestRun, running: RunningGuests) -> Run:
        if self.failure:
            raise self.failure
        run = super().measure(guest, running)
        assert guest.bench.instrument is not None and guest.bench.instrument.model == Model.COUNT
        brackets = guest.bench.instrument.brackets
        self.brackets.append((guest.arm.name, brackets))
        whole = {"counted_operations": 1.0, "user_instructions": 9e6, "kernel_instructions": 2e6}
        window = {"counted_operations": 500.0, "user_instructions": 1.0, "kernel_instructions": 2.0}
        for costs in run.costs.values():
            costs |= whole if brackets is Brackets.CASE else window
        records.save(guest.record_path, run)
        return run


@pytest.fixture
def guests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CountingGuests:
    made = CountingGuests()
    pretend(monkeypatch, tmp_path, made)
    counting = Instrument(library=tmp_path / "plugin" / "libcost.so", machine=hardware.load(), model=Model.COUNT)
    monkeypatch.setattr(measurement, "load_instrument", lambda machine, model: counting)
    # It boots two guests more, once for each user and program.
    monkeypatch.setattr(measurement, "require_fixed_work", lambda guests: None)
    return made


def counted(base: tuple[float, float], test: tuple[float, float]) -> CaseResult:
    """A case in which perf counted so many instructions, in user and in kernel mode."""
    metrics = [fakeresult.compared(fakeresult.RATE, [1.0], [1.0])]
    for event, b, t in zip(perf_stat.SIDES, base, test, strict=True):
        counter = Metric(name=perf_stat.metric_name(event), unit="instructions", better="neither")
        metrics.append(fakeresult.compared(counter, [b], [t]))
    return CaseResult(workload="mine", case="large", group="mine", control=False, verdict=Outcome.SAME, metrics=metrics)


def check(tmp_path: Path, *cases: CaseResult) -> Any:
    asked = plan(write_workload(tmp_path / "mine"))
    folder = result_folders.new_folder(tmp_path / "result")
    return live.check_model(asked, folder, cases, quiet(progress=Progress()))


def test_counts_of_programs_are_divided_by_their_windows_operations(tmp_path: Path, guests: CountingGuests) -> None:
    found = check(tmp_path, counted((9_090_000.0, 2_200_000.0), (9e6, 1e6)))
    user, kernel = Counted(perf=18_180.0, model=18_000.0, ratio=1.01), Counted(perf=4_400.0, model=4_000.0, ratio=1.1)
    base = ModelCheck(operations=500.0, user=user, kernel=kernel)
    user, kernel = Counted(perf=18_000.0, model=18_000.0, ratio=1.0), Counted(perf=2_000.0, model=4_000.0, ratio=0.5)
    test = ModelCheck(operations=500.0, user=user, kernel=kernel)
    assert found == {"mine:large": {"base": base, "test": test}}
    brackets = [(arm, brackets) for arm in ("base", "test") for brackets in (None, Brackets.CASE)]
    assert sorted(guests.brackets, key=str) == sorted(brackets, key=str)
    assert {cases for _, _, cases in guests.calls} == {("large",)}, "only what perf counted"


@pytest.mark.parametrize("case", [
    counted((math.nan, math.nan), (math.nan, math.nan)),
    counted((9e6, math.nan), (9e6, 2e6)),
    counted((9e6, 0.0), (9e6, 2e6)),
])  # fmt: skip
def test_without_all_four_counts_no_guest_runs(tmp_path: Path, guests: CountingGuests, case: CaseResult) -> None:
    assert check(tmp_path, case) == {} and not guests.calls


def test_a_failure_costs_no_verdict(tmp_path: Path, guests: CountingGuests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.failure = GuestFailed(GuestFailure.QEMU_DIED, "no memory")
    assert check(tmp_path, counted((9e6, 2e6), (9e6, 2e6))) == {}
    assert "the model is not checked: no memory" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["html", "md", "text"])
def test_a_pmus_instructions_stand_beside_those_of_exact_mode(
    tmp_path: Path, host: Host, guests: CountingGuests, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    lines = (Path(__file__).parents[1] / "data" / "perf-stat-pmu.jsonl").read_text().splitlines()

    def boot(*words: Any, **how: Any) -> BootRecord:
        record = host.boot(*words, **how)
        for values in record.values.values():
            counted = perf_stat.read(lines).values.items()
            values |= {perf_stat.metric_name(event): [value] * record.iterations for event, value in counted}
        return record

    monkeypatch.setattr(boots, "boot", boot)
    found = measured(tmp_path, planned(tmp_path, accelerator="kvm", perf=True))
    assert found.live is not None and {*found.live.model_checks} == {"mine:small", "mine:large"}
    shown = report.render(form, open_comparisons([str(tmp_path / "result")]))
    for arm in ("base", "test"):
        (line,) = (line for line in shown.splitlines() if f"mine:large, {arm}" in line)
        assert "user 18,180 and 18,000, ratio 1.010; kernel 4,400 and 4,000, ratio 1.100" in line
