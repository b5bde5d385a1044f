"""Delta debugging: what is left is minimal, whatever is undecided on the way."""

import random
from collections.abc import Callable, Sequence

import pytest

from lab.bisection import difference_search
from lab.bisection.difference_search import Outcome

Elements = Sequence[int]


def _asking(decide: Callable[[set[int]], Outcome], asked: list[tuple[set[int], int]]) -> difference_search.Test[int]:
    def test(part: Elements, left: int) -> Outcome:
        asked.append((set(part), left))
        return decide(set(part))

    return test


@pytest.mark.parametrize("wanted", [{0}, {63}, {17}, {3, 40}, {5, 6, 7, 60}])
def test_what_carries_is_found_among_many(wanted: set[int]) -> None:
    asked: list[tuple[set[int], int]] = []
    test = _asking(lambda part: Outcome.CARRIES if wanted <= part else Outcome.LACKS, asked)
    assert set(difference_search.minimal(range(64), test)) == wanted
    assert len(asked) <= (12 if len(wanted) == 1 else 60)
    assert all(left >= 1 for _, left in asked)


def test_one_of_forty_takes_no_more_than_twelve_tests() -> None:
    for wanted in range(40):
        asked: list[tuple[set[int], int]] = []
        test = _asking(lambda part: Outcome.CARRIES if wanted in part else Outcome.LACKS, asked)  # noqa: B023
        assert difference_search.minimal(range(40), test) == [wanted]
        assert len(asked) <= 12


def test_what_is_likely_is_tried_first() -> None:
    asked: list[tuple[set[int], int]] = []
    test = _asking(lambda part: Outcome.CARRIES if 33 in part else Outcome.LACKS, asked)
    assert difference_search.minimal(range(64), test, likely={33}) == [33]
    assert [part for part, _ in asked] == [{33}]


@pytest.mark.parametrize("seed", range(30))
def test_no_element_can_be_left_out_though_much_is_undecided(seed: int) -> None:
    """Some elements build only with another one."""
    draw = random.Random(seed)  # noqa: S311
    wanted = set(draw.sample(range(24), draw.randint(1, 4)))
    needs = {element: draw.randrange(24) for element in draw.sample(range(24), 5)}

    def decide(part: set[int]) -> Outcome:
        if any(element in part and other not in part for element, other in needs.items()):
            return Outcome.UNDECIDED
        return Outcome.CARRIES if wanted <= part else Outcome.LACKS

    found = set(difference_search.minimal(range(24), delta_test := (lambda part, left: decide(set(part)))))
    assert decide(found) is Outcome.CARRIES
    for element in found:
        assert len(found) == 1 or decide(found - {element}) is not Outcome.CARRIES
    assert delta_test([], 0) is Outcome.LACKS


def test_losses_that_add_up_are_sets_of_their_own() -> None:
    assert difference_search.independent({"a": 0.3, "b": 0.7}, 1.0, 0.05) == [["b"], ["a"]]
    assert difference_search.independent({"a": 1.0, "b": 1.0}, 1.0, 0.05) == [["a", "b"]]
