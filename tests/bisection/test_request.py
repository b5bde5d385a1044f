"""The recipes that come with the lab, and what a recipe may say."""

from pathlib import Path

import pytest

from lab.bisection import request
from lab.compare.plan import MeasureOptions
from lab.core.errors import UserError
from lab.core.progress import QUIET
from lab.workloads import selection

from ..fakes.bisection import commit, line
from ..fakes.bisector import Bisector
from ..fakes.kernel import git


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


# ---- what is refused


def test_ends_that_make_no_range(bisector: Bisector) -> None:
    commits = line(bisector.tree, [100.0] * 4)
    git(bisector.tree, "checkout", "-q", "--orphan", "other")
    other = commit(bisector.tree, "other", 1.0)
    git(bisector.tree, "checkout", "-q", "-b", "fork", commits[1])
    fork = commit(bisector.tree, "fork", 1.0)
    assert "swapped" in bisector.refused(2, "--good", commits[2], "--bad", commits[0])
    assert "empty" in bisector.refused(2, "--good", commits[2], "--bad", commits[2])
    assert "not related" in bisector.refused(2, "--good", other, "--bad", commits[2])
    assert "part after" in bisector.refused(2, "--good", fork, "--bad", commits[2])
    assert "more than the revision" in bisector.refused(2, "--good", commits[0], "--bad", f"{commits[2]}@thp=never")
    assert "is missing" in bisector.refused(2, "--good", commits[0])
    assert "both ends" in bisector.refused(2)
    assert "either" in bisector.refused(2, "--good", commits[0], "--new", commits[2])
    words = ("--good", commits[0], "--bad", commits[2], "--tree", str(bisector.tree), "-w", bisector.workload)
    assert bisector.run(*words, "--", "/no") == 2 and "cannot limit the range to /no" in bisector.said
    assert not bisector.guests.calls


def test_what_live_mode_cannot_do_is_refused(bisector: Bisector, tmp_path: Path) -> None:
    commits = line(bisector.tree, [100.0] * 3)
    ends = ("--good", commits[0], "--bad", commits[2])
    live = (*ends, "--mode", "live", "--accel", "tcg")
    assert "--seeds requires exact mode" in bisector.refused(2, *live, "--seeds", "3")
    assert "--model requires exact mode" in bisector.refused(2, *live, "--model", "tlb")
    assert "throughput" in bisector.refused(2, *live, "--metric", "thruput")
    assert "require exact mode" in bisector.refused(2, *live, "--metric", "cycles")
    assert "has no cost model" in bisector.refused(2, *ends, "--metric", "cycles")
    assert "require --mode live" in bisector.refused(2, *ends, "--accel", "tcg")
    assert "not enough CPUs" in bisector.refused(2, *live, "--cpus", "9999")
    recipe = tmp_path / "panics.toml"
    recipe.write_text('schema = 1\nworkload = "mine"\npanics = "bad"\n')
    assert "needs exact mode" in bisector.refused(2, *live, "--recipe", str(recipe))
    bisector.workload = bisector.workload.removesuffix(":large")
    assert "has 2" in bisector.refused(2, *live)
    assert not bisector.guests.calls


def test_an_architecture_that_does_not_fit_is_refused(bisector: Bisector) -> None:
    commits = line(bisector.tree, [100.0] * 3)
    ends = ("--good", commits[0], "--bad", f"{commits[2]}%arch=riscv64")
    assert "is for riscv64, and --arch asks for arm64" in bisector.refused(2, *ends, "--arch", "arm64")
    assert "vax" in bisector.refused(2, *ends, "--arch", "vax")
    series = ("--series", "deb:linux-image-6.12.*-cloud-amd64", "--arch", "arm64")
    assert "--arch is for commits" in bisector.refused(2, *series)
    assert not bisector.guests.calls


def test_recipes_with_mistakes_are_refused(bisector: Bisector, tmp_path: Path) -> None:
    line(bisector.tree, [100.0] * 3)
    recipe = tmp_path / "mine.toml"
    recipe.write_text('schema = 1\nworkload = "mine"\n\nthresold = 0.1\n')
    said = bisector.refused(2, "--recipe", str(recipe))
    assert f"{recipe}:4: unknown key 'thresold'; did you mean threshold?" in said
    recipe.write_text('schema = 1\nworkload = "mine"\nseeds = 6\nseed = 6\n')
    assert f"{recipe}:4: unknown key 'seed'; did you mean seeds?" in bisector.refused(2, "--recipe", str(recipe))
    recipe.write_text('schema = 1\nworkload = "mine"\ngood = "a"\nnew = "b"\n')
    assert "not both" in bisector.refused(2, "--recipe", str(recipe))
    recipe.write_text("schema = \n")
    assert "not valid TOML" in bisector.refused(2, "--recipe", str(recipe))
    assert "did you mean alloc-burst" in bisector.refused(2, "--recipe", "alloc-brust")
