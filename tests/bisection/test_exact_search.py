"""The search on made-up histories: right commit, few measurements, honest ranges."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from lab.bisection import exact_search
from lab.bisection.exact_search import OLD, Change, Graph, Readings

from ..fakes.bisection import Dice, dice

Value = Callable[[int], float]


@dataclass
class Done:
    changes: list[Change]
    measured: list[int]
    skipped: list[int]
    rounds: list[list[int]]

    @property
    def culprits(self) -> list[int]:
        return [change.at for change in self.changes if len(change.suspects) == 1]


def line(size: int) -> Graph:
    return Graph(tuple((i - 1,) for i in range(size)))


def searched(graph: Graph, value: Value, broken: Iterable[int] = (), first: Iterable[int] = (), count: int = 1) -> Done:
    """Search with levels by value, `count` commits at once. first: commits measured before it begins."""
    cannot = set(broken)
    values: list[float] = [0.0]
    levels: dict[int, int] = {}
    done = Done([], [], [], [])

    def measure(commit: int) -> None:
        if commit in cannot:
            done.skipped.append(commit)
            return
        number = round(value(commit), 9)
        if number not in values:
            values.append(number)
        levels[commit] = values.index(number)
        if commit != graph.new:
            done.measured.append(commit)

    def known() -> Readings:
        return Readings(dict(levels), frozenset(done.skipped), dict(enumerate(values)), tolerance=1e-6)

    for commit in (graph.new, *first):
        measure(commit)
    while chosen := exact_search.next_commits(graph, known(), count):
        assert len(set(chosen)) == len(chosen) <= count
        assert not set(chosen) & {*levels, *done.skipped}, "asked twice"
        done.rounds.append(chosen)
        for commit in chosen:
            measure(commit)
    done.changes = exact_search.changes(graph, known())
    return done


# ---- a line


@pytest.mark.parametrize(("length", "tries"), [(10, 10), (30, 16), (100, 23), (300, 27)])
def test_a_culprit_in_a_broken_stretch_costs_a_bounded_number_of_tries(length: int, tries: int) -> None:
    for start in range(1, 1023 - length, 49):
        broken = range(start, start + length)
        culprit = start + length // 2
        done = searched(line(1024), lambda c, at=culprit: float(c >= at), broken)  # type: ignore[misc]
        (change,) = done.changes
        # Neither a testable one among them but the last, nor a broken one left out.
        assert change.suspects == (*broken, start + length)
        assert len(done.measured) <= 12 and len(done.skipped) <= tries


def test_only_the_new_end_can_be_tested() -> None:
    done = searched(line(8), lambda c: float(c >= 3), range(7))
    assert [change.suspects for change in done.changes] == [tuple(range(8))]
    assert not done.measured


def test_a_second_change_is_found_with_its_sign() -> None:
    done = searched(line(64), lambda c: 0.5 * (c >= 20) - 0.1 * (c >= 44))
    assert done.culprits == [20, 44]
    assert [change.before for change in done.changes] == [19, 43]


def test_a_fix_after_the_culprit_is_found_once_one_in_between_is_measured() -> None:
    alike = searched(line(64), lambda c: float(20 <= c < 44))
    assert alike.changes == [] and alike.measured == []
    probed = searched(line(64), lambda c: float(20 <= c < 44), first=[31])
    assert probed.culprits == [20, 44] and len(probed.measured) <= 1 + 2 * 5


# ---- branches and merges


def random_graph(draw: Dice, size: int) -> Graph:
    """A connected history: every commit but the last is behind some other."""
    parents: list[tuple[int, ...]] = []
    heads: list[int] = []
    for commit in range(size):
        if commit == size - 1:
            parents.append(tuple(sorted(heads)) or (OLD,))
            break
        kind = draw.random()
        if not heads or (kind < 0.15 and len(heads) < 4):
            base = draw.choice([OLD, *range(commit)]) if commit else OLD
            parents.append((base,))
            heads = [head for head in heads if head != base]
        elif kind < 0.35 and len(heads) > 1:
            chosen = tuple(sorted(draw.sample(heads, 2)))
            parents.append(chosen)
            heads = [head for head in heads if head not in chosen]
        else:
            head = draw.choice(heads)
            parents.append((head,))
            heads.remove(head)
        heads.append(commit)
    return Graph(tuple(parents))


def behind(graph: Graph, commit: int) -> set[int]:
    found = {commit} - {OLD}
    for parent in graph.parents[commit] if commit != OLD else ():
        found |= behind(graph, parent)
    return found


def value_of(graph: Graph, effects: dict[int, float]) -> Value:
    sets = [behind(graph, commit) for commit in range(len(graph))]
    return lambda commit: sum(effect for culprit, effect in effects.items() if culprit in sets[commit])


@pytest.mark.parametrize("seed", range(20))
def test_one_culprit_anywhere_in_a_history_with_merges(seed: int) -> None:
    draw = dice(seed)
    graph = random_graph(draw, draw.randrange(2, 60))
    for culprit in range(len(graph)):
        done = searched(graph, value_of(graph, {culprit: 1.0}))
        assert done.culprits == [culprit]


@pytest.mark.parametrize("seed", range(20))
def test_two_culprits_in_a_history_with_merges(seed: int) -> None:
    draw = dice(1000 + seed)
    graph = random_graph(draw, draw.randrange(4, 40))
    for _ in range(10):
        first, second = draw.sample(range(len(graph)), 2)
        done = searched(graph, value_of(graph, {first: -0.5, second: 0.1}))
        assert sorted(done.culprits) == sorted([first, second])


@pytest.mark.parametrize("seed", range(10))
def test_with_skips_the_range_holds_the_culprit_and_names_nothing_testable_but_one(seed: int) -> None:
    draw = dice(2000 + seed)
    graph = random_graph(draw, draw.randrange(5, 60))
    broken = set(draw.sample(range(len(graph) - 1), len(graph) // 3))
    for culprit in range(len(graph)):
        done = searched(graph, value_of(graph, {culprit: 1.0}), broken)
        holding = [change for change in done.changes if culprit in change.suspects]
        assert holding, (culprit, done)
        for change in done.changes:
            assert set(change.suspects) - {change.at} <= broken


def test_what_is_next_either_way_is_foretold() -> None:
    graph, levels = line(64), {63: 1}
    readings = Readings(levels, effects={0: 0.0, 1: 1.0})
    commit = exact_search.next_commit(graph, readings)
    assert commit is not None
    foretold = exact_search.after(graph, readings, commit)
    for level in (0, 1):
        following = exact_search.next_commit(graph, Readings({**levels, commit: level}, effects={0: 0.0, 1: 1.0}))
        assert following in foretold


# ---- several at once


@pytest.mark.parametrize(("size", "count", "most"), [(1024, 1, 10), (64, 2, 4), (64, 3, 3), (1024, 3, 5), (1024, 7, 4)])
def test_k_commits_at_once_need_the_logarithm_to_base_k_plus_one(size: int, count: int, most: int) -> None:
    assert most == math.ceil(math.log(size, count + 1) - 1e-9)
    for culprit in range(0, size, max(1, size // 128)):
        done = searched(line(size), lambda c, at=culprit: float(c >= at), count=count)  # type: ignore[misc]
        assert done.culprits == [culprit] and len(done.rounds) <= most


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
        graph = random_graph(draw, draw.randrange(20, 60))
        culprit = draw.randrange(len(graph))
        done = searched(graph, value_of(graph, {culprit: 1.0}), count=count)
        assert done.culprits == [culprit]
        assert len(done.rounds) <= len(searched(graph, value_of(graph, {culprit: 1.0})).rounds)
