"""The place that all machines of a cluster reach: a folder, or an object store, by fsspec.

<share>/blobs/<sha256>            a file, by its content
<share>/kernels/<key>.json        which files a kernel of the store is made of
<share>/requests/<request>.json   which kernel a request led to
<share>/sources/...               which file is the source of a kernel: see `lab.cluster.share`

What is named here is whole: a file gets its name when all of it is there, and a kernel when all of its files are.
What is fetched is verified by its digest.

A kernel's source on its way to a worker that has not got it.

What travels is one tree of git, not its history: a pack with all of its files, or only with those that the first tree
shared under that name has not. The commit that a worker builds from is its own; its id is in no record.
"""

from __future__ import annotations

import hashlib
import posixpath
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import fsspec
import msgspec
from filelock import FileLock

from lab.core import paths, records
from lab.core.errors import HostFailed, UserError
from lab.core.git import Repo
from lab.core.records import Record
from lab.kernels import store, trees
from lab.kernels.build import TreeSource
from lab.kernels.store import Build

T = TypeVar("T")
_CHUNK = 4 << 20
_Write = Callable[[str], object]


class SharedKernel(Record, frozen=True, kw_only=True):
    """A kernel of the store as it is shared: the digests of its files by name, `build.json` among them."""

    schema: int = 1
    key: str
    files: dict[str, str]


class Share:
    """One such place, by its address: a path, or what fsspec knows, such as `s3://bucket/lab`."""

    def __init__(self, url: str) -> None:
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            raise UserError(f"--share {url}: {error}", hint="give a folder, or an address that fsspec knows") from error
        # A folder's is absolute, as other machines are not where this command is.
        self.url = self._root if "file" in self._fs.protocol else url

    def require_writable(self) -> None:
        """Raise `HostFailed` unless something can be written there."""
        with self._trouble(f"cannot write to {self.url}"):
            probe = self._path(f".probe.{secrets.token_hex(4)}")
            self._fs.makedirs(self._root, exist_ok=True)
            self._fs.pipe_file(probe, b"")
            self._fs.rm_file(probe)

    # ---- files

    def put(self, path: Path, digest: str) -> None:
        """Add a file, if it is not there already."""
        with self._trouble(f"cannot write to {self.url}"):
            target = self._path("blobs", digest)
            if not self._fs.exists(target):
                self._named(target, lambda partial: self._fs.put_file(str(path), partial))

    def fetch(self, digest: str) -> Path:
        """A file, by this machine's own copy, which is made once and verified."""
        own = paths.cache_dir("blobs") / digest
        with FileLock(own.with_suffix(".lock")):
            if not own.exists():
                self._get(digest, own)
            own.touch()  # here, or it could be made anew, empty, where `lab gc` takes it
        return own

    def _get(self, digest: str, target: Path) -> None:
        source = self._path("blobs", digest)
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        found = hashlib.sha256()
        try:
            with (
                self._trouble(f"cannot read {source}"),
                self._fs.open(source, "rb") as stream,
                partial.open("wb") as out,
            ):
                while chunk := stream.read(_CHUNK):
                    found.update(chunk)
                    out.write(chunk)
            if found.hexdigest() != digest:
                self._fs.rm_file(source)
                raise HostFailed(f"{source} was damaged, and is removed now", hint="repeat: it is shared anew")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    # ---- kernels

    def put_kernel(self, build: Build, request: str) -> None:
        """Add a kernel of this machine's store, and the request that led to it."""
        folder = store.folder_of(build.key)
        files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
        digests = {name: records.file_digest(path) for name, path in files.items()}
        for name, path in files.items():
            self.put(path, digests[name])
        self.save("kernels", f"{build.key}.json", SharedKernel(key=build.key, files=digests))
        self.save("requests", f"{request}.json", build.key)

    def fetch_kernel(self, request: str) -> Build | None:
        """The kernel that a request led to, into this machine's store; None when it was not shared."""
        key = self.load("requests", f"{request}.json", str)
        shared = self.load("kernels", f"{key}.json", SharedKernel) if key else None
        if shared is None:
            return None
        if (known := store.find(shared.key)) is not None:
            return known
        staging = store.staging_dir()
        try:
            for name, digest in shared.files.items():
                self._get(digest, staging / Path(name).name)
            return store.adopt(staging, shared.key)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    # ---- records

    def save(self, folder: str, name: str, value: object) -> None:
        """Write a record; whoever reads it meanwhile sees the old one or the new one."""
        with self._trouble(f"cannot write to {self.url}"):
            self._named(self._path(folder, name), lambda to: self._fs.pipe_file(to, records.encode(value)))

    def load(self, folder: str, name: str, kind: type[T]) -> T | None:
        """A record; None when there is none of that name."""
        path = self._path(folder, name)
        with self._trouble(f"cannot read {path}"):
            try:
                return msgspec.json.decode(self._fs.cat_file(path), type=kind)
            except FileNotFoundError:
                return None
            except msgspec.MsgspecError as error:
                raise HostFailed(f"{path} is not a readable record: {error}", hint="remove it") from error

    def _path(self, *parts: str) -> str:
        return posixpath.join(self._root, *parts)

    def _named(self, target: str, write: _Write) -> None:
        """Let something be written beside its name, and give it its name when it is whole."""
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
    def _trouble(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HostFailed(
                f"{what}: {error.strerror or error}", hint="every machine of the cluster has to reach the share"
            ) from error


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
