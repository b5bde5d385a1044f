"""Where a kernel of a bundle comes from, so that anybody can build it again: source, patch, kconfig, compiler."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from lab.core import records
from lab.kernels import debs, store, trees
from lab.kernels.debs import DebSource
from lab.kernels.kernel import Kernel
from lab.kernels.resolve import FileSource, TreeSource
from lab.kernels.store import Build
from lab.kernels.trees import Tree

NAME = "SOURCE.txt"
PATCH = "source.patch"
CONFIG = "config"


def describe(kernel: Kernel, booted: Path) -> None:
    """Put beside a kernel all that it was made from, but for the published source itself."""
    folder = booted.parent
    match kernel.spec.source:
        case TreeSource() as source:
            lines = [*_tree(source, folder), *_build(kernel, folder)]
        case DebSource() as source:
            lines = list(_package(source, folder))
        case FileSource():
            lines = [
                "A file that was given to the lab, which does not know its source. Who passes this bundle on",
                "must.",
            ]
    head = [f"Linux {kernel.release}, as {booted.name}", f"sha256 {records.file_digest(booted)}", ""]
    (folder / NAME).write_text("\n".join([*head, *lines]) + "\n")


def _tree(source: TreeSource, folder: Path) -> Iterator[str]:
    tree = trees.open_tree(source.tree)
    record = tree.record
    if record.kind == "default":
        start = tree.source.tree_id(tree.head)
        yield f"Source: Debian's package {record.package}, version {record.version}"
        yield f"        (apt-get download {record.package}={record.version}, or https://snapshot.debian.org/package/linux/)"
    else:
        start = source.commit
        where = f"of {record.origin}" if record.kind == "clone" else "of a checkout on the machine that measured it"
        yield f"Source: commit {source.commit}"
        yield f"        {where}"
    if _patch(tree, start, source.tree_id, folder / PATCH):
        yield f"        with {PATCH} (patch -p1 < {PATCH})"
    yield f"Commit: {source.commit} in the lab's tree" if record.kind == "default" else f"Tree:   {source.tree_id}"
    yield f'        ("{source.subject}")'
    yield from (f"Patch:  {name} (it is in {PATCH})" for name in source.patches)


def _patch(tree: Tree, start: str, end: str, target: Path) -> bool:
    """What leads from the published source to the one that was built, if they differ."""
    content = tree.repo.git_bytes("diff", "--binary", "--full-index", "--no-renames", "--end-of-options", start, end)
    if content:
        target.write_bytes(content)
    return bool(content)


def _build(kernel: Kernel, folder: Path) -> Iterator[str]:
    build = store.find(kernel.key)
    if build is None:
        return
    shutil.copyfile(store.folder_of(build.key) / "config", folder / CONFIG)
    yield f"Built with: {build.inputs.compiler}"
    yield f"            {build.inputs.linker}"
    yield ""
    yield "Build, from the source's folder (here is where this file is):"
    yield f"  mkdir ../out && cp here/{CONFIG} ../out/.config"
    yield f"  {make_command(build)}"


def make_command(build: Build) -> str:
    """What builds a kernel of the store."""
    compiler = f"CC={build.compiler_command}"
    words = ["make", "O=../out", *build.inputs.make, compiler, f"HOST{compiler}", "bzImage", "vmlinux"]
    return shlex.join(words)


def _package(source: DebSource, folder: Path) -> Iterator[str]:
    unpacked = debs.fetch_deb(source)
    yield f"Debian's package {source.package}, version {source.version}, not changed; the vmlinux is what is packed in"
    yield "its vmlinuz. Binary and source: https://snapshot.debian.org/binary/" + f"{source.package}/"
    config = next((unpacked / "boot").glob("config-*"), None)
    if config is not None:
        shutil.copyfile(config, folder / CONFIG)
