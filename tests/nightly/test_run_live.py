"""Live mode at night: beside exact mode, apart from it, and one piece of news where both tell the same."""

from pathlib import Path

import pytest

from lab.core.errors import GuestFailed, GuestFailure
from lab.guests import kvm
from lab.nightly import record
from lab.nightly.context import LiveBudget
from lab.nightly.record import Night

from ..fakes import live as fakelive
from ..fakes.command import Lab
from ..fakes.live import LiveHost
from ..fakes.nights import Nights

MODES = 'modes = ["exact", "live"]'


@pytest.fixture
def nights(nights: Nights) -> Nights:
    write(nights)
    return nights


@pytest.fixture
def host(nights: Nights, tmp_path: Path) -> LiveHost:
    return fakelive.pretend(nights.monkeypatch, tmp_path)


def write(nights: Nights, more: str = "", live: str = "rounds = 20") -> None:
    nights.write(f"{MODES}\n{more}\n[live]\n{live}")


def measured(one: Night) -> list[tuple[str, tuple[str, ...]]]:
    return [(found.mode, found.baselines) for found in one.branches[0].measured]


def blind(nights: Nights) -> None:
    """Exact mode sees nothing of what commits do."""
    nights.guests.value = lambda value, seed, case: 100.0 + seed


def test_a_quiet_night_is_measured_in_both_modes(nights: Nights, host: LiveHost) -> None:
    first = nights.run()
    assert measured(first) == [("exact", ("itself",)), ("live", ("itself",))]
    nights.add(100.0)
    second = nights.run()
    assert measured(second) == [("exact", ("yesterday", "last-good")), ("live", ("yesterday", "last-good"))]
    assert second.outcome == "green" and not nights.events()
    assert "against yesterday, last-good in live mode" in nights.said
    assert {*host.booted} == {nights.commits[0], nights.commits[1]}


def test_one_story_told_by_both_modes_is_one_piece_of_news_and_one_fix(nights: Nights, host: LiveHost) -> None:
    nights.run()
    culprit = nights.add(60.0)
    nights.add(60.0, count=2)
    nights.run()
    (alarm,) = nights.events()
    assert [case.shown for case in alarm.cases] == ["mine:large", "mine:large (live)"]
    assert alarm.culprit is not None and alarm.culprit.commit == culprit
    assert [case.ratio for case in alarm.cases] == pytest.approx([0.6, 0.6], rel=0.02)
    nights.add(100.0)
    nights.run()
    assert [event.kind for event in nights.events()] == ["regression", "fixed"]


def test_what_only_live_mode_sees_is_bisected_by_its_search(nights: Nights, host: LiveHost) -> None:
    blind(nights)
    nights.run()
    nights.add(100.0, count=3)
    culprit = nights.add(60.0)
    nights.add(60.0, count=3)
    done = nights.run()
    (alarm,) = nights.events()
    assert done.outcome == "regression" and alarm.modes == ("live",)
    assert alarm.culprit is not None and alarm.culprit.commit == culprit
    nights.add(60.0)
    assert nights.run().outcome == "no news", "exact mode's last good tip goes on, and nobody is told twice"
    nights.add(100.0)
    assert nights.run().outcome == "green"
    assert [event.kind for event in nights.events()] == ["regression", "fixed"]


def test_without_time_for_a_bisection_it_is_news_without_a_culprit(nights: Nights, host: LiveHost) -> None:
    blind(nights)
    nights.run()
    nights.add(60.0)
    before = len(host.booted)
    used_up = property(lambda self: len(host.booted) > before + 2)
    nights.monkeypatch.setattr(LiveBudget, "out_of_time", used_up)
    nights.run()
    (alarm,) = nights.events()
    assert alarm.kind == "regression" and alarm.culprit is None
    assert alarm.text == "not bisected: live mode's budget is used up"


def test_a_host_without_live_mode_says_so_once_and_judges_by_exact_mode(nights: Nights, host: LiveHost) -> None:
    def refuse(qemu: str, **how: object) -> None:
        raise kvm.Refusal("there is no /dev/kvm")

    nights.monkeypatch.setattr(kvm, "require", refuse)
    nights.run()
    nights.add(100.0)
    done = nights.run()
    assert done.outcome == "green" and measured(done) == [("exact", ("yesterday", "last-good"))]
    assert done.notes == ["live mode is not measured on this host: there is no /dev/kvm"]
    assert not done.branches[0].notes and not host.booted


def test_a_guest_that_dies_in_live_mode_is_said_and_breaks_nothing(nights: Nights, host: LiveHost) -> None:
    nights.run()
    nights.add(60.0)
    host.failure = GuestFailed(GuestFailure.PANIC, "the guest's kernel panicked: timer")
    done = nights.run()
    assert done.outcome == "regression" and done.finished
    assert "timer" in done.branches[0].missed["live"]
    nights.add(60.0)
    assert nights.run(4).outcome == "partly measured"
    assert "in live mode (" in nights.said
    host.failure = None
    nights.add(60.0)
    assert nights.run().outcome == "no news"


def test_cases_that_live_mode_cannot_tell_are_undecided_and_hold_back_its_own_last_good_only(
    nights: Nights, host: LiveHost
) -> None:
    nights.run()
    host.noise = 0.5
    nights.add(100.0)
    assert nights.run().outcome == "undecided"
    host.noise = 0.002
    nights.add(100.0)
    done = nights.run()
    assert done.outcome == "green"
    assert measured(done) == [("exact", ("yesterday", "last-good")), ("live", ("yesterday",)), ("live", ("last-good",))]


@pytest.mark.long
def test_a_step_that_its_commits_do_not_show_side_by_side_is_the_hosts_own(nights: Nights, host: LiveHost) -> None:
    for number in range(12):
        # A host that is slower from one night on: both arms of each comparison alike.
        host.value = lambda fate, case, slow=number >= 6: fate * (0.95 if slow and case == "large" else 1.0)  # type: ignore[misc]
        nights.add(100.0)
        nights.run()
    (told,) = nights.events()
    assert told.kind == "unfounded" and told.modes == ("live",)
    assert "side by side its two commits are alike" in told.text
    assert not {one.outcome for one in record.load_all("plan")} & {"regression", "no news"}


def test_trends_site_and_numbers_name_the_mode(nights: Nights, host: LiveHost, tmp_path: Path, lab: Lab) -> None:
    nights.run()
    nights.add(60.0)
    nights.run()
    trend, output = ("history", "trend", "-w", "mine:large", "--branch", "main"), tmp_path / "site"
    assert "--mode" in lab(*trend, status=2).err
    assert "live mode" in lab(*trend, "--mode", "live").out
    lab("nightly", "site", "--output", str(output))
    assert len(list(output.glob("trends/*large*.html"))) == 2
    assert "(live mode)" in (output / "index.html").read_text()
    assert "mine:large (live)" in (output / "changes" / "plan.2.1.html").read_text()
    numbers = (output / "metrics.txt").read_text()
    assert 'mode="live"' in numbers and 'mode="exact"' in numbers
    assert "mine:large (live) -" in lab("nightly", "status").out
