"""The decisions of a night by tables: the baselines of a tip, and its events."""

from __future__ import annotations

from dataclasses import replace as replace_step

import pytest
from msgspec.structs import replace

from lab.nightly import events
from lab.nightly.events import EventSource, PlanState, SeriesStep, Tip
from lab.nightly.plan import BranchPlan
from lab.nightly.record import Ack, BranchNight, BranchState, CaseChange, Event, EventKind, Mode, Night, TipComparison
from lab.stats.verdict import Outcome

BRANCH = ("linux", "main")
PLAN = BranchPlan(tree="linux", branch="main")
SOURCE = EventSource(plan="p", night=7, date="2026-11-07", branch=BRANCH, tip="tip", threshold=0.02)


def case(
    ratio: float, name: str = "large", *, counts: bool = True, verdict: Outcome | None = None, mode: Mode = "exact"
) -> CaseChange:
    """The change of a case where lower is better; below 2 % its verdict is `same`."""
    said = Outcome.REGRESSION if ratio > 1.02 else Outcome.IMPROVEMENT if ratio < 0.98 else Outcome.SAME
    return CaseChange(
        workload="w", case=name, metric="cycles", better="lower", verdict=verdict or said, ratio=ratio,
        low=ratio * 0.999, high=ratio * 1.001, counts=counts, mode=mode,
    )  # fmt: skip


def against(*names: str, cases: list[CaseChange], commit: str = "old") -> TipComparison:
    return TipComparison(baselines=names, commit=commit, result="r", cases=cases, mode=cases[0].mode)


def event(kind: EventKind = "regression", night: int = 6, *cases: CaseChange, name: str = "p.6.1") -> Event:
    return Event(
        id=name, kind=kind, tree="linux", branch="main", night=night, date="2026-11-06", base="good", test="bad",
        cases=list(cases or [case(1.25)]),
    )  # fmt: skip


def knowing(*events: Event, tips: int = 6) -> PlanState:
    found = [Tip(night=n, date=f"2026-11-{n:02}", commit=f"c{n}") for n in range(1, tips + 1)]
    return PlanState(open={one.id: one for one in events}, tips={BRANCH: found} if found else {})


UNKNOWN = case(1.1, verdict=Outcome.UNKNOWN)


@pytest.mark.parametrize(
    ("state", "measured", "wanted"),
    [
        pytest.param(knowing(), [against("yesterday", cases=[case(1.0)])], [], id="quiet"),
        pytest.param(knowing(), [against("yesterday", cases=[case(1.2)])], ["regression"], id="worse"),
        pytest.param(knowing(), [against("yesterday", cases=[case(0.8)])], [], id="better is no news"),
        pytest.param(knowing(), [against("yesterday", cases=[case(1.2, counts=False)])], [], id="chance"),
        pytest.param(knowing(), [against("yesterday", cases=[UNKNOWN])], [], id="undecided"),
        pytest.param(knowing(), [against("last-good", cases=[case(1.2)])], ["regression"], id="undecided before"),
        pytest.param(
            knowing(), [against("yesterday", cases=[case(1.2)]), against("last-good", cases=[case(1.3)])],
            ["regression"], id="one piece of news",
        ),
        pytest.param(knowing(event()), [against("last-good", cases=[case(1.25)])], [], id="known"),
        pytest.param(
            knowing(event()), [against("last-good", cases=[case(1.25), case(1.2, "small")])], ["regression"],
            id="another case",
        ),
        pytest.param(knowing(event()), [against("yesterday", cases=[case(1.2)])], ["regression"], id="worse still"),
        pytest.param(knowing(event()), [against("before p.6.1", cases=[case(1.0)])], ["fixed"], id="fixed"),
        pytest.param(knowing(event()), [against("before p.6.1", cases=[case(0.9)])], ["fixed"], id="more than fixed"),
        pytest.param(knowing(event()), [against("before p.6.1", cases=[case(1.1)])], [], id="half fixed"),
        pytest.param(knowing(event()), [against("before p.6.1", cases=[UNKNOWN])], [], id="fixed perhaps"),
        pytest.param(
            knowing(event("regression", 6, case(1.25), case(1.3, "small"))),
            [against("before p.6.1", cases=[case(1.0), case(1.3, "small")])], [], id="one case fixed of two",
        ),
        pytest.param(
            knowing(event("step", 6, case(1.012))), [against("before p.6.1", cases=[case(1.012)])], [],
            id="small, not fixed",
        ),
        pytest.param(
            knowing(event("step", 6, case(1.012))), [against("before p.6.1", cases=[case(1.001)])], ["fixed"],
            id="small, fixed",
        ),
        pytest.param(knowing(tips=0), [against("release", cases=[case(1.2)])], ["regression"], id="first night"),
        pytest.param(knowing(), [against("release", cases=[case(1.2)])], [], id="the release later"),
        pytest.param(knowing(), [against("creep", cases=[case(1.03)], commit="c1")], ["creep"], id="creep"),
        pytest.param(knowing(), [against("creep", cases=[case(1.01)], commit="c1")], [], id="not yet"),
        pytest.param(knowing(event()), [against("creep", cases=[case(1.26)], commit="c1")], [], id="explained"),
        pytest.param(knowing(event()), [against("creep", cases=[case(1.33)], commit="c1")], ["creep"], id="beyond"),
        pytest.param(knowing(event()), [against("creep", cases=[case(1.05)], commit="c6")], ["creep"], id="since"),
        pytest.param(
            knowing(), [against("yesterday", cases=[case(1.2)]), against("creep", cases=[case(1.2)], commit="c1")],
            ["regression"], id="a step is no creep",
        ),
    ],
)  # fmt: skip
def test_what_is_news(state: PlanState, measured: list[TipComparison], wanted: list[str]) -> None:
    assert [one.kind for one in events.find_events(SOURCE, state, measured)] == wanted


def live(ratio: float, name: str = "large", verdict: Outcome | None = None) -> CaseChange:
    """The change of a case in live mode."""
    return case(ratio, name, verdict=verdict, mode="live")


LIVE_UNKNOWN = live(1.01, verdict=Outcome.UNKNOWN)
BOTH = event("regression", 6, case(1.25), live(1.2))
BEFORE = "before p.6.1"


@pytest.mark.parametrize(
    ("state", "measured", "wanted"),
    [
        pytest.param(
            knowing(), [against("yesterday", cases=[case(1.2)]), against("yesterday", cases=[live(1.3)])],
            [("regression", ("exact", "live"))], id="one story",
        ),
        pytest.param(
            knowing(), [against("yesterday", cases=[live(1.3)]), against("last-good", cases=[case(1.2)])],
            [("regression", ("exact", "live"))], id="one story, whatever baseline",
        ),
        pytest.param(
            knowing(),
            [against("yesterday", cases=[case(1.2)]), against("yesterday", cases=[live(1.3), live(1.1, "small")])],
            [("regression", ("exact", "live")), ("regression", ("live",))], id="and another one",
        ),
        pytest.param(
            knowing(event()), [against("last-good", cases=[live(1.25)])], [], id="open in the other mode"
        ),
        pytest.param(
            knowing(event("regression", 6, live(1.2))), [against("last-good", cases=[case(1.2)])], [],
            id="open in live mode",
        ),
        pytest.param(
            knowing(), [against("creep", cases=[case(1.03)]), against("creep", cases=[live(1.04)])],
            [("creep", ("exact", "live"))], id="one creep",
        ),
        pytest.param(
            knowing(), [against("yesterday", cases=[case(1.2)]), against("creep", cases=[live(1.2)])],
            [("regression", ("exact",))], id="a step in exact mode is no creep in live mode",
        ),
        pytest.param(
            knowing(event()), [against("creep", cases=[live(1.26)], commit="c1")], [], id="explained by exact mode"
        ),
        pytest.param(
            knowing(event("regression", 6, live(1.25))), [against("creep", cases=[case(1.26)], commit="c1")],
            [("creep", ("exact",))], id="what live mode saw explains nothing of exact mode's",
        ),
        pytest.param(
            knowing(BOTH), [against(BEFORE, cases=[case(1.0)]), against(BEFORE, cases=[live(1.0)])],
            [("fixed", ("exact", "live"))], id="fixed in both",
        ),
        pytest.param(
            knowing(BOTH), [against(BEFORE, cases=[case(1.0)]), against(BEFORE, cases=[LIVE_UNKNOWN])],
            [("fixed", ("exact", "live"))], id="exact mode decides",
        ),
        pytest.param(knowing(BOTH), [against(BEFORE, cases=[case(1.0)])], [("fixed", ("exact",))], id="no live mode"),
        pytest.param(
            knowing(BOTH), [against(BEFORE, cases=[case(1.0)]), against(BEFORE, cases=[live(1.2)])], [],
            id="live mode still sees it",
        ),
        pytest.param(knowing(BOTH), [against(BEFORE, cases=[live(1.0)])], [], id="exact mode does not say so"),
        pytest.param(
            knowing(event("regression", 6, live(1.2))),
            [against(BEFORE, cases=[LIVE_UNKNOWN])], [], id="live mode alone has to be sure",
        ),
    ],
)  # fmt: skip
def test_what_is_news_in_both_modes(
    state: PlanState, measured: list[TipComparison], wanted: list[tuple[str, tuple[str, ...]]]
) -> None:
    assert [(one.kind, one.modes) for one in events.find_events(SOURCE, state, measured)] == wanted


def step(ratio: float = 1.015, earliest: int = 3, latest: int = 4, name: str = "large") -> SeriesStep:
    return SeriesStep(
        workload="w", case=name, metric="cycles", better="lower", earliest=earliest, latest=latest, after="c2",
        commit="c4", ratio=ratio,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "found", "wanted"),
    [
        (knowing(), [step()], ["step"]),
        (knowing(), [step(0.9)], []),
        (knowing(event("regression", 4)), [step()], []),
        (knowing(event("step", 9)), [step()], []),
        (knowing(event("regression", 30)), [step()], ["step"]),
        (knowing(event("regression", 4, case(1.2, "small"))), [step()], ["step"]),
        (knowing(event("creep", 30)), [step()], []),
    ],
)
def test_steps_that_are_news(state: PlanState, found: list[SeriesStep], wanted: list[str]) -> None:
    told = events.find_events(SOURCE, state, [], found)
    assert [one.kind for one in told] == wanted
    assert all((one.base, one.test) == ("c2", "c4") for one in told)


def test_a_step_that_both_modes_show_is_told_once() -> None:
    steps = [replace_step(step(), mode="live"), step()]
    assert [one.modes for one in events.find_events(SOURCE, knowing(), [], steps)] == [("exact",)]
    known = knowing(event("regression", 4))
    assert events.find_events(SOURCE, known, [], [replace_step(step(), mode="live")]) == []


def test_news_is_numbered_and_grouped_by_workload() -> None:
    other = replace(case(1.3), workload="v")
    told = events.find_events(replace(SOURCE, first=3), knowing(), [against("yesterday", cases=[case(1.2), other])])
    assert [(one.id, one.cases[0].workload) for one in told] == [("p.7.3", "w"), ("p.7.4", "v")]


# ---- which night, which baselines


@pytest.mark.parametrize(
    ("nights", "wanted"),
    [
        ([], (1, False)),
        ([(1, "2026-11-06", True)], (2, False)),
        ([(1, "2026-11-07", True)], None),
        ([(1, "2026-11-07", False)], (1, True)),
        ([(1, "2026-11-06", False)], (2, False)),
        ([(1, "2099-01-01", True)], (2, False)),
        ([(1, "2026-11-07", True), (2, "2099-01-01", True)], None),
    ],
)
def test_which_night_to_do(nights: list[tuple[int, str, bool]], wanted: tuple[int, bool] | None) -> None:
    stored = [
        Night(plan="p", number=number, date=date, started="", finished="x" if finished else "", branches=[])
        for number, date, finished in nights
    ]
    assert events.next_night(stored, "2026-11-07") == wanted


def _baselines(state: PlanState, plan: BranchPlan = PLAN, release: str | None = None, days: int = 30) -> dict[str, str]:
    found = events.baselines(plan, state, "tip", release, "2026-11-07", days)
    return {name: one.commit for one in found for name in one.names}


def test_baselines() -> None:
    assert _baselines(knowing(tips=0)) == {}
    assert _baselines(knowing(tips=0), release="r") == {"release": "r"}
    assert _baselines(knowing(), days=3) == {"yesterday": "c6", "creep": "c4"}
    assert _baselines(knowing(event())) == {"yesterday": "c6", "before p.6.1": "good"}
    only = BranchPlan(tree="linux", branch="main", baselines=("release",))
    assert _baselines(knowing(event()), only, "r") == {"release": "r", "before p.6.1": "good"}


@pytest.mark.parametrize(
    ("states", "still_open", "wanted"),
    [
        (["measured"], 0, "green"),
        (["measured"], 1, "no news"),
        (["measured", "nothing new"], 0, "green"),
        (["nothing new"], 0, "nothing new"),
        (["broken"], 0, "not measured"),
        (["failed", "broken"], 0, "not measured"),
        (["measured", "failed"], 0, "partly measured"),
        (["nothing new", "broken"], 0, "partly measured"),
        (["pending"], 0, "partly measured"),
    ],
)
def test_the_name_of_a_night(states: list[BranchState], still_open: int, wanted: str) -> None:
    branches = [BranchNight(tree="linux", branch=str(i), state=state) for i, state in enumerate(states)]
    assert events.night_outcome(branches, still_open=still_open) == wanted


def test_live_mode_has_no_release_and_a_last_good_tip_of_its_own() -> None:
    state = knowing(event())
    state.last_good[BRANCH, "exact"] = state.tips[BRANCH][2]
    state.last_good[BRANCH, "live"] = state.tips[BRANCH][4]
    found = events.baselines(PLAN, state, "tip", "r", "2026-11-07", 3, "live")
    assert [(one.commit, one.names) for one in found] == [
        ("c6", ("yesterday",)), ("c5", ("last-good",)), ("c4", ("creep",)),
    ]  # fmt: skip


# ---- the state of a plan


def _night(
    number: int, *events: Event, state: BranchState = "measured", cases: list[CaseChange] | None = None
) -> Night:
    one = BranchNight(
        tree="linux", branch="main", state=state, tip=f"c{number}", events=list(events),
        measured=[against("yesterday", cases=cases or [case(1.0)])],
    )  # fmt: skip
    return Night(plan="p", number=number, date=f"2026-11-{number:02}", started="", branches=[one])


def test_the_state_is_the_sum_of_the_nights() -> None:
    bad, fixed = event("regression", 2, name="p.2.1"), replace(event("fixed", 4, name="p.4.1"), closes="p.2.1")
    state = PlanState.after([_night(1), _night(2, bad), _night(3)], {})
    assert list(state.open) == ["p.2.1"] and state.last_good[BRANCH, "exact"].commit == "c1"
    assert state.last_tip(BRANCH) == Tip(night=3, date="2026-11-03", commit="c3")
    state = PlanState.after([_night(1), _night(2, bad), _night(3), _night(4, fixed)], {})
    assert not state.open and list(state.closed) == ["p.2.1"] and state.last_good[BRANCH, "exact"].commit == "c4"
    acked = PlanState.after([_night(1), _night(2, bad)], {"p.2.1": Ack(event="p.2.1", note="", at="")})
    assert (
        acked.last_good[BRANCH, "exact"].commit == "c2" and not acked.unacknowledged and list(acked.open) == ["p.2.1"]
    )


def test_what_was_not_measured_is_no_yesterday() -> None:
    state = PlanState.after([_night(1), _night(2, event("broken", 2), state="broken"), _night(3, state="failed")], {})
    assert state.last_tip(BRANCH) == Tip(night=1, date="2026-11-01", commit="c1")
    assert list(state.broken) == [BRANCH]
