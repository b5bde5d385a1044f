"""Uncommitted work, by content: a checkout as it is on disk, as a git tree in the lab's own repository.

The user's `.git` is only read. git is pointed at the lab's repository, which borrows the user's objects,
with a copy of the user's index, so that files that did not change are not read again.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from lab.core.errors import UserError
from lab.core.git import Repo
from lab.core.process import CommandFailed
from lab.trees import SNAPSHOTS, Tree, open_local


def open_checkout(path: Path) -> Tree:
    """The tree that stands for a checkout; a folder without one, or a bare repository, is refused."""
    if not path.is_dir():
        raise UserError(f"{path}: no such folder")
    tree = open_local(path)
    if not (Path(tree.origin) / ".git").exists():
        raise UserError(f"{path} is a bare repository: it has no working tree", hint="give a revision with --tree")
    return tree


def snapshot(tree: Tree) -> str:
    """The id of the tree of everything in a checkout that git does not ignore, committed or not."""
    top = Path(tree.origin)
    with tempfile.TemporaryDirectory(prefix="lab-worktree-") as name:
        folder = Path(name)
        env = {"GIT_INDEX_FILE": str(folder / "index"), "GIT_WORK_TREE": str(top)}
        if not _copy_index(tree.source, folder / "index"):
            tree.repo.git("read-tree", "--end-of-options", tree.head, env=env)
        excludes = folder / "exclude"
        excludes.write_bytes(_excludes(tree.source))
        config = ["-c", f"core.excludesFile={excludes}", "-c", f"core.fileMode={_file_mode(tree.source)}"]
        # Renewing the stat data also gets at files that the user told git to take for unchanged.
        with suppress(CommandFailed):  # which says only that something did change
            tree.repo.git("-C", top, *config, "update-index", "-q", "--really-refresh", env=env)
        # Into a store that does not borrow from the user's: git would renew the time of an object there
        # instead of writing one of the same content, and the user's `.git` would not be as it was.
        env |= {"GIT_OBJECT_DIRECTORY": str(tree.repo.git_dir / SNAPSHOTS)}
        tree.repo.git("-C", top, *config, "add", "--all", "--", ".", env=env)
        return tree.repo.git("write-tree", "--missing-ok", env=env)


def _copy_index(source: Repo, to: Path) -> bool:
    """Copy the user's index; False when there is none of one piece.

    With its time: git takes an entry for racy, and compares contents, by the index file's own time.
    """
    index = Path(source.git("rev-parse", "--path-format=absolute", "--git-path", "index"))
    if not index.is_file() or any(index.parent.glob("sharedindex.*")):
        return False
    shutil.copy2(index, to)
    return True


def _excludes(source: Repo) -> bytes:
    """The ignore patterns that the user's repository and settings add to the `.gitignore` files."""
    own = Path(source.git("rev-parse", "--path-format=absolute", "--git-path", "info/exclude"))
    try:
        general = Path(source.git("config", "--type=path", "core.excludesFile"))
    except CommandFailed:
        general = Path("~/.config/git/ignore").expanduser()
    return b"\n".join(path.read_bytes() for path in (general, own) if path.is_file())


def _file_mode(source: Repo) -> str:
    try:
        return source.git("config", "--type=bool", "core.fileMode")
    except CommandFailed:
        return "true"
