"""The default tree: a distributor's kernel source as a git history of the THP-alignment story.

The package's source is streamed from its archive into git, without an unpacked copy on disk. The patches in
`kernels/patches/thp-alignment` become commits, and the last of them has to give back the package's own tree, to the
byte. All ids depend on the package's version and the patches alone. Other patches that come with the lab have the
name of their folder in `kernels/patches`.
"""

from __future__ import annotations

import email.parser
import email.policy
import email.utils
import lzma
import re
import tarfile
from pathlib import Path
from typing import IO

from lab.core.errors import HostFailed
from lab.core.git import PatchFailed, Repo, Signature, init_bare
from lab.core.paths import data_folder
from lab.core.process import run_text
from lab.core.progress import Progress
from lab.core.records import Record
from lab.kernels.package_lists import HOST, all_suites

PACKAGE = "linux-source-6.12"
INSTALLED = Path("/usr/src") / f"{PACKAGE}.tar.xz"
_PRISTINE = "refs/lab/package"
_STORY_BEGINS = 1_704_067_200  # 2024-01-01: when the first commit was committed, each further one a second later


class Source(Record, frozen=True, kw_only=True):
    """A package's source archive and the version of the package that it is from."""

    archive: str
    version: str


def source(downloads: Path, progress: Progress) -> Source:
    """The source archive: the installed package's, else a download in a folder."""
    if INSTALLED.is_file() and (version := _installed_version()):
        return Source(archive=str(INSTALLED), version=version)
    progress.log_once(f"downloading the package {PACKAGE}, for the default tree")
    hint = "check the network, run `sudo apt-get update`, or name a tree of your own with --tree"
    # A Debian 12 without security updates, and systems other than Debian, do not have it among their own.
    lists = HOST if HOST.offers([PACKAGE]) else all_suites(progress)
    version = lists.download(PACKAGE, downloads, hint=hint)
    return Source(archive=str(next(downloads.glob("usr/src/*.tar.*"))), version=version)


def _installed_version() -> str | None:
    try:
        return run_text(["dpkg-query", "-W", "-f", "${Version}", PACKAGE]) or None
    except HostFailed:
        return None


def story() -> list[Path]:
    """The patches of the history: the first makes its root from the package's source, the others follow."""
    return patches("thp-alignment")


def build(git_dir: Path, package: Source, patches: list[Path], progress: Progress) -> str:
    """Make the bare repository of a source archive and its story; returns the newest commit."""
    repo = init_bare(git_dir)
    pristine = _import_archive(repo, Path(package.archive), PACKAGE, package.version, progress)
    progress.log_once("laying out the history")
    head = _commit_story(repo, pristine, package.version, patches)
    if repo.tree_id(head) != pristine:
        raise HostFailed(
            f"the alignment patches do not lead back to the source of {PACKAGE} {package.version}",
            hint=f"they are in {patches[0].parent}; name another kernel tree with --tree",
        )
    repo.git("update-ref", "refs/heads/main", head)
    repo.git("update-ref", "refs/tags/debian/" + package.version.replace("~", "_").replace(":", "%"), head)
    repo.git("config", "gc.auto", "0")
    return head


def build_single(git_dir: Path, archive: Path, package: str, version: str, progress: Progress) -> None:
    """Make the bare repository of a source archive as one commit."""
    repo = init_bare(git_dir)
    tree = _import_archive(repo, archive, package, version, progress)
    head = repo.commit_tree(tree, [], f"{package} {version}\n\nThe source of Debian's package.\n", seconds=0)
    repo.git("update-ref", "refs/heads/main", head)
    repo.git("config", "gc.auto", "0")


def _commit_story(repo: Repo, pristine: str, version: str, patches: list[Path]) -> str:
    """Make one commit for each patch, in a row; returns the last one. Upstream's have their authors and dates."""
    tree, parents = pristine, list[str]()
    for seconds, patch in enumerate(patches, start=_STORY_BEGINS):
        try:
            tree = repo.patched_tree(tree, [patch])
        except PatchFailed as error:
            raise HostFailed(
                f"{patch.name} does not apply to {PACKAGE} {version}: {error.where}",
                hint="this version of the source has other code there; name another tree with --tree",
            ) from error
        message, author = commit_of(patch)
        if not parents:
            message += f"\nSource: {PACKAGE} {version}\n"
        parents = [repo.commit_tree(tree, parents, message, seconds=seconds, author=author)]
    return parents[0]


def commit_of(patch: Path) -> tuple[str, Signature]:
    """A patch file's commit message and author."""
    mail = email.parser.Parser(policy=email.policy.compat32).parsestr(patch.read_text())
    subject = re.sub(r"^\[PATCH[^]]*\] ", "", " ".join(str(mail["Subject"]).split()))
    body = str(mail.get_payload()).split("\n---\n", 1)[0].strip()
    date = email.utils.parsedate_to_datetime(str(mail["Date"]))
    author = Signature(*email.utils.parseaddr(str(mail["From"])), f"@{int(date.timestamp())} {date:%z}")
    return f"{subject}\n\n{body}\n", author


def _import_archive(repo: Repo, archive: Path, package: str, version: str, progress: Progress) -> str:
    """The tree of an archive's files, without the folder around them."""
    megabytes = archive.stat().st_size >> 20
    importing = progress.task(f"importing {package} {version}", megabytes)
    with archive.open("rb") as raw, repo.fast_import() as stream, importing as task:
        stream.write(f"commit {_PRISTINE}\ncommitter lab <lab@localhost> 0 +0000\ndata 0\n".encode())
        try:
            with tarfile.open(fileobj=raw, mode="r|*", encoding="utf-8") as members:
                for member in members:
                    _import_member(stream, members, member)
                    if steps := (raw.tell() >> 20) - task.count:
                        task.advance(steps)
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise HostFailed(f"{archive} cannot be read: {error}", hint=f"reinstall {package}") from error
    tree = repo.tree_id(_PRISTINE)
    repo.git("update-ref", "-d", _PRISTINE)
    return tree


def _import_member(stream: IO[bytes], members: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    path = member.name.removeprefix("./").partition("/")[2]
    if member.isdir() or not path:  # git has no folders of their own
        return
    if member.issym():
        mode, content = "120000", member.linkname.encode(errors="surrogateescape")
    elif member.isfile() and (data := members.extractfile(member)) is not None:
        mode, content = ("100755" if member.mode & 0o100 else "100644"), data.read()
    else:
        raise HostFailed(f"{member.name} in the source archive is neither file, folder nor symbolic link")
    quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    stream.write(f'M {mode} inline "{quoted}"\n'.encode(errors="surrogateescape"))
    stream.write(b"data %d\n" % len(content))
    stream.write(content)
    stream.write(b"\n")


def names() -> list[str]:
    """The names of all patch sets."""
    return sorted({path.parent.name for path in (data_folder("kernels") / "patches").glob("[!.]*/*.patch")})


def patches(name: str) -> list[Path]:
    """The patches of one set, in the order in which they are applied."""
    return sorted((data_folder("kernels") / "patches" / name).glob("*.patch"))
