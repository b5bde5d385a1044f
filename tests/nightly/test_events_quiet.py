"""Quiet nights stay quiet, and what is there is found: simulated hosts, the lab's own decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ..scenarios.simulation.nights import EXACT, LIVE, Host, World, alarms, false_nights, nights

FEW = 60


@pytest.mark.parametrize("host", [replace(LIVE, cases=3), EXACT], ids=["live", "exact"])
def test_quiet_nights(host: Host) -> None:
    # Of 1,000 nights (`python -m tests.simulation.nights`) at most 1 % may: of these few, none.
    assert false_nights(host, FEW, seed=1) == 0


def test_a_step_below_the_threshold_is_found_by_the_history() -> None:
    def truth(night: int, case: int) -> float:
        return 1.017 if night >= 25 and case == 0 else 1.0

    told = alarms(nights(World(replace(EXACT, cases=2), truth, 3), 45))
    assert [event.kind for event in told] == ["step"]
    assert [case.case for case in told[0].cases] == ["0"]
    assert int(told[0].base[1:]) < 25 <= int(told[0].test[1:])


def test_a_creep_is_found_by_the_month_and_told_once() -> None:
    def truth(night: int, case: int) -> float:
        return 1.0 + 0.001 * night if case == 0 else 1.0

    told = alarms(nights(World(replace(EXACT, cases=2, layout=0.0005), truth, 3), 45))
    assert [event.kind for event in told] == ["creep"]


def test_a_large_step_is_one_alarm_the_first_night() -> None:
    def truth(night: int, case: int) -> float:
        return 1.1 if night >= 20 else 1.0

    told = alarms(nights(World(replace(LIVE, cases=2), truth, 3), 50))
    assert [(event.kind, event.night) for event in told] == [("regression", 20)]
