"""Kernel trees, each a bare repository of the lab's own: the default tree, clones, and checkouts of the user's.

A checkout is never written to. Revisions are resolved in the user's repository, objects are read from its store
(by git's alternates), and new objects are written into the lab's repository.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.core import git, paths, records
from lab.core.errors import HostFailed, UserError, suggestion
from lab.core.git import Repo
from lab.core.locks import make_once
from lab.core.process import CommandFailed
from lab.core.progress import QUIET, Progress
from lab.kernels import debs, default_tree

DEFAULT = "default"
STABLE = "https://git.kernel.org/pub/scm/linux/kernel/git/stable/linux.git"
"""The repository that has the source of every release."""

_RECORD = "tree.json"
SNAPSHOTS = "snapshots"
"""The object store of uncommitted work in the repository of a local tree; see `lab.kernels.revisions.snapshot`."""
_AT_THE_TOP = frozenset({"Kbuild", "Kconfig", "MAINTAINERS"})


class TreeRecord(records.Record, frozen=True, kw_only=True):
    """`tree.json` in a tree's repository."""

    schema: Literal[1] = 1
    name: str
    kind: Literal["default", "source", "clone", "local", "shared"]
    origin: str
    package: str | None = None
    version: str | None = None
    git_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """An open kernel tree. Revisions are resolved in `source`; objects are read from `repo` and written there."""

    name: str
    repo: Repo
    origin: str
    head: str
    source: Repo
    record: TreeRecord


def trees_dir() -> Path:
    return paths.data_dir("trees")


def open_tree(choice: str | None = None, *, progress: Progress = QUIET) -> Tree:
    """The tree of a name or of a checkout's path; without either, `current()`. The default tree is imported."""
    choice = current() if choice is None else choice
    if choice == DEFAULT:
        return import_default(progress)
    if _is_name(choice) and _folder(choice).is_dir():
        return _load(_folder(choice))
    path = paths.expanded(choice)
    if path.is_dir():
        return open_local(path)
    raise UserError(
        f"there is no kernel tree called {choice!r}, nor a folder of that name",
        hint=suggestion(choice, [*names(), DEFAULT]) or "`lab tree list` shows them, `lab tree add` adds one",
    )


def current() -> str:
    """The kernel checkout that the working folder is in, by its path; outside of one, the default tree's name."""
    try:
        top = git.rev_parse(Path.cwd(), "--show-toplevel")
    except CommandFailed as error:
        if "safe.directory" in error.stderr:  # as in a container, whose checkout is its host's
            raise UserError(
                f"git does not read {Path.cwd()}: it belongs to another user",
                hint=f"git config --global --add safe.directory {Path.cwd()}",
            ) from error
        return DEFAULT
    return str(top) if all((top / name).exists() for name in _AT_THE_TOP) else DEFAULT


def names() -> list[str]:
    """The names of all trees."""
    return [path.parent.stem for path in paths.entries(trees_dir(), f"[!.]*.git/{_RECORD}")]


def list_trees() -> list[TreeRecord]:
    return [tree for _, tree in records.load_each([_folder(name) / _RECORD for name in names()], TreeRecord)]


def import_default(progress: Progress = QUIET) -> Tree:
    """The default tree, made from the distributor's source package the first time (about a minute)."""
    folder = _folder(DEFAULT)
    make_once(folder, lambda partial: _make_default(partial, progress), progress=progress)
    return _load(folder)


def _make_default(partial: Path, progress: Progress) -> None:
    downloads = partial / "download"
    downloads.mkdir()
    source = default_tree.source(downloads, progress)
    default_tree.build(partial, source, default_tree.story(), progress)
    shutil.rmtree(downloads)
    package = default_tree.PACKAGE
    record = TreeRecord(name=DEFAULT, kind="default", origin=package, package=package, version=source.version)
    records.save(partial / _RECORD, record)


def open_source(body: str, progress: Progress = QUIET) -> Tree:
    """The tree of a source package, given as `[SUITE/]VERSION`: one commit, imported the first time."""
    lists, offer = debs.source_of(body, progress)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{offer.package}_{offer.version}")

    def make(partial: Path) -> None:
        downloads = partial / "download"
        downloads.mkdir()
        progress.log_once(f"downloading {offer.package} {offer.version}")
        lists.download(f"{offer.package}={offer.version}", downloads, hint="check the network")
        archive = next(downloads.glob("usr/src/*.tar.*"))
        default_tree.build_single(partial, archive, offer.package, offer.version, progress)
        shutil.rmtree(downloads)
        record = TreeRecord(
            name=name, kind="source", origin=offer.package, package=offer.package, version=offer.version
        )
        records.save(partial / _RECORD, record)

    make_once(_folder(name), make, progress=progress)
    return _load(_folder(name))


def add(origin: str, name: str | None = None, *, progress: Progress = QUIET) -> Tree:
    """Add a tree: clone an address (commits now, file contents when needed), or refer to a local checkout."""
    remote = _is_address(origin)
    if not remote and not paths.expanded(origin).is_dir():
        raise UserError(f"{origin}: no such folder, and not the address of a repository")
    name = name or _name_for(origin)
    if not _is_name(name):
        raise UserError(f"{name!r} cannot be a tree's name", hint="use letters, digits, and . _ - between them")
    if name == DEFAULT or _folder(name).exists():
        raise _taken(name)
    if not remote:
        return _make_local(paths.expanded(origin), name)
    return _make_clone(origin, name, progress)


def _taken(name: str) -> UserError:
    return UserError(f"there is a tree called {name} already", hint="choose another name with --name")


def repository(name: str) -> Repo:
    """The repository of a tree on a cluster's worker, made without commits if there is none.

    `lab.cluster.share` fills it.
    """

    def make(partial: Path) -> None:
        git.init_bare(partial)
        records.save(partial / _RECORD, TreeRecord(name=name, kind="shared", origin="given by a cluster"))

    make_once(_folder(name), make)
    return Repo(_folder(name))


def _make_clone(url: str, name: str, progress: Progress) -> Tree:
    def make(partial: Path) -> None:
        progress.log_once(f"cloning {url} (a kernel's history takes a while)")
        try:
            repo = git.clone_blobless(url, partial)
        except CommandFailed as error:
            raise HostFailed(
                f"cannot clone {url}: {error.message}", hint="check the address and the network; then repeat"
            ) from error
        _require_kernel(repo, url)
        repo.git("config", "gc.auto", "0")
        records.save(partial / _RECORD, TreeRecord(name=name, kind="clone", origin=url))

    if not make_once(_folder(name), make, progress=progress):
        raise _taken(name)
    return _load(_folder(name))


def open_local(path: Path) -> Tree:
    """The tree that stands for a checkout or bare repository of the user's, added silently if it is new."""
    origin = _origin_of(path)
    for record in list_trees():
        if record.kind == "local" and record.origin == str(origin):
            return _load(_folder(record.name))
    tag = hashlib.sha256(str(origin).encode()).hexdigest()[:8]
    return _make_local(origin, f"{_name_for(str(origin))}-{tag}")


def _origin_of(path: Path) -> Path:
    """The top folder of a checkout, or the bare repository itself."""
    try:
        return git.rev_parse(path, "--show-toplevel")
    except CommandFailed:
        return path.resolve()


def _make_local(path: Path, name: str) -> Tree:
    origin = _origin_of(path)
    try:
        git_dir = git.rev_parse(origin, "--absolute-git-dir")
    except CommandFailed as error:
        reason = "" if "not a git repository" in error.stderr else f" that can be read: {error.message}"
        raise UserError(f"{path} is not a git repository{reason}") from error
    source = Repo(git_dir)
    _require_kernel(source, str(path))

    def make(partial: Path) -> None:
        repo = git.init_bare(partial)
        (partial / "objects" / "info").mkdir(exist_ok=True)
        (partial / SNAPSHOTS).mkdir()
        (partial / "objects" / "info" / "alternates").write_text(f"../{SNAPSHOTS}\n{source.path_of('objects')}\n")
        repo.git("config", "gc.auto", "0")
        _copy_promisors(source, repo)
        record = TreeRecord(name=name, kind="local", origin=str(origin), git_dir=str(git_dir))
        records.save(partial / _RECORD, record)

    make_once(_folder(name), make)
    return _load(_folder(name))


def _copy_promisors(source: Repo, repo: Repo) -> None:
    """Configure the remotes from which the user's repository, if it is a partial clone, fetches missing objects."""
    try:
        lines = source.git("config", "--get-regexp", r"^remote\..*\.promisor$").splitlines()
    except CommandFailed:
        return
    for line in lines:
        remote = line.split()[0].removeprefix("remote.").removesuffix(".promisor")
        repo.git("config", "core.repositoryFormatVersion", "1")
        repo.git("config", "extensions.partialClone", remote)
        repo.git("config", f"remote.{remote}.promisor", "true")
        repo.git("config", f"remote.{remote}.url", source.git("config", f"remote.{remote}.url"))


def _load(folder: Path) -> Tree:
    record = records.load(folder / _RECORD, TreeRecord)
    repo = Repo(folder)
    source = Repo(Path(record.git_dir)) if record.git_dir else repo
    if not source.git_dir.is_dir():
        raise UserError(
            f"the tree {record.name} stands for {record.origin}, which is gone",
            hint=f"bring it back, or delete {folder}",
        )
    _copy_shallow(source, repo)
    head = source.commit("HEAD")
    if head is None:
        raise UserError(f"{record.origin} has no commit yet")
    return Tree(name=record.name, repo=repo, origin=record.origin, head=head, source=source, record=record)


def _copy_shallow(source: Repo, repo: Repo) -> None:
    """Cut off the lab's history where the user's is cut off, or git would miss the parents."""
    if source == repo:
        return
    cut = source.path_of("shallow")
    if cut.is_file():
        records.write_atomic(repo.git_dir / "shallow", cut.read_bytes())
    else:
        (repo.git_dir / "shallow").unlink(missing_ok=True)


def _require_kernel(repo: Repo, origin: str) -> None:
    head = repo.commit("HEAD")
    if head is None:
        raise UserError(f"{origin} has no commit yet")
    if missing := sorted(_AT_THE_TOP - repo.top_level(head)):
        raise UserError(f"{origin} is not a Linux kernel tree: it has no {missing[0]} at its top")


def _folder(name: str) -> Path:
    return trees_dir() / f"{name}.git"


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text) is not None


def _is_address(text: str) -> bool:
    """An URL, or scp's `host:path`."""
    return "://" in text or (re.match(r"[\w.@-]+:[^:]", text) is not None and not Path(text).exists())


def _name_for(origin: str) -> str:
    last = re.split(r"[/:]", origin.rstrip("/"))[-1]
    if not _is_address(origin):
        last = paths.expanded(origin).resolve().name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last.removesuffix(".git")).strip("-._") or "linux"
