"""From what the user typed to exactly one kernel: every name looked up, every patch applied.

`resolve` does the whole of it. Its result says in full ids and hashes what will be built or booted, so two
equal results are the same kernel.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from lab import backports, debs, kernelfile, patchsets, specs, trees, worktree
from lab.core.errors import UserError
from lab.core.git import PatchFailed
from lab.core.locks import Progress, quiet
from lab.core.records import Record
from lab.debs import DebSource
from lab.trees import Tree

# The date of commits that the lab makes of patched trees: any, as long as it never changes.
_PATCHED_AT = 1704067200


class TreeSource(Record, frozen=True, kw_only=True, tag="tree"):
    """Source from a git tree: the base commit, and the tree id after patches or uncommitted work.

    `build_commit` has `tree_id` as its tree. It is `commit` itself where nothing was added.
    """

    tree: str
    commit: str
    tree_id: str
    build_commit: str
    subject: str
    describe: str
    patches: tuple[str, ...] = ()


class FileSource(Record, frozen=True, kw_only=True, tag="file"):
    """A kernel that is a file, with its modules' folder when one was found."""

    path: str
    sha256: str
    release: str
    modules: str | None = None


Source = TreeSource | DebSource | FileSource


class KernelSpec(Record, frozen=True, kw_only=True):
    """One kernel and what is set around it. `note` tells of a choice that the lab made for the user."""

    text: str
    source: Source
    kconfig: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    note: str | None = None


def resolve(text: str, tree: Tree | str | None = None, *, progress: Progress = quiet) -> KernelSpec:
    """The kernel that a spec means. Without a tree, revisions are those of the default tree."""
    parsed = specs.parse(text)
    source, note = _source(parsed, tree, progress)
    return KernelSpec(
        text=text, source=source, kconfig=parsed.kconfig, settings=parsed.settings, note=note
    )  # fmt: skip


def _source(parsed: specs.ParsedSpec, tree: Tree | str | None, progress: Progress) -> tuple[Source, str | None]:
    if parsed.kind == "deb":
        return debs.resolve_deb(parsed.body), None
    if parsed.kind == "file":
        return _file_source(Path(parsed.body).expanduser()), None
    patches = [path for name in parsed.patches for path in _patch_files(name)]
    if parsed.kind == "worktree":
        return _worktree_source(Path(parsed.body).expanduser(), patches), None
    used = tree if isinstance(tree, Tree) else trees.open_tree(tree, progress=progress)
    commit, note = resolve_commit(used, parsed.body)
    subject, describe = used.source.subject(commit), used.source.describe(commit)
    return _tree_source(used, commit, used.source.tree_id(commit), patches, subject, describe), note


def _file_source(path: Path) -> FileSource:
    found = kernelfile.inspect(path)
    modules = kernelfile.modules_of(path, found.release)
    return FileSource(
        path=str(path.resolve()),
        sha256=found.sha256,
        release=found.release,
        modules=str(modules) if modules else None,
    )


def _worktree_source(path: Path, patches: list[Path]) -> TreeSource:
    tree = worktree.open_checkout(path)
    tree_id = worktree.snapshot(tree)
    clean = tree_id == tree.source.tree_id(tree.head)
    subject, describe = tree.source.subject(tree.head), tree.source.describe(tree.head)
    if not clean:
        subject, describe = f"uncommitted work on {subject}", f"{describe}-dirty"
    return _tree_source(tree, tree.head, tree_id, patches, subject, describe)


def _tree_source(tree: Tree, commit: str, tree_id: str, patches: list[Path], subject: str, describe: str) -> TreeSource:
    """Apply the patches, and see that there is a commit to build."""
    if patches:
        try:
            tree_id = tree.repo.patched_tree(tree_id, patches)
        except PatchFailed as error:
            raise UserError(
                f"{error.patch.name} does not apply to {describe}: {error.where}",
                hint="rebase the patch onto that revision; the lab applies nothing that fits only roughly",
            ) from error
    build = commit
    if tree_id != tree.source.tree_id(commit):
        names = "".join(f"Patch: {patch.name}\n" for patch in patches)
        build = tree.repo.commit_tree(tree_id, [commit], f"{subject}\n\n{names}", seconds=_PATCHED_AT)
    return TreeSource(
        tree=tree.name,
        commit=commit,
        tree_id=tree_id,
        build_commit=build,
        subject=subject,
        describe=describe,
        patches=tuple(patch.name for patch in patches),
    )


def _patch_files(name: str) -> list[Path]:
    """A file, or all patches of a set that comes with the lab."""
    path = Path(name).expanduser()
    if path.is_file():
        return [path]
    if name in patchsets.names():
        return patchsets.patches(name)
    raise _unknown_patch(name)


def _unknown_patch(name: str) -> UserError:
    close = patchsets.close_to(name)
    listed = f"a patch is a file called *.patch, or one of the lab's own: {', '.join(patchsets.names())}"
    return UserError(f"no such patch: {name!r}", hint=f"did you mean {close}?" if close else listed)


def resolve_commit(tree: Tree, revision: str) -> tuple[str, str | None]:
    """The commit that a revision names in a tree, and a note when it is a backport of what was asked for."""
    if commit := tree.source.commit(revision):
        return commit, None
    hexadecimal = re.fullmatch(r"([0-9A-Fa-f]{4,40})([\^~@].*)?", revision)
    if hexadecimal is None:
        raise _unknown_revision(tree, revision)
    prefix, suffix = hexadecimal[1].lower(), hexadecimal[2] or ""
    candidates = tree.source.candidates(prefix)
    if len(candidates) > 1:
        raise UserError(
            f"{prefix} is ambiguous in tree {tree.name!r}: {_listed(tree, candidates)}",
            hint="give more digits of the id",
        )
    if candidates or len(prefix) < 7:
        raise _unknown_revision(tree, revision)
    return _backport(tree, prefix, suffix)


def _backport(tree: Tree, prefix: str, suffix: str) -> tuple[str, str]:
    found = backports.find(tree.source, prefix, head=tree.head)
    if found is None:
        raise _unknown_revision(tree, prefix + suffix)
    commit = tree.source.commit(found.commit + suffix)
    if commit is None:
        raise UserError(
            f"{prefix}{suffix} does not exist in tree {tree.name!r}, where {prefix} is {found.commit[:12]}",
            hint="the history of the tree may not reach back that far",
        )
    note = (
        f"{prefix[:12]} is not in tree {tree.name!r}; taking {found.commit[:12]} "
        f'("{found.subject}"), its backport ("{found.line}")'
    )
    return commit, note


def _names_commit(tree: Tree, revision: str) -> bool:
    try:
        resolve_commit(tree, revision)
    except UserError:
        return False
    return True


def _listed(tree: Tree, commits: list[str]) -> str:
    return ", ".join(f'{commit[:16]} ("{tree.source.subject(commit)}")' for commit in commits)


def _unknown_revision(tree: Tree, revision: str) -> UserError:
    base, plus, patch = revision.rpartition("+")
    if plus and _names_commit(tree, base):
        return _unknown_patch(patch)
    start = re.split(r"[\^~]|@\{", revision, maxsplit=1)[0]
    if start != revision and tree.source.commit(start):
        return UserError(
            f"{revision} does not exist in tree {tree.name!r}, though {start} does",
            hint="the history of the tree may not reach back that far",
        )
    close = difflib.get_close_matches(start, tree.source.names(), n=1)
    if close:
        hint = f"did you mean {close[0]}?"
    elif re.search(r"[@%]\w", revision):
        hint = "settings are written @key=value, kconfig changes %CONFIG_FOO=y"
    else:
        hint = "name another tree with --tree, or add one with `lab tree add URL-or-PATH`"
    return UserError(f"unknown revision {revision!r} in tree {tree.name!r} ({tree.origin})", hint=hint)
