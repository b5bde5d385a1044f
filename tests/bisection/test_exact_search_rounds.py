"""Several commits at once: equal parts, few rounds, the same culprits as one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from lab.bisection import exact_search
from lab.bisection.exact_search import Graph, Readings

from ..fakes.bisection import dice
from .test_exact_search import Value, line


def rounds(graph: Graph, value: Value, count: int, broken: Iterable[int] = ()) -> tuple[list[list[int]], list[int]]:
    """What each round of a search measures, and the culprits."""
    cannot = set(broken)
    values, levels, skipped = [0.0], {}, set()

    def measure(commit: int) -> None:
        if commit in cannot:
            skipped.add(commit)
            return
        if (number := round(value(commit), 9)) not in values:
            values.append(number)
        levels[commit] = values.index(number)

    def known() -> Readings:
        return Readings(dict(levels), frozenset(skipped), dict(enumerate(values)), tolerance=1e-6)

    measure(graph.new)
    done: list[list[int]] = []
    while chosen := exact_search.next_commits(graph, known(), count):
        assert len(set(chosen)) == len(chosen) <= count
        assert not set(chosen) & ({*levels} | skipped), "asked twice"
        done.append(chosen)
        for commit in chosen:
            measure(commit)
    return done, [change.at for change in exact_search.changes(graph, known()) if len(change.suspects) == 1]


@pytest.mark.parametrize(("size", "count", "most"), [(64, 1, 6), (64, 2, 4), (64, 3, 3), (1024, 3, 5), (1024, 7, 4)])
def test_k_commits_at_once_need_the_logarithm_to_base_k_plus_one(size: int, count: int, most: int) -> None:
    assert most == math.ceil(math.log(size, count + 1) - 1e-9)
    for culprit in range(0, size, max(1, size // 128)):
        done, found = rounds(line(size), lambda c, at=culprit: float(c >= at), count)  # type: ignore[misc]
        assert found == [culprit]
        assert len(done) <= most


def test_what_one_change_does_not_use_up_goes_to_the_next() -> None:
    graph = line(64)
    levels = {10: 0, 12: 1, 40: 1, 63: 2}
    known = Readings(levels, frozenset(), {0: 0.0, 1: 3.0, 2: 4.0}, tolerance=1e-6)
    assert exact_search.next_commits(graph, known, 1) == [11]
    assert exact_search.next_commits(graph, known, 3) == [11, 48, 55]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_same_culprits_on_any_history_however_many_at_once(count: int) -> None:
    draw = dice(count)
    for _ in range(30):
        size = draw.randrange(20, 60)
        parents = [(exact_search.OLD,)]
        for i in range(1, size - 1):
            parents.append(tuple({draw.randrange(max(0, i - 4), i) for _ in range(1 + (draw.random() < 0.3))}))
        tips = set(range(size - 1)) - {parent for ones in parents for parent in ones}
        graph = Graph((*parents, tuple(sorted(tips))))
        culprit = draw.randrange(size)
        children = {one for one in range(size) if culprit in graph.behind([one])}
        done, found = rounds(graph, lambda c, reach=children: float(c in reach), count)  # type: ignore[misc]
        assert found == [culprit]
        assert len(done) <= len(rounds(graph, lambda c, reach=children: float(c in reach), 1)[0])  # type: ignore[misc]
