"""Upstream ids found in the messages of the commits that carry them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.core.git import Repo
from lab.kernels import revisions

from ..fakes.kernel import UPSTREAM, commit_all, make_kernel

OTHER = "efa7df3" + "0" * 33


@pytest.mark.parametrize(
    "line",
    [
        f"commit {UPSTREAM} upstream.",
        f"    commit {UPSTREAM} upstream",
        f"[ Upstream commit {UPSTREAM} ]",
        f"(cherry picked from commit {UPSTREAM})",
    ],
)
def test_forms(line: str) -> None:
    assert revisions.upstream_of(f"subject\n\n{line}\n\ntext") == [(UPSTREAM, line.strip())]


@pytest.mark.parametrize(
    "line",
    [f"This reverts commit {UPSTREAM}.", f"see commit {UPSTREAM} upstream.", "commit efa7df3 upstream."],
)
def test_not_forms(line: str) -> None:
    assert revisions.upstream_of(f"subject\n\n{line}\n") == []


def test_the_newest_of_several_is_taken(tmp_path: Path) -> None:
    top = make_kernel(tmp_path / "linux")
    again = commit_all(top, f"mm: align, again\n\n(cherry picked from commit {UPSTREAM})")
    commit_all(top, f'Revert "mm: align"\n\nThis reverts commit {UPSTREAM}.')
    found = revisions.find(Repo(top / ".git"), UPSTREAM[:12], head="HEAD")
    assert found is not None and found.commit == again


def test_an_ambiguous_prefix_lists_what_it_may_mean(tmp_path: Path) -> None:
    top = make_kernel(tmp_path / "linux")
    commit_all(top, f"other\n\n[ Upstream commit {OTHER} ]")
    with pytest.raises(UserError) as caught:
        revisions.find(Repo(top / ".git"), "efa7df3", head="HEAD")
    assert UPSTREAM in caught.value.message and OTHER in caught.value.message
    assert revisions.find(Repo(top / ".git"), UPSTREAM[:8], head="HEAD") is not None
