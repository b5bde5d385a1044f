"""Building ahead: it begins while guests run, its wrong guesses are stopped, and the answer is the same without it."""

import os
import threading
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from lab.bisection.answer import Answer
from lab.bisection.exact_runner import Speculation
from lab.compare import runs
from lab.compare.runs import GuestRun, Run
from lab.core.errors import BuildFailed
from lab.guests.run import RunningGuests
from lab.kernels.build import TreeSource
from lab.kernels.kernel import Kernel, KernelSpec

from ..fakes import bisection as fakebisect
from ..fakes.bisection import line
from ..fakes.bisector import Bisector, culprits
from ..fakes.kernel import git
from ..fakes.processes import until

# ---- the builder by itself


@dataclass
class Shop:
    """Builds that take until they are let go, or are interrupted."""

    begun: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    broken_off: list[int] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    hurried: threading.Event = field(default_factory=threading.Event)

    def obtain(self, number: int) -> None:
        self.begun.append(number)
        self.priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        while not self.done.wait(0.005):
            if self.stop.is_set():
                self.stop.clear()
                self.broken_off.append(number)
                raise BuildFailed("make was interrupted")
        self.ended.append(number)


def test_a_wrong_guess_is_stopped_and_nothing_after_it_begun() -> None:
    shop, own_priority = Shop(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    ahead = Speculation(shop.obtain, shop.stop.set, shop.hurried.set)
    ahead.build([7, 8])
    until(lambda: bool(shop.begun))
    ahead.settle(9)
    assert shop.begun == [7] and shop.broken_off == [7] and not shop.ended
    assert not shop.hurried.is_set()
    assert shop.priorities == [19]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own_priority


def test_a_right_guess_is_hurried_and_finished_and_the_other_not_begun() -> None:
    shop = Shop()
    ahead = Speculation(shop.obtain, shop.stop.set, shop.hurried.set)
    ahead.build([7, 8])
    until(lambda: bool(shop.begun))
    threading.Timer(0.3, shop.done.set).start()
    ahead.settle(7)
    assert shop.begun == [7] and shop.ended == [7] and not shop.broken_off
    assert shop.hurried.is_set()


# ---- in a search


@dataclass
class Watch:
    """What was begun and ended, in its order. following: for a commit, the one whose build its guests wait for."""

    following: dict[str, str] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)

    def install(self, bisector: Bisector, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(KernelSpec, "obtain", lambda spec, *_, **__: self.obtain(spec))
        plain = bisector.guests.measure

        def measure(guest: GuestRun, running: RunningGuests) -> Run:
            commit = guest.arm.kernel.commit or ""
            if guest.arm.name == "commit" and commit in self.following:
                # A build ahead that does not begin by then fails the test.
                until(lambda: ("ahead", self.following[commit]) in self.events)
            run = plain(guest, running)
            self.events.append(("guest", commit))
            return run

        monkeypatch.setattr(runs, "measure", measure)

    def obtain(self, spec: KernelSpec) -> Kernel:
        assert isinstance(spec.source, TreeSource)
        background = threading.current_thread() is not threading.main_thread()
        self.events.append(("ahead" if background else "build", spec.source.commit))
        return fakebisect.obtain(spec)


def watched(bisector: Bisector, monkeypatch: pytest.MonkeyPatch, watch: Watch, *words: str) -> Answer:
    old, *_, new = git(bisector.tree, "log", "--reverse", "--format=%H").split()
    with monkeypatch.context() as patch:
        watch.install(bisector, patch)
        return bisector.search(old, new, *words)


def test_the_next_is_built_while_guests_of_this_one_run(bisector: Bisector, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = line(bisector.tree, [100.0] * 10 + [60.0] * 6)
    path = [step.commit for step in watched(bisector, monkeypatch, Watch(), "--no-speculate").path]
    watch = Watch(following=dict(pairwise(path)))
    answer = watched(bisector, monkeypatch, watch, "--jobs", "2")
    assert culprits(answer) == [commits[10]] and [step.commit for step in answer.path] == path
    for one, following in pairwise(path):
        begun = watch.events.index(("ahead", following))
        guests = [i for i, event in enumerate(watch.events) if event == ("guest", one)]
        assert watch.events.index(("build", one)) < begun < min(guests)


def test_without_it_the_answer_is_the_same(bisector: Bisector, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = line(bisector.tree, [100.0] * 7 + ["build"] * 2 + [100.0] * 3 + [60.0] * 6 + [66.0] * 6)
    found = []
    for word in ("--speculate", "--no-speculate"):
        watch = Watch()
        found.append(watched(bisector, monkeypatch, watch, word))
        assert any(what == "ahead" for what, _ in watch.events) == (word == "--speculate")
    first, second = found
    assert culprits(first) == culprits(second) == [commits[12], commits[18]]
    assert [(step.commit, step.values) for step in first.path] == [(s.commit, s.values) for s in second.path]
