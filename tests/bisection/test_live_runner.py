"""Live mode's bisection on hosts that never were: order, failures, kills, and what is said of them."""

import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.bisection import acquisition, live_runner, session
from lab.bisection.acquisition import Costs
from lab.bisection.answer import Answer
from lab.bisection.commit_range import Candidate, History
from lab.bisection.journal import Boot, BuiltKernel
from lab.bisection.live_runner import BootResult
from lab.bisection.live_state import LiveState
from lab.bisection.plan import BisectPlan
from lab.bisection.proof import Prover
from lab.bisection.search import conclude
from lab.bisection.session import Session
from lab.compare import live
from lab.compare.plan import ArmPlan
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, GuestFailure, HostFailed, UserError
from lab.core.executor import Work
from lab.kernels.debs import DebSource
from lab.kernels.kernel import KernelSpec
from lab.report import bisection_text
from lab.stats.verdict import Metric

from ..fakes.bisection import commit, line
from ..fakes.bisector import Bisector
from ..fakes.kernel import git
from ..fakes.work import quiet


class Killed(BaseException):
    """What `kill -9` is to a test."""


class Host:
    """Boots candidates `c1` ... whose throughput halves from the culprit on; notes what it was asked for.

    bad: names of other candidates, in place of a culprit. fates: what is wrong with a commit. kill_after: so many
    boots, counted over the life of the host.
    """

    metric = Metric(name="throughput", unit="op/s", better="higher", primary=True)
    environment = None

    def __init__(
        self, culprit: int = 0, *, bad: Collection[str] = (), gain: float = 0.5, noise: float = 0.1, seed: int = 1
    ) -> None:
        self.bad, self.gain, self.noise = bad or [f"c{i}" for i in range(culprit, 65)], gain, noise
        self.fates: dict[str, Callable[[], Exception | None]] = {}
        self.built: list[str] = []
        self.booted: list[str] = []
        self.kill_after: int | None = None
        self.one_layout = False
        self.slow_images: set[str] = set()
        self._chance = random.Random(seed)  # noqa: S311

    def build(self, one: Candidate, layout: int) -> BuiltKernel:
        name = kernel_name(one, layout)
        self.built.append(name)
        if layout and self.one_layout:
            raise UserError("cannot be laid out anew")
        if (error := self._error(one, BuildFailed)) is not None:
            raise error
        return BuiltKernel(
            commit=one.id, layout=layout, kernel=name, image=f"image of {name}", release="6.99", build_s=30.0
        )

    def boot(self, one: Candidate, layout: int) -> BootResult:
        if self.kill_after is not None and len(self.booted) >= self.kill_after:
            raise Killed
        if (error := self._error(one, GuestFailed, HostFailed)) is not None:
            raise error
        self.booted.append(kernel_name(one, layout))
        bad = one.id in self.bad or self.booted[-1] in self.slow_images
        value = 100.0 * (self.gain if bad else 1.0) * (1 + self._chance.gauss(0, self.noise))
        return BootResult(value, [value])

    def _error(self, one: Candidate, *kinds: type[Exception]) -> Exception | None:
        fate = self.fates.get(one.id)
        error = fate() if fate else None
        return error if isinstance(error, kinds) else None


def kernel_name(one: Candidate, layout: int) -> str:
    return one.id + "'" * layout


def fails(*errors: Exception | None) -> Callable[[], Exception | None]:
    """What to raise each time; the last for ever."""
    left = list(errors)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def history(commits: int) -> History:
    def one(i: int, parents: tuple[str, ...]) -> Candidate:
        return Candidate(id=f"c{i}", title=f"change {i}", spec=f"c{i}", parents=parents, author="A <a@b>", date="then")

    return History(
        kind="patches", old=one(0, ()), candidates=[one(i, (f"c{i - 1}",)) for i in range(1, commits + 1)], tree=None
    )


def begin(folder: Path, commits: int = 16, **more: Any) -> Session:
    arm = ArmPlan(spec=KernelSpec(text="deb:x", source=DebSource(package="x", version="1")), cc="gcc")
    folder.mkdir(parents=True)
    plan = BisectPlan(**{  # type: ignore[arg-type]
        "mode": "live", "terms": ("good", "bad"), "old": arm, "new": arm, "workload": "mine", "case": "large",
        "selection": "mine:large", "files": {}, "metric": None, "threshold": 0.02, "confidence": 0.95, "seeds": None,
        "max_seeds": 24, "probes": 3, "panics": "untestable", "speculate": False, "qemu": "qemu",
        "guest_timeout_s": 300.0, "model": "none", "machine": None, "command": ["lab", "bisect"], **more,
    })  # fmt: skip
    return session.create(folder, plan, history(commits))


def search(at: Session, host: Host, deadline: float | None = None) -> Answer:
    """The answer by this host's boots, with no proof but the fresh ones among them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_runner, "GuestBooter", lambda *_: host)
        patch.setattr(Prover, "prove", lambda _, answer: answer)
        return conclude(at, quiet(deadline=deadline))


def live_state(at: Session) -> LiveState:
    state = at.state
    assert isinstance(state, LiveState)
    return state


def culprits(answer: Answer) -> list[str]:
    return [one.commit for one in answer.changes if one.is_single]


def test_the_culprit_is_found_and_confirmed_by_fresh_boots_with_another_layout(tmp_path: Path) -> None:
    host, at = Host(culprit=11), begin(tmp_path / "r")
    answer = search(at, host)
    assert answer.outcome == "found" and culprits(answer) == ["c11"], answer
    (found,) = answer.changes
    assert found.direction == "regression" and found.confidence >= 0.95 and found.before == "c10"
    proof, live_ = found.proof, answer.live
    assert proof is not None and proof.confirmed and not proof.same_image
    assert proof.fresh is not None and proof.fresh.ratio == pytest.approx(0.5, rel=0.2)
    assert proof.layout == 1 and proof.fresh_runs == "fresh boots with another layout"
    assert live_ is not None and live_.outcome == "confirmed" and live_.boots == len(host.booted)
    assert live_.kernels == len({*host.booted}) <= 8
    assert answer.ends is not None and len(answer.ends.base) == len(answer.ends.test) >= 4
    assert host.built == list(dict.fromkeys(host.built)) and {"c10'", "c11'"} <= {*host.built}
    gate = host.booted[:8]
    assert all({*pair} == {"c0", "c16"} for pair in zip(gate[::2], gate[1::2], strict=True)), "the ends first"
    confirming = {(b.commit, b.layout) for b in at.journal.events if isinstance(b, Boot) and b.phase == "confirm"}
    assert confirming == {("c10", 1), ("c11", 1)}
    assert msgspec.json.decode(records.encode(answer), type=Answer) == answer


def test_an_image_that_is_slow_by_its_layout_is_not_convicted(tmp_path: Path) -> None:
    """All boots of c10 are as slow as the culprit's: those of the same image would confirm it."""
    host = Host(culprit=11)
    host.slow_images = {"c10"}
    answer = search(begin(tmp_path / "r"), host)
    assert answer.outcome == "found" and culprits(answer) == ["c11"]
    assert answer.live is not None and answer.live.layouts is not None and answer.live.layouts > 0.05


@pytest.mark.parametrize("kind", ["no layouts", "packages"])
def test_without_other_layouts_the_same_images_are_compared_and_that_is_said(tmp_path: Path, kind: str) -> None:
    at, host = begin(tmp_path / "r"), Host(culprit=11)
    host.one_layout = True
    if kind == "packages":
        at.history = msgspec.structs.replace(at.history, kind="packages")
        records.save(at.folder / session.HISTORY, at.history)
    answer = search(session.load(at.folder), host)
    assert answer.outcome == "found" and culprits(answer) == ["c11"] and not answer.skipped
    proof = answer.changes[0].proof
    assert proof is not None and proof.confirmed and proof.layout == 0
    assert proof.fresh_runs == "fresh boots of the same images"
    tried = [name for name in host.built if "'" in name]
    assert len(tried) == (0 if kind == "packages" else 1)


def test_an_improvement_is_nobodys_fault_unless_asked_for(tmp_path: Path) -> None:
    host = Host(culprit=7, gain=2.0)
    answer = search(begin(tmp_path / "good"), host)
    assert answer.outcome == "no culprit" and "--old and --new" in answer.reason
    assert {*host.booted} == {"c0", "c16"}
    answer = search(begin(tmp_path / "old", terms=("old", "new")), Host(culprit=7, gain=2.0))
    assert culprits(answer) == ["c7"] and answer.changes[0].direction == "improvement"


@pytest.mark.parametrize(
    "error", [BuildFailed("does not build"), GuestFailed(GuestFailure.PANIC, "the guest's kernel panicked"), None]
)
def test_what_cannot_be_tested_is_left_out_and_named(tmp_path: Path, error: Exception | None) -> None:
    host = Host(culprit=9)
    for i in (7, 8, 9):
        host.fates[f"c{i}"] = fails(error or GuestFailed(GuestFailure.HANG, "no end"))
    answer = search(begin(tmp_path / "r"), host)
    assert answer.outcome == "range" and answer.changes[0].suspects == ["c7", "c8", "c9", "c10"]
    assert {*answer.changes[0].untested} <= {"c7", "c8", "c9"} and answer.skipped
    assert "could not be tested" in bisection_text.render(answer)


def test_a_guest_that_dies_is_booted_again(tmp_path: Path) -> None:
    host, panic = Host(culprit=9), GuestFailed(GuestFailure.PANIC, "IO-APIC + timer doesn't work!")
    for i in (0, 8, 16):
        host.fates[f"c{i}"] = fails(None, panic, panic, None)
    answer = search(begin(tmp_path / "r"), host)
    assert answer.outcome == "found" and culprits(answer) == ["c9"] and not answer.skipped


def test_an_end_that_cannot_be_measured_ends_it(tmp_path: Path) -> None:
    host = Host(culprit=9)
    host.fates["c16"] = fails(GuestFailed(GuestFailure.PANIC, "the guest's kernel panicked: oh"))
    with pytest.raises(GuestFailed, match=r"the bad end cannot be measured.*oh"):
        search(begin(tmp_path / "r"), host)


def killed(at: Path, host: Host, after: int) -> None:
    host.kill_after = len(host.booted) + after
    with pytest.raises(Killed):
        search(session.load(at), host)
    host.kill_after = None


@pytest.mark.parametrize("seed", range(5))
def test_kills_anywhere_change_nothing_and_nothing_is_booted_twice(tmp_path: Path, seed: int) -> None:
    whole, host = search(begin(tmp_path / "whole"), Host(culprit=6, seed=seed)), Host(culprit=6, seed=seed)
    at = tmp_path / "killed"
    begin(at)
    chance = random.Random(seed)  # noqa: S311
    assert whole.live is not None
    while len(host.booted) < whole.live.boots - 6:
        killed(at, host, chance.randint(0, 5))
    answer = search(session.load(at), host)
    assert answer.changes[0].commit == whole.changes[0].commit == "c6"
    assert answer.live is not None and len(host.booted) == answer.live.boots


def test_a_journal_is_followed_where_the_search_now_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another version of a library rounds the last digit otherwise."""
    at, host = tmp_path / "r", Host(culprit=6, noise=0.3)
    begin(at)
    killed(at, host, 40)
    choose = acquisition.choose

    def without_builds(belief: Any, costs: Costs, *more: Any, **options: Any) -> Any:
        return choose(belief, costs._replace(build_s=1e6), *more, **options)

    monkeypatch.setattr(acquisition, "choose", without_builds)
    events = session.load(at).journal.events
    assert [boot.commit for boot in live_state(session.load(at)).boots] == host.booted
    assert list(session.text(session.load(at)))
    assert culprits(search(session.load(at), host)) == ["c6"]
    assert session.load(at).journal.events[: len(events)] == events


def test_status_shows_the_posterior_what_it_cost_and_what_is_left(tmp_path: Path) -> None:
    at, host = tmp_path / "r", Host(culprit=6, noise=0.3)
    assert session.status(begin(at)).boots == 0
    assert list(session.text(session.load(at)))
    killed(at, host, 12)
    search_on = session.load(at)
    while not live_state(search_on).search.differ():
        killed(at, host, 2)
        search_on = session.load(at)
    killed(at, host, 3)
    now = session.status(session.load(at))
    assert now.boots == len(host.booted) and not now.finished and now.next
    assert sum(place.probability for place in now.posterior) == pytest.approx(1, abs=1e-4)
    assert now.build_s >= 60 and now.left_s is not None and now.bits_left and now.bits_left <= 4
    lines = "\n".join(session.text(session.load(at)))
    for words in ("bits missing", "% ", "so far: building", "lab bisect resume"):
        assert words in lines
    search(session.load(at), host)
    assert "finished" in "\n".join(session.text(session.load(at)))


def test_the_last_boot_can_be_taken_back(tmp_path: Path) -> None:
    at, host = tmp_path / "r", Host(culprit=6)
    begin(at)
    with pytest.raises(UserError, match="no boot"):
        session.undo(session.load(at))
    killed(at, host, 9)
    before = live_state(session.load(at))
    one = session.undo(session.load(at))
    after = live_state(session.load(at))
    assert one.id == host.booted[-1]
    assert len(after.boots) == len(before.boots) - 1
    assert culprits(search(session.load(at), host)) == ["c6"]


def test_a_budget_gives_the_range_so_far_and_can_be_gone_on_from(tmp_path: Path) -> None:
    at, host = tmp_path / "r", Host(culprit=6, noise=0.3)
    begin(at)
    answer = search(session.load(at), host, deadline=0.0)
    assert answer.outcome == "undecided" and not host.booted
    killed(at, host, 30)
    answer = search(session.load(at), host, deadline=0.0)
    assert answer.outcome == "undecided" and "budget" in answer.reason
    (change,) = answer.changes
    assert "c6" in change.suspects and 1 < len(change.suspects) < 16 and change.confidence >= 0.95
    assert not (at / "result.json").exists()
    assert culprits(search(session.load(at), host)) == ["c6"]


def test_neighbours_with_one_image_are_never_culprit_and_parent(tmp_path: Path) -> None:
    class Twins(Host):
        def build(self, one: Candidate, layout: int) -> BuiltKernel:
            built = super().build(one, layout)
            return msgspec.structs.replace(built, image="the same" if one.id in ("c5", "c6") else built.image)

    answer = search(begin(tmp_path / "r"), Twins(culprit=6))
    assert answer.outcome == "undecided" and "same" in answer.reason


def test_log_tells_git_what_is_certain(tmp_path: Path) -> None:
    at = begin(tmp_path / "r")
    at.history = msgspec.structs.replace(at.history, kind="commits")
    records.save(at.folder / session.HISTORY, at.history)
    host = Host(culprit=6)
    host.fates["c8"] = fails(BuildFailed("no"))
    search(session.load(at.folder), host)
    lines = list(session.log(session.load(at.folder)))
    assert "git bisect bad c6" in lines and "git bisect good c5" in lines
    assert "git bisect skip c8" in lines or "c8" not in host.built


# ---- from the command line, on real git histories


def searched(bisector: Bisector, ends: tuple[str, str], host: Host) -> Answer:
    """The answer of `lab bisect --mode live` by this host's boots, if no other guest can be booted."""

    def no_guests(*_: Any, **__: Any) -> Any:
        raise GuestFailed(GuestFailure.HANG, "no guests here")

    def booter(session: Session, work: Work) -> Host:
        assert session.plan.live is not None and session.plan.live.accelerator == "tcg"
        return host

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_runner, "GuestBooter", booter)
        patch.setattr(Prover, "explain", lambda *_: [])
        patch.setattr(live.LiveComparison, "around", no_guests)
        return bisector.search(*ends, "--mode", "live", "--accel", "tcg")


def test_its_proof_says_why_there_is_no_revert(bisector: Bisector) -> None:
    commits = line(bisector.tree, [100.0] * 5 + [60.0] * 4)
    answer = searched(bisector, (commits[0], commits[-1]), Host(bad=commits[5:]))
    assert culprits(answer) == [commits[5]]
    proof = answer.changes[0].proof
    assert proof is not None and proof.confirmed and "does not apply" in (proof.not_reverted or "")
    printed = bisector.report()
    assert "live mode" in printed or "boots of" in printed
    assert commits[5] in printed and "fresh boots with another layout against" in printed


def test_of_merges_the_first_parents_are_followed(bisector: Bisector) -> None:
    commits = line(bisector.tree, [100.0] * 4)
    git(bisector.tree, "checkout", "-q", "-b", "side", commits[1])
    commit(bisector.tree, "aside", 60.0, "mm/aside.c")
    git(bisector.tree, "checkout", "-q", "main")
    git(bisector.tree, "merge", "-q", "--no-ff", "-X", "theirs", "-m", "bring it in", "side")
    merge = git(bisector.tree, "rev-parse", "HEAD").strip()
    last = commit(bisector.tree, "after", 60.0, "mm/after.c")
    host = Host(bad=[merge, last])
    answer = searched(bisector, (commits[0], last), host)
    assert culprits(answer) == [merge] and answer.first_parent and answer.changes[0].merge
    assert {name.rstrip("'") for name in host.booted} <= {*commits, merge, last}
