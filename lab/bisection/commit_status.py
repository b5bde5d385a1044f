"""Where every commit of a range stands once a bisection is over: measured, inferred, untestable, or still suspected.

Taken from the stored answer and its history alone, so it is the same for any way of searching. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from lab.bisection.answer import Answer, Step
from lab.bisection.commit_range import Candidate, History
from lab.bisection.exact_search import OLD


class Stand(StrEnum):
    """What is known of a commit. The ends' own names are in the answer's `words`."""

    OLD = "like the old end"
    NEW = "like the new end"
    NEITHER = "like neither end"
    UNCLEAR = "not clear"
    UNTESTABLE = "untestable"
    SUSPECT = "not measured, may be the culprit"
    OPEN = "not measured"


LEVELS = (Stand.OLD, Stand.NEW, Stand.NEITHER)
"""What a commit is like, where that is known."""


class Place(NamedTuple):
    """A commit of the range. number: in the history, from 1 on; 0 is the old end.

    step: which measurement of the search it was, from 1 on; None where it was not measured, or is an end.
    told: its reading. chance: of being the culprit of a change. culprit: whether it is one.
    """

    number: int
    candidate: Candidate
    stand: Stand
    measured: bool
    step: int | None
    told: Step | None
    chance: float
    culprit: bool


def places(answer: Answer, history: History) -> list[Place]:
    """All commits in order, the old end first."""
    steps = {step.commit: (i, step) for i, step in enumerate(answer.path, start=1)}
    measured = _measured(answer, history)
    inferred = _inferred(history, measured)
    chances = culprit_chances(answer, history)
    suspects = {name for change in answer.changes if not change.settled for name in change.among}
    found = {change.commit for change in answer.changes if change.settled}
    places = []
    for number, one in enumerate([history.old, *history.candidates]):
        step, told = steps.get(one.id, (None, None))
        stand = measured.get(one.id)
        known = stand is not None
        if stand is None:
            stand = Stand.SUSPECT if one.id in suspects else inferred[number]
        chance = chances.get(one.id, 0.0)
        places.append(Place(number, one, stand, known, step, told, chance, one.id in found))
    return places


def culprit_chances(answer: Answer, history: History) -> dict[str, float]:
    """The chance of each commit to be a culprit: the same for all that were not told apart."""
    found: dict[str, float] = {}
    if answer.live is not None:
        names = [history.old.id, *(one.id for one in history.candidates)]
        for one in answer.live.suspicions:
            among = names[names.index(one.after) + 1 : names.index(one.up_to) + 1]
            found |= dict.fromkeys(among, one.probability / max(len(among), 1))
        return found
    for change in answer.changes:
        found |= dict.fromkeys(change.among, change.confidence / len(change.among))
    return found


def _measured(answer: Answer, history: History) -> dict[str, Stand]:
    """What was found out of the commits that were tried, and of both ends."""
    alike = answer.ends is not None and answer.ends.verdict not in ("regression", "improvement")
    found = {history.old.id: Stand.OLD, history.new.id: Stand.OLD if alike else Stand.NEW}
    return found | {step.commit: _stand(step, answer.words) for step in answer.path}


def _stand(step: Step, words: tuple[str, str]) -> Stand:
    """A step's decision; in live mode it says how sure it is behind the word."""
    old, new = words
    meant = {
        "untestable": Stand.UNTESTABLE, "not": Stand.UNCLEAR, "panics": Stand.NEW, f"like {old}": Stand.OLD,
        f"like {new}": Stand.NEW, "like both": Stand.OLD, "like neither": Stand.NEITHER,
    }  # fmt: skip
    return next((stand for word, stand in meant.items() if step.decision.startswith(word)), Stand.UNCLEAR)


def _inferred(history: History, measured: Mapping[str, Stand]) -> Sequence[Stand]:
    """For each commit what its nearest measured ancestors are like, if all of those agree."""
    graph = history.graph()
    behind: list[frozenset[Stand]] = []
    for parents in graph.parents:
        met: frozenset[Stand] = frozenset()
        for parent in parents:
            stand = Stand.OLD if parent == OLD else measured.get(history[parent].id)
            met |= {stand} if stand in LEVELS else behind[parent]
        behind.append(met)
    return [Stand.OLD, *(next(iter(met)) if len(met) == 1 else Stand.OPEN for met in behind)]


class Stretch(NamedTuple):
    """Commits one after the other that stand alike and of which none was tried."""

    places: Sequence[Place]

    @property
    def first(self) -> Place:
        """The oldest of them."""
        return self.places[0]

    @property
    def last(self) -> Place:
        """The newest of them."""
        return self.places[-1]


def stretches(found: Sequence[Place]) -> list[Stretch]:
    """The places with what was not tried put together: a range may have thousands of commits."""
    rows: list[list[Place]] = []
    for place in found:
        alone = place.measured or place.culprit
        if not alone and rows and _joins(rows[-1][-1], place):
            rows[-1].append(place)
        else:
            rows.append([place])
    return [Stretch(row) for row in rows]


def _joins(before: Place, place: Place) -> bool:
    return before.stand == place.stand and not before.measured and not before.culprit
