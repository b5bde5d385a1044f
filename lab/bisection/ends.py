"""Measuring both ends of a range first, with as many seeds as it takes to tell them apart, or to see they are alike."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lab.bisection.history import Candidate
from lab.bisection.journal import Reading, Seeds
from lab.bisection.measuring import Measurer
from lab.bisection.plan import FIRST_SEED, BisectPlan
from lab.bisection.session import Session
from lab.bisection.state import PANICS, State
from lab.core import executor
from lab.core.errors import GuestFailed
from lab.core.progress import Meter
from lab.stats.verdict import Outcome, percent

_FIRST_LOOK = 3
_SECOND_LOOK = 6
_MORE = 2


def measure(session: Session, measurer: Measurer) -> None:
    """Put both ends and the seeds of all commits into the journal."""
    plan, history = session.plan, session.history
    seeds: list[int] = []
    readings: dict[str, Reading] = {}
    for count in _looks(plan):
        seeds = list(range(FIRST_SEED, FIRST_SEED + count))
        ends_and_words = list(zip((history.old, history.new), plan.words, strict=True))
        measured = executor.each(partial(_end, plan, measurer, seeds), ends_and_words)
        readings = {reading.commit: reading for reading in measured}
        ends = State(plan=plan, history=history, metric=measurer.metric, readings=readings).ends
        if ends is None or ends.verdict != Outcome.UNKNOWN:
            break
    for reading in readings.values():
        session.journal.append(reading)
    session.journal.append(Seeds(seeds=seeds))


def _looks(plan: BisectPlan) -> Iterator[int]:
    if plan.seeds is not None:
        yield plan.seeds
        return
    yield _FIRST_LOOK
    yield from range(_SECOND_LOOK, plan.max_seeds + 1, _MORE)


def _end(plan: BisectPlan, measurer: Measurer, seeds: list[int], end: tuple[Candidate, str]) -> Reading:
    one, word = end
    reading = measurer.measure(one, seeds)
    hunted = plan.panics == "bad" and word == plan.words[1]
    if reading.untestable and not (hunted and reading.untestable in PANICS):
        raise GuestFailed(
            reading.untestable,
            f"the {word} end cannot be measured, so nothing can be compared with it: {reading.why}",
            hint="choose another end",
            log=Path(reading.log) if reading.log else None,
        )
    return reading


def say(session: Session, meter: Meter) -> None:
    """What the ends are like, and what follows from that."""
    state = session.state
    old, new = state.plan.words
    seeds = len(session.journal.seeds or [])
    if state.ends is None:
        meter.say(f"ends: {new} panics, {old} does not")
    else:
        meter.say(
            f"ends: {new} against {old} {percent(state.ends.ratio)} ({state.metric.name}, {seeds} seeds): "
            f"{state.ends.verdict}"
        )
    if not state.differ and state.next() is not None:
        meter.say(f"the ends are alike; measuring up to {state.plan.probes} commits between them")
