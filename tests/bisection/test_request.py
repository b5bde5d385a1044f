"""The recipes that come with the lab, and what a recipe may say."""

from __future__ import annotations

import pytest

from lab.bisection import request
from lab.compare.plan import MeasureOptions
from lab.core.errors import UserError
from lab.core.progress import QUIET
from lab.workloads import selection


@pytest.mark.parametrize("name", request.shipped())
def test_a_shipped_recipe_names_a_case_that_there_is(name: str) -> None:
    recipe = request.load(name)
    assert recipe.story
    _, cases = selection.select(recipe.selection)
    assert [case.name for case in cases] == [recipe.case]


def test_the_architecture_is_that_of_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[str] = []

    def resolve(self: MeasureOptions, texts: tuple[str, str], progress: object) -> None:
        ends.extend(texts)
        raise UserError("no further")

    monkeypatch.setattr(MeasureOptions, "resolve", resolve)
    asked = request.BisectRequest(workload="syscalls:getppid", arch="arm64")
    with pytest.raises(UserError, match="no further"):
        request.plan_for(asked, ("good", "bad"), ("v6.11", "v6.12%arch=arm64"), [], QUIET)
    assert ends == ["v6.11%arch=arm64", "v6.12%arch=arm64"]
