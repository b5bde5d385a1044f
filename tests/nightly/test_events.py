"""The decisions of a night by tables: the baselines of a tip, and its events."""

from collections.abc import Sequence
from dataclasses import replace as replace_fields
from typing import cast

import pytest
from msgspec.structs import replace

from lab.nightly import events, status
from lab.nightly.events import EventSource, PlanState, SeriesStep, Tip
from lab.nightly.plan import BranchPlan
from lab.nightly.record import Ack, BranchNight, BranchState, CaseChange, Event, EventKind, Mode, Night, TipComparison
from lab.stats.verdict import Outcome

from ..scenarios.simulation.nights import EXACT, LIVE, Host, World, alarms, false_nights, nights

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


def _cases(words: Sequence[str]) -> list[CaseChange]:
    found = []
    for word in words:
        *names, number = word.split(":")
        mode: Mode = "live" if "live" in names else "exact"
        verdict = Outcome.UNKNOWN if number.endswith("?") else None
        name = "small" if "small" in names else "large"
        ratio = float(number.rstrip("?~"))
        found.append(case(ratio, name, counts=not number.endswith("~"), verdict=verdict, mode=mode))
    return found


def _comparison(text: str) -> TipComparison:
    baseline, *words = text.split()
    name, _, commit = baseline.partition("@")
    return against("before p.6.1" if name == "before" else name, cases=_cases(words), commit=commit or "old")


# An open event of the sixth night, `KIND CASE...`; comparisons, `BASELINE[@COMMIT] CASE...`; the news; a name. A case
# is `[live:][small:]RATIO`, with `?` if it is undecided and `~` if it may be chance.
NEWS = """
- | yesterday 1.0 => - | quiet
- | yesterday 1.2 => regression | worse
- | yesterday 0.8 => - | better is no news
- | yesterday 1.2~ => - | chance
- | yesterday 1.1? => - | undecided
- | last-good 1.2 => regression | undecided before
- | yesterday 1.2; last-good 1.3 => regression | one piece of news
regression 1.25 | last-good 1.25 => - | known
regression 1.25 | last-good 1.25 small:1.2 => regression | another case
regression 1.25 | yesterday 1.2 => regression | worse still
regression 1.25 | before 1.0 => fixed | fixed
regression 1.25 | before 0.9 => fixed | more than fixed
regression 1.25 | before 1.1 => - | half fixed
regression 1.25 | before 1.1? => - | fixed perhaps
regression 1.25 small:1.3 | before 1.0 small:1.3 => - | one case fixed of two
step 1.012 | before 1.012 => - | small, not fixed
step 1.012 | before 1.001 => fixed | small, fixed
first | release 1.2 => regression | first night
- | release 1.2 => - | the release later
- | creep@c1 1.03 => creep | creep
- | creep@c1 1.01 => - | not yet
regression 1.25 | creep@c1 1.26 => - | explained
regression 1.25 | creep@c1 1.33 => creep | beyond
regression 1.25 | creep@c6 1.05 => creep | since
- | yesterday 1.2; creep@c1 1.2 => regression | a step is no creep
- | yesterday 1.2; yesterday live:1.3 => regression+live | one story
- | yesterday live:1.3; last-good 1.2 => regression+live | one story, whatever baseline
- | yesterday 1.2; yesterday live:1.3 live:small:1.1 => regression+live, live:regression | and another one
regression 1.25 | last-good live:1.25 => - | open in the other mode
regression live:1.2 | last-good 1.2 => - | open in live mode
- | creep 1.03; creep live:1.04 => creep+live | one creep
- | yesterday 1.2; creep live:1.2 => regression | a step is no creep in live mode
regression 1.25 | creep@c1 live:1.26 => - | explained by exact mode
regression live:1.25 | creep@c1 1.26 => creep | live mode explains nothing of exact mode's
regression 1.25 live:1.2 | before 1.0; before live:1.0 => fixed+live | fixed in both
regression 1.25 live:1.2 | before 1.0; before live:1.01? => fixed+live | exact mode decides
regression 1.25 live:1.2 | before 1.0 => fixed | no live mode
regression 1.25 live:1.2 | before 1.0; before live:1.2 => - | live mode still sees it
regression 1.25 live:1.2 | before live:1.0 => - | exact mode does not say so
regression live:1.2 | before live:1.01? => - | live mode alone has to be sure
"""


@pytest.mark.parametrize("row", NEWS.strip().splitlines(), ids=lambda row: row.rpartition("| ")[2])
def test_what_is_news(row: str) -> None:
    known, news, _ = row.split(" | ")
    measured, _, wanted = news.partition(" => ")
    kind, *words = known.split()
    opened = [event(cast(EventKind, kind), 6, *_cases(words))] if words else []
    state = knowing(*opened, tips=0 if kind == "first" else 6)
    found = events.find_events(SOURCE, state, [_comparison(text) for text in measured.split("; ")])
    shown = {("exact",): "{}", ("exact", "live"): "{}+live", ("live",): "live:{}"}
    assert (", ".join(shown[one.modes].format(one.kind) for one in found) or "-") == wanted


def step(ratio: float = 1.015, earliest: int = 3, latest: int = 4, name: str = "large") -> SeriesStep:
    return SeriesStep(
        workload="w", case=name, metric="cycles", better="lower", earliest=earliest, latest=latest, after="c2",
        commit="c4", ratio=ratio,
    )  # fmt: skip


@pytest.mark.parametrize(("state", "found", "wanted"), [
    (knowing(), [step()], ["step"]),
    (knowing(), [step(0.9)], []),
    (knowing(event("regression", 4)), [step()], []),
    (knowing(event("step", 9)), [step()], []),
    (knowing(event("regression", 30)), [step()], ["step"]),
    (knowing(event("regression", 4, case(1.2, "small"))), [step()], ["step"]),
    (knowing(event("creep", 30)), [step()], []),
])  # fmt: skip
def test_steps_that_are_news(state: PlanState, found: list[SeriesStep], wanted: list[str]) -> None:
    told = events.find_events(SOURCE, state, [], found)
    assert [one.kind for one in told] == wanted
    assert all((one.base, one.test) == ("c2", "c4") for one in told)


def test_a_step_that_both_modes_show_is_told_once() -> None:
    steps = [replace_fields(step(), mode="live"), step()]
    assert [one.modes for one in events.find_events(SOURCE, knowing(), [], steps)] == [("exact",)]
    known = knowing(event("regression", 4))
    assert events.find_events(SOURCE, known, [], [replace_fields(step(), mode="live")]) == []


def test_news_is_numbered_and_grouped_by_workload() -> None:
    other = replace(case(1.3), workload="v")
    told = events.find_events(replace(SOURCE, first=3), knowing(), [against("yesterday", cases=[case(1.2), other])])
    assert [(one.id, one.cases[0].workload) for one in told] == [("p.7.3", "w"), ("p.7.4", "v")]


def test_the_line_of_an_event_begins_with_its_largest_change() -> None:
    cases = [case(ratio, name) for ratio, name in ((1.04, "one"), (1.06, "two"), (0.5, "three"), (1.03, "four"))]
    found = event("regression", 6, *cases)
    assert status.line(found) == (
        "p.6.1 regression linux/main w:three -50.0 % w:two +6.0 % w:one +4.0 % and 1 more case in good..bad"
    )


# ---- which night, which baselines


@pytest.mark.parametrize(("nights", "wanted"), [
    ([], (1, False)),
    ([(1, "2026-11-06", True)], (2, False)),
    ([(1, "2026-11-07", True)], None),
    ([(1, "2026-11-07", False)], (1, True)),
    ([(1, "2026-11-06", False)], (2, False)),
    ([(1, "2099-01-01", True)], (2, False)),
    ([(1, "2026-11-07", True), (2, "2099-01-01", True)], None),
])  # fmt: skip
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


@pytest.mark.parametrize(("states", "still_open", "wanted"), [
    (["measured"], 0, "green"),
    (["measured"], 1, "no news"),
    (["measured", "nothing new"], 0, "green"),
    (["nothing new"], 0, "nothing new"),
    (["broken"], 0, "not measured"),
    (["failed", "broken"], 0, "not measured"),
    (["measured", "failed"], 0, "partly measured"),
    (["nothing new", "broken"], 0, "partly measured"),
    (["pending"], 0, "partly measured"),
])  # fmt: skip
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


def _night(number: int, *events: Event, state: BranchState = "measured") -> Night:
    one = BranchNight(
        tree="linux", branch="main", state=state, tip=f"c{number}", events=list(events),
        measured=[against("yesterday", cases=[case(1.0)])],
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
    assert acked.last_good[BRANCH, "exact"].commit == "c2"
    assert not acked.unacknowledged and list(acked.open) == ["p.2.1"]


def test_what_was_not_measured_is_no_yesterday() -> None:
    state = PlanState.after([_night(1), _night(2, event("broken", 2), state="broken"), _night(3, state="failed")], {})
    assert state.last_tip(BRANCH) == Tip(night=1, date="2026-11-01", commit="c1")
    assert list(state.broken) == [BRANCH]


# ---- simulated nights


FEW = 60


@pytest.mark.parametrize("host", [replace_fields(LIVE, cases=3), EXACT], ids=["live", "exact"])
def test_quiet_nights(host: Host) -> None:
    # Of 1,000 nights (`python -m tests.scenarios.simulation.nights`) at most 1 % may: of these few, none.
    assert false_nights(host, FEW, seed=1) == 0


def test_a_step_below_the_threshold_is_found_by_the_history() -> None:
    def truth(night: int, case: int) -> float:
        return 1.017 if night >= 25 and case == 0 else 1.0

    told = alarms(nights(World(replace_fields(EXACT, cases=2), truth, 3), 45))
    assert [event.kind for event in told] == ["step"]
    assert [case.case for case in told[0].cases] == ["0"]
    assert int(told[0].base[1:]) < 25 <= int(told[0].test[1:])
