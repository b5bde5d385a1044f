"""What `make nights` accepts, and what it does not: the nights themselves take real kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from lab.nightly.record import Event, EventCulprit

from . import nights

STORY = nights.Story(tips=[str(number) for number in range(1, 11)], culprit="c")


def _event(id_: str, kind: str, night: int, **more: object) -> Event:
    return Event(id=id_, kind=kind, tree="t", branch="b", night=night, date="", base="", test=str(night), **more)  # type: ignore[arg-type]


def _told() -> list[Event]:
    culprit = EventCulprit(commit="c", title="", author="", among=1, outcome="found", bisection="b", proof="p")
    return [_event("n.6.1", "regression", 6, culprit=culprit), _event("n.9.1", "fixed", 9, closes="n.6.1")]


def test_one_alarm_the_right_commit_one_fixed() -> None:
    assert nights.complaints(_told(), STORY) == []


Change = Callable[[Event, Event], Sequence[Event]]


def _other(alarm: Event, **changes: object) -> Event:
    assert alarm.culprit is not None
    return replace(alarm, culprit=replace(alarm.culprit, **changes))


@pytest.mark.parametrize(
    "change",
    [
        lambda alarm, fixed: [],
        lambda alarm, fixed: [alarm],
        lambda alarm, fixed: [alarm, _event("n.7.1", "creep", 7), fixed],
        lambda alarm, fixed: [replace(alarm, night=7), fixed],
        lambda alarm, fixed: [replace(alarm, culprit=None), fixed],
        lambda alarm, fixed: [_other(alarm, commit="d"), fixed],
        lambda alarm, fixed: [_other(alarm, among=2), fixed],
        lambda alarm, fixed: [_other(alarm, proof=None), fixed],
        lambda alarm, fixed: [alarm, replace(fixed, closes="n.5.1")],
        lambda alarm, fixed: [alarm, replace(fixed, test="8")],
        lambda alarm, fixed: [alarm, replace(fixed, night=10)],
    ],
)
def test_anything_else_is_wrong(change: Change) -> None:
    alarm, fixed = _told()
    assert nights.complaints(change(alarm, fixed), STORY)
