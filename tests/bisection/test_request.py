"""The recipes that come with the lab, and what a recipe may say."""

from __future__ import annotations

import pytest

from lab.bisection import request
from lab.workloads import selection


@pytest.mark.parametrize("name", request.shipped())
def test_a_shipped_recipe_names_a_case_that_there_is(name: str) -> None:
    recipe = request.load(name)
    assert recipe.story
    _, cases = selection.select(recipe.selection)
    assert [case.name for case in cases] == [recipe.case]


def test_there_is_one_for_each_story() -> None:
    assert {"aio-hugetlbfs", "alloc-burst", "compaction-stall", "large-alloc", "pointer-chase"} <= set(
        request.shipped()
    )
