"""The share of a cluster: a folder or an object store that all machines reach, by fsspec.

<share>/blobs/<sha256>            a file
<share>/kernels/<key>.json        the files of a kernel of the store
<share>/requests/<request>.json   the key of the kernel that a request led to
<share>/sources/...               the packs of sources

A file gets its name when all of it is there, and a kernel when all of its files are. Each fetched file is verified by
its digest. A source is one git tree, without its history: a pack of all of its files, or only of the files that differ
from the first tree that was shared under that name. A worker makes a commit of its own of it to build from; the id of
that commit is in no record.
"""

from __future__ import annotations

import hashlib
import posixpath
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import fsspec
import msgspec
from filelock import FileLock

from lab.core import paths, process, records
from lab.core.errors import HostFailed, UserError
from lab.core.git import Repo
from lab.core.records import Record
from lab.kernels import store, trees
from lab.kernels.build import TreeSource
from lab.kernels.store import Build

T = TypeVar("T")
_CHUNK = 4 << 20


class SharedKernel(Record, frozen=True, kw_only=True):
    """A shared kernel: the digests of its files by name, `build.json` among them."""

    schema: int = 1
    key: str
    files: dict[str, str]


class SharedSource(Record, frozen=True, kw_only=True):
    """A shared source: the digest of its pack, and the tree that the pack builds on."""

    schema: int = 1
    pack: str
    base: str | None


class MissingTree(Exception):
    """Neither a machine nor the share has a git tree; the argument is its id."""


class Share:
    """A share by its address: a path, or a URL that fsspec knows, such as `s3://bucket/lab`."""

    def __init__(self, url: str) -> None:
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            raise UserError(f"--share {url}: {error}", hint="give a folder, or an address that fsspec knows") from error
        # The path of a folder has to be absolute, because workers run in other folders.
        self.url = self._root if "file" in self._fs.protocol else url

    def require_writable(self) -> None:
        """Raise `HostFailed` unless files can be written."""
        with self._translated_errors(f"cannot write to {self.url}"):
            probe = self._path(f".probe.{secrets.token_hex(4)}")
            self._fs.makedirs(self._root, exist_ok=True)
            self._fs.pipe_file(probe, b"")
            self._fs.rm_file(probe)

    # ---- files

    def put(self, path: Path, digest: str) -> None:
        """Add a file, unless it is there."""
        with self._translated_errors(f"cannot write to {self.url}"):
            target = self._path("blobs", digest)
            if not self._fs.exists(target):
                self._write(target, lambda partial: self._fs.put_file(str(path), partial))

    def fetch(self, digest: str) -> Path:
        """This machine's copy of a file, made at the first call and verified."""
        own = paths.cache_dir("blobs") / digest
        with FileLock(own.with_suffix(".lock")):
            if not own.exists():
                self._get(digest, own)
            own.touch()  # under the lock; later it could create an empty file in place of a file that `lab gc` removed
        return own

    def _get(self, digest: str, target: Path) -> None:
        source = self._path("blobs", digest)
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        sha256 = hashlib.sha256()
        try:
            with (
                self._translated_errors(f"cannot read {source}"),
                self._fs.open(source, "rb") as stream,
                partial.open("wb") as out,
            ):
                while chunk := stream.read(_CHUNK):
                    sha256.update(chunk)
                    out.write(chunk)
            if sha256.hexdigest() != digest:
                self._fs.rm_file(source)
                raise HostFailed(f"{source} was damaged, and is now deleted", hint="repeat: it is shared again")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    # ---- kernels

    def put_kernel(self, build: Build, request: str) -> None:
        """Add a kernel of this machine's store, and the request that led to it."""
        digests = {}
        for path in sorted(store.folder_of(build.key).iterdir()):
            if path.is_file():
                digests[path.name] = records.file_digest(path)
                self.put(path, digests[path.name])
        self.save("kernels", f"{build.key}.json", SharedKernel(key=build.key, files=digests))
        self.save("requests", f"{request}.json", build.key)

    def fetch_kernel(self, request: str) -> Build | None:
        """Copy the kernel that a request led to into this machine's store; None if it is not shared."""
        key = self.load("requests", f"{request}.json", str)
        shared = self.load("kernels", f"{key}.json", SharedKernel) if key else None
        if shared is None:
            return None
        if (known := store.find(shared.key)) is not None:
            return known
        with store.staging() as staging:
            for name, digest in shared.files.items():
                self._get(digest, staging / Path(name).name)
            return store.adopt(staging, shared.key)

    # ---- records

    def save(self, folder: str, name: str, value: object) -> None:
        """Write a record. Readers see the old one or the new one."""
        with self._translated_errors(f"cannot write to {self.url}"):
            self._write(self._path(folder, name), lambda to: self._fs.pipe_file(to, records.encode(value)))

    def load(self, folder: str, name: str, kind: type[T]) -> T | None:
        """Read a record; None if it does not exist."""
        path = self._path(folder, name)
        with self._translated_errors(f"cannot read {path}"):
            try:
                return records.decode(self._fs.cat_file(path), kind)
            except FileNotFoundError:
                return None
            except records.DAMAGED as error:
                raise HostFailed(f"{path} is not a readable record: {error}", hint="remove it") from error

    def _path(self, *parts: str) -> str:
        return posixpath.join(self._root, *parts)

    def _write(self, target: str, write: Callable[[str], object]) -> None:
        """Write to a temporary name, and rename to the target at the end."""
        folder, name = posixpath.split(target)
        partial = posixpath.join(folder, f".{name}.{secrets.token_hex(4)}")
        self._fs.makedirs(folder, exist_ok=True)
        try:
            write(partial)
            self._fs.mv(partial, target)
        except BaseException:
            if self._fs.exists(partial):
                self._fs.rm_file(partial)
            raise

    @contextmanager
    def _translated_errors(self, message: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HostFailed(
                f"{message}: {error.strerror or error}", hint="every machine of the cluster has to reach the share"
            ) from error


# ---- sources


def share_source(share: Share, source: TreeSource, tree_id: str) -> None:
    """Put a git tree into the share, unless it is there: the source's own tree, or a tree that its pack builds on."""
    if share.load("sources", f"{tree_id}.json", SharedSource) is not None:
        return
    repo = trees.open_tree(source.tree).repo
    below = repo.tree_id(source.commit)
    first = share.load("sources", f"first-of-{source.tree}.json", str)
    base: str | None = None
    if tree_id == source.tree_id != below:
        base = below  # the tree below patches and uncommitted work
    elif first not in (None, tree_id) and repo.has(first):
        base = first
    with process.scratch("pack-", paths.cache_dir()) as folder:
        pack = repo.pack(tree_id, folder, without=base)
        digest = records.file_digest(pack)
        share.put(pack, digest)
    share.save("sources", f"{tree_id}.json", SharedSource(pack=digest, base=base))
    if base is None:
        share.save("sources", f"first-of-{source.tree}.json", tree_id)


def localize_source(share: Share, source: TreeSource) -> TreeSource:
    """A source that this machine can build, from its own tree of that name and the share. Raises `MissingTree`."""
    repo = trees.open_tree(source.tree).repo if source.tree == trees.DEFAULT else trees.repository(source.tree)
    with FileLock(repo.git_dir / "lab-shared.lock"):
        if repo.commit(source.build_commit) is not None:
            return source
        _receive(share, source.tree_id, repo)
        commit = repo.commit_tree(source.tree_id, [], source.describe, seconds=0)
        if repo.commit("HEAD") is None:
            repo.git("update-ref", "--no-deref", "HEAD", commit)
    return msgspec.structs.replace(source, build_commit=commit)


def _receive(share: Share, tree_id: str, repo: Repo) -> None:
    if repo.has(tree_id):
        return
    shared = share.load("sources", f"{tree_id}.json", SharedSource)
    if shared is None:
        raise MissingTree(tree_id)
    if shared.base is not None:
        _receive(share, shared.base, repo)
    pack = share.fetch(shared.pack)
    try:
        repo.add_pack(pack)
    finally:
        pack.unlink(missing_ok=True)
