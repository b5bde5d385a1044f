"""A kernel's source on its way to a worker that has not got it.

What travels is one tree of git, not its history: a pack with all of its files, or only with those that the first tree
shared under that name has not. The commit that a worker builds from is its own; its id is in no record.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from filelock import FileLock

from lab.cluster.share import Share
from lab.core import paths, records
from lab.core.git import Repo
from lab.core.records import Record
from lab.kernels import trees
from lab.kernels.resolve import TreeSource

_FOLDER = "sources"


class SharedSource(Record, frozen=True, kw_only=True):
    """How a source is shared: the digest of its pack, and the tree that has to be there before it."""

    schema: int = 1
    pack: str
    base: str | None


class Missing(Exception):
    """A machine has not got a tree of git, by its id, and the share has neither."""


def offer(share: Share, source: TreeSource, tree_id: str) -> None:
    """Put a tree of git into the share, if it is not there already: a source's own, or what that is based on."""
    if share.load(_FOLDER, _name(tree_id), SharedSource) is not None:
        return
    repo = trees.open_tree(source.tree).repo
    first = share.load(_FOLDER, _first(source.tree), str)
    base = _base(repo, source, tree_id, first)
    with tempfile.TemporaryDirectory(prefix="pack-", dir=paths.cache_dir()) as folder:
        pack = repo.pack(tree_id, Path(folder), without=base)
        digest = records.file_digest(pack)
        share.put(pack, digest)
    share.save(_FOLDER, _name(tree_id), SharedSource(pack=digest, base=base))
    if base is None:
        share.save(_FOLDER, _first(source.tree), tree_id)


def _base(repo: Repo, source: TreeSource, tree_id: str, first: str | None) -> str | None:
    """What need not be packed: what lies below patches and uncommitted work, else the first tree that was shared."""
    below = repo.tree_id(source.commit)
    if tree_id == source.tree_id != below:
        return below
    return first if first not in (None, tree_id) and repo.has(first) else None


def at_home(share: Share, source: TreeSource) -> TreeSource:
    """A source as this machine can build it: from its own tree of that name, filled up from the share.

    Raises `Missing`.
    """
    repo = _repository(source.tree)
    with FileLock(repo.git_dir / "lab-shared.lock"):
        if repo.commit(source.build_commit) is not None:
            return source
        _receive(share, source.tree_id, repo)
        commit = repo.commit_tree(source.tree_id, [], source.describe, seconds=0)
        if repo.commit("HEAD") is None:
            repo.git("update-ref", "--no-deref", "HEAD", commit)
    return msgspec.structs.replace(source, build_commit=commit)


def _repository(tree: str) -> Repo:
    return trees.open_tree(tree).repo if tree == trees.DEFAULT else trees.repository(tree)


def _receive(share: Share, tree_id: str, repo: Repo) -> None:
    if repo.has(tree_id):
        return
    shared = share.load(_FOLDER, _name(tree_id), SharedSource)
    if shared is None:
        raise Missing(tree_id)
    if shared.base is not None:
        _receive(share, shared.base, repo)
    own = share.fetch(shared.pack)
    try:
        repo.add_pack(own)
    finally:
        own.unlink(missing_ok=True)


def _name(tree_id: str) -> str:
    return f"{tree_id}.json"


def _first(tree: str) -> str:
    return f"first-of-{tree}.json"
