"""Nights on histories with known effects: each change is reported once, whatever goes wrong."""

from pathlib import Path
from typing import Any

import pytest

from lab.bisection import session
from lab.cli import main
from lab.compare import measurement, result_folders, runs
from lab.compare.plan import ArmPlan
from lab.history import database
from lab.kernels import debs
from lab.kernels.debs import DebSource
from lab.kernels.kernel import Kernel, KernelSpec
from lab.kernels.spec import Package
from lab.nightly import plan as nightly_plan
from lab.nightly import record, run, tips
from lab.nightly.record import Event
from lab.workloads import selection

from ..fakes import nights as fakenights
from ..fakes.command import Lab
from ..fakes.guest import FakeInstrument
from ..fakes.kernel import git
from ..fakes.nights import Nights


def test_ten_nights_one_alarm_the_right_commit_one_fix(nights: Nights) -> None:
    culprit, fix = fakenights.story(nights)
    told = [(event.kind, event.night) for event in nights.events()]
    assert told == [("regression", 6), ("fixed", 9)]
    alarm, fixed = nights.events()
    assert alarm.culprit is not None and alarm.culprit.commit == culprit and alarm.culprit.proof
    assert [case.case for case in alarm.cases] == ["large"]
    assert alarm.cases[0].ratio == pytest.approx(0.8)
    assert fixed.closes == alarm.id and fixed.test == fix
    words = [one.outcome for one in record.load_all("plan")]
    assert words == ["green"] * 5 + ["regression", "no news", "no news", "green", "green"]


def test_nothing_new_is_not_green_and_a_second_run_the_same_night_does_nothing(nights: Nights) -> None:
    nights.run()
    boots = len(nights.guests.calls)
    assert nights.run().outcome == "nothing new"
    assert len(nights.guests.calls) == boots
    nights.add(100.0)
    before, boots = nights.run(), len(nights.guests.calls)
    assert nights.again() == before
    assert "is done" in nights.said
    assert len(nights.guests.calls) == boots


@pytest.mark.parametrize("stop_after", [1, 7, 13, 20, 40, 60])
def test_a_night_that_was_interrupted_goes_on(nights: Nights, stop_after: int) -> None:
    nights.run()
    nights.add(100.0, count=2)
    culprit = nights.add(70.0)
    nights.add(70.0, count=2)
    boots = len(nights.guests.calls)
    measure = nights.guests.measure

    def interrupted(*words: Any) -> Any:
        if len(nights.guests.calls) - boots >= stop_after:
            raise KeyboardInterrupt
        return measure(*words)

    nights.monkeypatch.setattr(runs, "measure", interrupted)
    nights.monkeypatch.setattr(run, "today", lambda: nights.today.isoformat())
    assert main.run(["nightly", "run", "--plan", str(nights.plan)]) in (130, 0)
    nights.monkeypatch.setattr(runs, "measure", measure)
    assert nights.run().outcome == "regression"
    (alarm,) = nights.events()
    assert alarm.culprit is not None and alarm.culprit.commit == culprit
    # Guests of a comparison that were there are not booted again.
    compared = [(nights.commits[0], seed) for seed in range(1, 4)]
    assert all(nights.guests.calls[boots:].count(one) <= 2 for one in compared)


def test_a_failing_fetch_is_said_and_tried_again(nights: Nights) -> None:
    nights.run()
    nights.add(50.0)
    away = nights.top.rename(nights.top.with_name("away"))
    assert nights.run(4).outcome == "not measured"
    assert "cannot fetch main" in nights.said
    away.rename(nights.top)
    assert nights.again().outcome == "regression"
    assert [event.kind for event in nights.events()] == ["regression"]


def test_a_branch_that_was_pushed_anew_is_followed(nights: Nights) -> None:
    nights.add(100.0, count=3)
    nights.run()
    git(nights.top, "reset", "-q", "--hard", nights.commits[1])
    nights.add(100.0)
    culprit = nights.add(60.0)
    done = nights.run()
    assert done.branches[0].forced
    (alarm,) = nights.events()
    assert alarm.culprit is not None and alarm.culprit.commit == culprit


@pytest.mark.parametrize("fate", ["build", "panic"])
def test_a_week_of_broken_tips_is_one_report(nights: Nights, fate: str) -> None:
    nights.run()
    for _ in range(7):
        nights.add(fate)
        assert nights.run(4).outcome == "not measured"
    nights.add(100.0)
    assert nights.run().outcome == "green"
    assert [event.kind for event in nights.events()] == ["broken", "mended"]


@pytest.mark.long
def test_a_regression_behind_a_broken_stretch_is_a_range(nights: Nights) -> None:
    nights.run()
    nights.add("build", count=2)
    nights.run(4)
    nights.add(60.0)
    nights.run()
    alarm = nights.events()[-1]
    assert alarm.kind == "regression" and alarm.culprit is not None
    assert alarm.culprit.outcome == "range" and alarm.culprit.among == 3


def test_this_machines_failures_are_no_ones_fault(nights: Nights) -> None:
    nights.run()
    nights.add("host")
    assert nights.run(4).branches[0].state == "failed"
    assert "QEMU died" in nights.said
    assert nights.events() == []


def test_a_database_that_is_gone_costs_a_note(nights: Nights, tmp_path: Path, lab: Lab) -> None:
    (tmp_path / "file").write_text("")
    nights.monkeypatch.setenv(database.VARIABLE, f"{tmp_path}/file/history.sqlite")
    nights.run()
    nights.add(50.0)
    done = nights.run()
    assert done.outcome == "regression"
    assert any("the history could not be looked at" in note for note in done.branches[0].notes)
    nights.monkeypatch.delenv(database.VARIABLE)
    assert lab("history", "show", "--branch", "main", "--json").document["series"][0]["points"] == 2


def test_the_same_culprit_on_two_branches_is_told_once(nights: Nights) -> None:
    git(nights.top, "branch", "next")
    nights.write(branch='tree = "linux"\nbranch = "main"\n[[branch]]\ntree = "linux"\nbranch = "next"')
    nights.run()
    culprit = nights.add(50.0)
    git(nights.top, "branch", "-f", "next")
    nights.run()
    first, second = nights.events()
    assert (first.kind, second.kind, second.closes) == ("regression", "known", first.id)
    assert first.culprit is not None and first.culprit.commit == culprit


def test_two_culprits_in_one_night_are_two_alarms(nights: Nights) -> None:
    nights.guests.value = lambda value, seed, case: value if case == "large" else 40.0 if value < 65 else 50.0
    nights.run()
    one = nights.add(70.0)
    other = nights.add(60.0)
    nights.run()
    found = {event.culprit.commit: [case.case for case in event.cases] for event in nights.events() if event.culprit}
    assert found == {one: ["large"], other: ["small"]}


def test_an_acknowledged_change_is_the_new_level(nights: Nights, lab: Lab) -> None:
    nights.run()
    nights.add(50.0)
    nights.run()
    (alarm,) = nights.events()
    assert "acknowledged" in lab("history", "ack", alarm.id, "--note", "known").out
    nights.add(50.0)
    assert nights.run().outcome == "green"
    assert "(acknowledged: known)" in lab("nightly", "status").out
    nights.add(100.0)
    nights.run()
    assert [event.kind for event in nights.events()] == ["regression", "fixed"]
    assert "no open change" in lab("history", "ack", alarm.id, status=2).err


def creep(nights: Nights, *levels: float) -> list[Event]:
    """The news of a branch that gets slower night by night."""
    nights.guests.value = lambda value, seed, case: value * (1 + seed % 7 / 100)
    nights.write("creep_days = 6")
    for level in levels:
        nights.add(level)
        nights.run()
    return nights.events()


def test_a_creep_is_bisected_to_the_commits_that_had_most_part_in_it(nights: Nights, lab: Lab) -> None:
    (told,) = creep(nights, 100.0, 100.0, 98.3, 98.3, 98.3, 96.6, 96.6, 96.6, 96.6, 96.6)
    assert told.kind == "creep"
    named = {one.commit: one.ratio for one in told.culprits}
    assert named == {nights.commits[3]: pytest.approx(0.983), nights.commits[6]: pytest.approx(96.6 / 98.3)}
    assert "of -3.4 %, -1.7 % by" in told.text and "below 1 % were not looked for" in told.text
    assert "and 1 more" in lab("nightly", "status").out


@pytest.mark.long
def test_what_was_told_of_is_not_blamed_for_a_creep_again(nights: Nights) -> None:
    alarm, told = creep(nights, 100.0, 100.0, 95.0, *(95.0 * 0.995**number for number in range(1, 6)))
    assert (alarm.kind, told.kind) == ("regression", "creep")
    assert alarm.culprit is not None and alarm.culprit.commit not in {one.commit for one in told.culprits}
    assert f"by {alarm.culprit.commit[:12]}, told of as {alarm.id}" in told.text


def test_status(nights: Nights, lab: Lab) -> None:
    lab("nightly", "status", status=2)
    nights.run()
    nights.add(50.0)
    nights.run()
    found = lab("nightly", "status", "--json").document
    assert found["nights"] == 2 and [one["kind"] for one in found["open"]] == ["regression"]
    assert "open    plan.2.1 regression linux/main" in lab("nightly", "status", "plan").out
    lab("nightly", "status", "other", status=2)


def test_the_metric_of_a_plan_decides_its_comparisons_and_bisections(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step by modelled cycles that the instructions contradict is no event, unless the plan chooses."""
    monkeypatch.setattr(measurement, "load_instrument", lambda machine, model: FakeInstrument())
    nights.guests.counts = lambda fate: 1000.0 if fate == 100.0 else 800.0
    nights.write('model = "tlb"')
    nights.run()
    nights.add(70.0)
    nights.run()
    assert not nights.events()
    nights.write('model = "tlb"\nmetric = "cycles"')
    nights.add(70.0)
    nights.add(100.0)
    nights.run()
    culprit = nights.add(70.0)
    nights.run()
    alarm = nights.events()[-1]
    assert alarm.kind == "regression" and alarm.culprit is not None and alarm.culprit.commit == culprit
    assert alarm.cases[0].metric == "cycles_per_op"
    bisection = session.find("latest")
    assert bisection.plan.metric == "cycles" and bisection.plan.command[-2:] == ["--metric", "cycles"]


# ---- packages: what is new in the archive is measured the night it comes


class Archive:
    """A suite whose packages a test adds, and how fast each is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fates: dict[str, float] = {}
        self.refreshed = 0
        monkeypatch.setattr(debs, "refresh", self._refresh)
        self.guests = "x86_64"
        monkeypatch.setattr(debs, "offered", lambda pattern, progress, *, guests: self._offers(pattern, guests))

    def _refresh(self, _: object) -> None:
        self.refreshed += 1

    def _offers(self, pattern: str, guests: str) -> list[Package]:
        assert (pattern, guests) == ("trixie-backports/*", self.guests)
        return [Package(f"linux-binary-{one}", one, f"deb:trixie-backports/{one}") for one in debs.in_order(self.fates)]


@pytest.fixture
def archive(nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """A plan of packages, with kernels that are as fast as the test says."""
    made = Archive(monkeypatch)

    def obtain(spec: KernelSpec, *_: object, **__: object) -> Kernel:
        assert isinstance(spec.source, DebSource)
        path = tmp_path / spec.source.version
        path.write_text(f"{made.fates[spec.source.version]}\n")
        return Kernel(
            spec=spec, key=spec.source.label, release="6.99", commit=None, bzimage=path, vmlinux=None, symbols=None
        )

    monkeypatch.setattr(KernelSpec, "obtain", obtain)
    nights.write(branch='packages = "deb:trixie-backports/*"')
    return made


def test_a_new_package_is_measured_the_night_it_comes_and_its_loss_is_news_once(
    nights: Nights, archive: Archive
) -> None:
    archive.fates["7.1.8-1"] = 100.0
    assert nights.run().outcome == "green"
    assert nights.run().outcome == "nothing new"
    archive.fates["7.2.6-1"] = 80.0
    night = nights.run()
    assert night.outcome == "regression" and archive.refreshed == 3
    (branch,) = night.branches
    assert (branch.tree, branch.branch) == ("packages", "deb:trixie-backports/*")
    assert branch.tip == "linux-binary-7.2.6-1=7.2.6-1"
    (comparison,) = branch.measured
    assert comparison.baselines == ("yesterday", "last-good", "release")
    (event,) = nights.events()
    assert (event.kind, record.short(event.base), record.short(event.test)) == ("regression", "7.1.8-1", "7.2.6-1")
    assert event.culprit is None
    archive.fates["7.2.9-1"] = 80.0
    assert nights.run().outcome == "no news"
    archive.fates["7.2.12-1"] = 100.0
    assert nights.run().outcome == "green"
    assert [one.kind for one in nights.events()] == ["regression", "fixed"]


# ---- guests of another architecture


def specs(result: str) -> list[str]:
    plan = result_folders.load_plan(result_folders.open_folder(result))
    arms = [plan.base.spec, plan.test.spec]
    assert [spec.architecture for spec in arms] == ["arm64"] * 2
    return [spec.text for spec in arms]


def test_a_branch_is_measured_and_bisected_in_guests_of_its_architecture(nights: Nights) -> None:
    nights.guests.counts = lambda fate: 1e5 / fate
    nights.write(branch='tree = "linux"\nbranch = "main"\narch = "arm64"\n[[branch]]\ntree = "linux"\nbranch = "main"')
    nights.run()
    base = nights.commits[-1]
    culprit = nights.add(80.0)
    nights.add(80.0)
    night = nights.run()
    branch, here = night.branches
    assert (branch.branch, here.branch) == ("main%arch=arm64", "main")
    (comparison,) = branch.measured
    assert specs(comparison.result) == [f"{base}%arch=arm64", f"{nights.commits[-1]}%arch=arm64"]
    (alarm,) = branch.events
    assert alarm.culprit is not None and alarm.culprit.commit == culprit and alarm.culprit.proof
    assert specs(alarm.culprit.proof) == [f"{culprit}^%arch=arm64", f"{culprit}%arch=arm64"]
    assert [event.kind for event in here.events] == ["known"]


def test_packages_are_those_of_their_guests(nights: Nights, archive: Archive) -> None:
    nights.write(branch='packages = "deb:trixie-backports/*"\narch = "arm64"')
    archive.guests = "arm64"
    archive.fates["7.1.8-1"] = 100.0
    (branch,) = nights.run().branches
    assert branch.branch == "deb:trixie-backports/*:arm64"
    assert specs(branch.measured[0].result) == ["deb:linux-binary-7.1.8-1:arm64"] * 2


# ---- plans with errors


LIVE = 'schema = 1\nmodes = ["exact", "live"]\n'


@pytest.mark.parametrize(("text", "said"), [
    ("", "needs at least one [[branch]]"),
    ("schema = 1\nbranch = 3\n", ":2: a plan needs"),
    ('schema = 1\nworkload = ["x"]\n[[branch]]\n', ":2: unknown key 'workload'; did you mean workloads?"),
    ('schema = 1\n[[branch]]\ntree = "a"\n[[branch]]\nbrnch = "a"\n', ":5: unknown key 'brnch'"),
    ("schema = 2\n[[branch]]\n", ":1: schema 2 is not known"),
    ('schema = 1\nbudget = "soon"\n[[branch]]\n', ":2: budget: 'soon' is not a time span"),
    ('schema = 1\nbudget = "0h"\n[[branch]]\n', ":2: budget: '0h' is not a time span"),
    ('schema = 1\nthreshold = "2%"\n[[branch]]\n', ":2: threshold:"),
    ("schema = 1\nthreshold = 2\n[[branch]]\n", ":2: threshold:"),
    ('schema = 1\nworkloads = ["aloc-burst"]\n[[branch]]\n', ":2: workloads: "),
    ('schema = 1\n[[branch]]\nworkloads = ["alloc-burst:nothing"]\n', ":3: workloads: "),
    ('schema = 1\nsuite = "quik"\n[[branch]]\n', ":2: suite: no suite is called 'quik'"),
    ('schema = 1\n[[branch]]\nsuite = "mn"\n', ":3: suite: no suite is called 'mn'"),
    ('schema = 1\nworkloads = ["boot"]\nsuite = "mm"\n[[branch]]\n', ":3: suite: it is given instead of"),
    ('schema = 1\n[[branch]]\nworkloads = ["boot"]\nsuite = "mm"\n', ":4: suite: it is given instead of"),
    ('schema = 1\n[[branch]]\nbaselines = ["today"]\n', ":3: branch[0].baselines[0]:"),
    ('schema = 1\nmachine = "abacus"\n[[branch]]\n', ":2: machine: "),
    ("schema = 1\n[[branch]]\n[[branch]]\n", "default/HEAD is named twice"),
    ("schema = 1\nseeds = 8\nmax_seeds = 6\n[[branch]]\n", ":3: max_seeds: 6 is less than seeds, 8"),
    ('schema = 1\ncluster = "tcp://a:1"\n[[branch]]\n', ":2: cluster: it requires a share"),
    ('schema = 1\nmetric = "seconds"\n[[branch]]\n', ":2: metric: "),
    ('schema = 1\nmetric = "cycles"\nmodel = "none"\n[[branch]]\n', ":2: metric: nothing counts cycles"),
    ("schema = [\n", ":1: not valid TOML"),
    ('schema = 1\nmodes = ["live"]\n[[branch]]\n', ":2: modes: exact is always measured"),
    ('schema = 1\nmodes = ["fast"]\n[[branch]]\n', ":2: modes[0]:"),
    ("schema = 1\n[live]\nrounds = 8\n[[branch]]\n", ":2: [live] requires live among the modes"),
    (f"{LIVE}[live]\nround = 8\n[[branch]]\n", ":4: unknown key 'round'; did you mean rounds?"),
    (f"{LIVE}[live]\nrounds = 5\n[[branch]]\n", ":4: live.rounds:"),
    (f'{LIVE}[live]\nbudget = "soon"\n[[branch]]\n', ":4: budget: 'soon' is not a time span"),
    ('schema = 1\n[[branch]]\narch = "vax"\n', ":3: arch: no architecture called 'vax'"),
    (f'{LIVE}[[branch]]\narch = "arm64"\n', ":4: arch: live mode has no guests of arm64"),
])  # fmt: skip
def test_plans_with_errors(text: str, said: str, tmp_path: Path, lab: Lab) -> None:
    path = tmp_path / "nightly.toml"
    path.write_text(text)
    (line,) = lab("nightly", "run", "--plan", str(path), status=2).err.splitlines()
    assert said in line and "nightly.toml" in line


def test_a_suite_stands_for_its_cases(tmp_path: Path) -> None:
    path = tmp_path / "nightly.toml"
    path.write_text(
        'schema = 1\nsuite = "net"\n[[branch]]\n[[branch]]\nbranch = "a"\nsuite = "fs"\n'
        '[[branch]]\nbranch = "b"\nworkloads = ["boot"]\n'
    )
    plan = nightly_plan.load(path)
    net, fs, boot = (plan.workloads_of(branch) for branch in plan.branch)
    assert net == selection.suite("net").selections and fs == selection.suite("fs").selections
    assert boot == ("boot",) and [plan.suite_of(branch) for branch in plan.branch] == ["net", "fs", None]
    arm = ArmPlan(spec=KernelSpec(text="deb:x", source=DebSource(package="x", version="1")), cc="gcc")
    made = tips.comparison_plan(plan, plan.branch[1], arm, arm, None)
    assert made.suite == "fs" and set(made.groups) == set(selection.suite("fs").groups)
