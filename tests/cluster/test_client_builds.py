"""Kernels built by the workers of a cluster, which have trees and stores of their own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.cli import main
from lab.cluster import share, worker

from ..fakes.build import commit_change, make_buildable, own_folders
from ..fakes.cluster import TOP, Cluster, running
from ..fakes.kernel import commit_all, git

Build = Callable[..., tuple[int, dict[str, dict[str, str]], str]]


def add_tree(top: Path, home: Path) -> None:
    """Give a machine the tree, under the name that it has everywhere."""
    own = {"XDG_CACHE_HOME": str(home / "cache"), "XDG_DATA_HOME": str(home / "data"), "PYTHONPATH": str(TOP)}
    command = [sys.executable, "-m", "lab", "tree", "add", str(top), "--name", "mine"]
    subprocess.run(command, env={**os.environ, **own}, cwd=TOP, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_buildable(tmp_path / "linux")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path / "cluster", 2, FAKE_MADE=str(tmp_path / "made")) as made:
        yield made


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Build:
    """`lab kernel build` on a machine of a name: its status, the digests of its files by spec, what it said."""

    def run(top: Path, machine: str, *words: str) -> tuple[int, dict[str, dict[str, str]], str]:
        own_folders(monkeypatch, tmp_path / machine)
        if not (tmp_path / machine).exists():
            add_tree(top, tmp_path / machine)
        status = main.run(["kernel", "build", "--tree", "mine", "--json", *words])
        captured = capsys.readouterr()
        rows = json.loads(captured.out)["kernels"] if captured.out else []
        return status, {row["spec"]: row["sha256"] for row in rows}, captured.err

    return run


@pytest.mark.long
def test_kernels_of_workers_are_those_of_this_machine(
    tree: Path, cluster: Cluster, build: Build, tmp_path: Path
) -> None:
    commits = [commit_change(tree, number) for number in (5, 6)]
    (tree / "mm/mmap.c").write_text("int place(void) { return\n")
    broken = commit_all(tree, "broken")
    for name in ("worker-1", "worker-2"):
        add_tree(tree, cluster.folder / name)
    status, alone, said = build(tree, "alone", *commits)
    assert status == 0, said
    assert not (tmp_path / "made").exists()
    status, together, said = build(tree, "asks", *commits, *cluster.options)
    assert status == 0 and together == alone, said
    assert len(together) == 2 and " here" not in said
    assert len((tmp_path / "made").read_text().splitlines()) >= 3, "the workers compiled them"
    assert records(tmp_path / "asks") == records(tmp_path / "alone")

    (tmp_path / "made").unlink()
    status, third, said = build(tree, "third", *commits, *cluster.options)
    assert status == 0 and third == alone and not (tmp_path / "made").exists(), "what is shared is not built again"

    status, _, said = build(tree, "asks", broken, *cluster.options)
    assert status == 3 and "does not build with gcc" in said and "error" in said
    log = re.search(r"(/\S+build-cluster-\S+\.log)", said)
    assert log and "error" in Path(log[1]).read_text(), "its log is here"


@pytest.mark.long
def test_sources_reach_a_worker_that_has_none(tree: Path, cluster: Cluster, build: Build, tmp_path: Path) -> None:
    *commits, patched = [commit_change(tree, number) for number in (5, 6, 7)]
    patch = tmp_path / "faster.patch"
    patch.write_text(git(tree, "diff", commits[1], patched) + "\n")
    specs = [*commits, f"{commits[1]}+{patch}"]
    status, alone, said = build(tree, "alone", *specs)
    assert status == 0, said
    for spec in specs:  # one by one, so that each finds what was shared before
        status, together, said = build(tree, "asks", spec, *cluster.options)
        assert status == 0 and together[spec] == alone[spec] and " here" not in said, said
    assert records(tmp_path / "asks") == records(tmp_path / "alone")
    shared = [json.loads(path.read_text()) for path in (cluster.folder / "share/sources").glob("?" * 40 + ".json")]
    first, second = (git(tree, "rev-parse", f"{commit}^{{tree}}") for commit in commits)
    packs = {one["base"]: (cluster.folder / "share/blobs" / one["pack"]).stat().st_size for one in shared}
    assert packs.keys() == {None, first, second}, "the first is whole, the others are what differs"
    assert max(packs[first], packs[second]) < packs[None]


@pytest.mark.long
def test_a_source_that_cannot_be_shared_is_built_here(
    tree: Path, cluster: Cluster, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "share_source", lambda *_: None)
    commit = commit_change(tree, 5)
    status, built, said = build(tree, "asks", commit, *cluster.options)
    assert status == 0 and built[commit]["bzImage"], said
    assert f"its sources do not reach the workers by {cluster.folder}/share; building {commit} here" in said


def test_a_workers_own_failure_is_told_in_a_line() -> None:
    with pytest.raises(worker.WorkerTrouble, match="AttributeError: 'str' object has no attribute 'share'"):
        worker.perform(worker.pack(worker.build_kernel, "no task"))


def records(home: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in home.rglob("kernels/*/build.json")}
