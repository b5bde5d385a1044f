"""Builds of a git tree's revisions, from a resolved spec to a finished kernel in the store.

A tree has one worktree of the lab's, and a build folder for each kconfig and compiler. Ansible does the work. The key
of a kernel is the hash of the source's tree object, the resolved kconfig, the compiler and make's variables. A stored
kernel is never built again, and an interrupted build leaves nothing that looks finished.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from lab.core import ansible, locks, paths, process, records
from lab.core.errors import BuildFailed, DiskFull, HostFailed
from lab.core.executor import Executor, Work
from lab.core.git import Repo
from lab.core.progress import Progress, follow_log
from lab.core.records import Record
from lab.core.text import plural
from lab.kernels import architecture, compilers, kconfig, store
from lab.kernels.compilers import Compiler
from lab.kernels.files import PATCH, KernelFiles, bootable
from lab.kernels.spec import Pair
from lab.kernels.store import Build, BuildInputs
from lab.kernels.trees import open_tree

_BTF = "CONFIG_DEBUG_INFO_BTF"

# Fixes everything that could differ between two hosts; part of the key.
_MAKE_VARIABLES = [
    "KBUILD_BUILD_TIMESTAMP=2024-01-01 00:00:00 +0000",
    "KBUILD_BUILD_USER=lab",
    "KBUILD_BUILD_HOST=lab",
    "KBUILD_BUILD_VERSION=1",
    "LOCALVERSION=",
    # kconfig writes down which of them it finds; they may come, go and grow older between two builds.
    "RUSTC=none",
]


def make_variables(guests: str = architecture.DEFAULT, options: Iterable[Pair] = ()) -> list[str]:
    """The variables of make that fix a build for an architecture; part of the key.

    options: kconfig of the spec's own. Only BTF needs pahole. Raises `HostFailed` if pahole is needed and missing.
    """
    found = architecture.load(guests)
    cross = [f"CROSS_COMPILE={found.cross_prefix}"] if found.cross_prefix else []
    pahole = _pahole() if dict(options).get(_BTF) == "y" else ["PAHOLE=none"]
    return [f"ARCH={found.kbuild}", *cross, *_MAKE_VARIABLES, *pahole]


def _pahole() -> list[str]:
    """The host's pahole, by its version: kbuild ignores the variable, and keys have it."""
    pahole = process.find_tool("pahole", package="pahole")
    return [f"LAB_PAHOLE_VERSION={process.run_text([pahole, '--version'])}"]


# Variables of the caller that would reach kbuild and are not part of the key, and make's own from `make ab`.
_CLEARED = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "KCFLAGS", "KAFLAGS", "KCPPFLAGS", "CROSS_COMPILE", "LDFLAGS")

# Steps that a full build of the guest's kconfig prints on 6.12; the bar's first guess.
_TYPICAL_STEPS = 1660

_SPACE_NEEDED = 3 << 30


class TreeSource(Record, frozen=True, kw_only=True, tag="tree"):
    """A revision of a git tree: the base commit, and the tree id after patches or uncommitted work.

    `build_commit` has `tree_id` as its tree. It is `commit` itself if nothing was added.
    """

    tree: str
    commit: str
    tree_id: str
    build_commit: str
    subject: str
    describe: str
    patches: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        return self.tree

    @property
    def label(self) -> str:
        return self.commit

    def provenance(self, folder: Path) -> Iterator[str]:
        """Describe the published source; write the patch that leads from it to this one into a folder."""
        tree = open_tree(self.tree)
        record = tree.record
        if record.kind in ("default", "source"):
            start = tree.source.tree_id(tree.head)
            package, version = record.package, record.version
            yield f"Source: Debian's package {package}, version {version}"
            yield f"        (apt-get download {package}={version}, or https://snapshot.debian.org/package/linux/)"
        else:
            start = self.commit
            yield f"Source: commit {self.commit}"
            clone = record.kind == "clone"
            yield f"        {f'of {record.origin}' if clone else 'of a checkout on the machine that measured it'}"
        diff = ("diff", "--binary", "--full-index", "--no-renames", "--end-of-options", start, self.tree_id)
        if content := tree.repo.git_bytes(*diff):
            (folder / PATCH).write_bytes(content)
            yield f"        with {PATCH} (patch -p1 < {PATCH})"
        yield f"Commit: {self.commit} in the lab's tree" if record.package else f"Tree:   {self.tree_id}"
        yield f'        ("{self.subject}")'
        yield from (f"Patch:  {name} (it is in {PATCH})" for name in self.patches)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A revision to build, its kconfig changes, and the compiler. text: the spec as typed, for people.

    optional: kconfig changes that the tree may drop. base: a whole configuration in place of the lab's fragments.
    guests: the architecture.
    """

    text: str
    source: TreeSource
    kconfig: tuple[Pair, ...]
    optional: tuple[Pair, ...] = ()
    base: tuple[Pair, ...] = ()
    compiler: Compiler
    guests: str = architecture.DEFAULT

    @property
    def key(self) -> str:
        """Digest of the request, before kconfig is resolved."""
        required, optional = kconfig.requested(self.kconfig, self.optional, self.base, guests=self.guests)
        make = make_variables(self.guests, self.kconfig)
        return records.digest([self.source.tree_id, required, optional, self.compiler, make])


@runtime_checkable
class Builder(Executor, Protocol):
    """Other machines that build kernels."""

    def build(self, request: BuildRequest, progress: Progress) -> Build | None:
        """The kernel of a request, now in this machine's store; None if it has to be built here."""


def obtain(request: BuildRequest, work: Work) -> Build:
    """The kernel of a request: from the store, or built.

    Raises `UserError` for options that kconfig does not know or drops, `BuildFailed` with the first error of the
    log, `HostFailed` when the disk is too full. A hit calls neither git nor Ansible.
    """
    if (build := store.find_request(request.key)) is None:
        remote = work.executor.build(request, work.progress) if isinstance(work.executor, Builder) else None
        build = remote or Workspace(request).build(work)
        store.remember_request(request.key, build.key)
    if not store.hold(build):  # `lab gc` took it this very moment
        return obtain(request, work)
    return build


def files_of(request: BuildRequest, work: Work) -> KernelFiles:
    """The files of the kernel of a request, from the store or built."""
    build = obtain(request, work)
    folder = store.folder_of(build.key)
    return KernelFiles(
        key=build.key,
        release=build.release,
        commit=request.source.commit,
        bzimage=folder / architecture.load(request.guests).packed,
        vmlinux=bootable(folder / "vmlinux") if "vmlinux" in build.files else None,
        symbols=folder / "System.map",
        config=folder / "config",
        architecture=request.guests,
    )


def is_orphan(worktree: Path) -> bool:
    """True for a worktree whose repository is gone or was made again: its `.git` names a folder that is not there."""
    try:
        text = (worktree / ".git").read_text()
    except OSError:
        return False
    return not Path(text.removeprefix("gitdir: ").rstrip("\n")).exists()


def worktree_of(tree: str) -> Path:
    """The worktree of a tree: beside its build folders, so that it is `../src` in each of them.

    ccache identifies objects by such relative paths, so they serve all trees.
    """
    return paths.cache_dir("work", tree) / "src"


class Workspace:
    """A worktree, and beside it one of its build folders.

    Consecutive revisions share them, so only changed files are compiled. Used by one lab at a time.
    """

    def __init__(self, request: BuildRequest) -> None:
        self.request = request
        self.source = request.source
        self.compiler = request.compiler
        self.architecture = architecture.load(request.guests)
        self.make = make_variables(request.guests, request.kconfig)
        self.required, self.optional = kconfig.requested(
            request.kconfig, request.optional, request.base, guests=request.guests
        )
        self.repo: Repo = open_tree(self.source.tree).repo
        self.worktree = worktree_of(self.source.tree)
        configuration = records.digest([self.required, self.optional, self.compiler.version])[:12]
        self.out = self.worktree.with_name(configuration)
        # With the tree's name: two labs may build one source in two trees at a time.
        name = f"build-{self.source.tree}-{self.source.tree_id[:12]}-{configuration}.log"
        self.log = paths.cache_dir("logs") / name

    def build(self, work: Work) -> Build:
        """Build the kernel, unless the store has one of the same resolved kconfig."""
        with self._alone(work.progress):
            resolved = self._resolve_kconfig(work.progress)
            inputs = self._inputs(resolved)
            return store.find(store.key_of(inputs)) or self._make(inputs, resolved, work)

    def warm(self, work: Work) -> None:
        """Build the kernel if the build folder has seen none, even if the store has it.

        The next build in that folder then compiles the changed files alone.
        """
        with self._alone(work.progress):
            if not self._steps_file.exists():
                resolved = self._resolve_kconfig(work.progress)
                self._make(self._inputs(resolved), resolved, work)

    def files_read(self, work: Work) -> set[str]:
        """The files that kbuild has noted for the objects of the last build in the folder; one is made if none was."""
        self.warm(work)
        return {
            match.decode(errors="replace")
            for path in self.out.rglob(".*.cmd")
            for match in _SOURCE_FILE.findall(path.read_bytes())
        }

    def _alone(self, progress: Progress) -> AbstractContextManager[object]:
        waiting = f"another lab is building from tree '{self.source.tree}'; waiting for it"
        return locks.file_lock(Path(f"{self.worktree}.lock"), waiting, progress)

    def _inputs(self, resolved: str) -> BuildInputs:
        return BuildInputs(
            tree_id=self.source.tree_id,
            kconfig_sha256=records.digest(resolved),
            compiler=self.compiler.version,
            linker=self.compiler.linker,
            make=self.make,
        )

    def _resolve_kconfig(self, progress: Progress) -> str:
        """The complete `.config`, cached by everything in the tree that affects it.

        An option of the spec that kconfig drops is an error. So is one of the guest's, unless it gave way to the
        spec's (`%CONFIG_HZ_1000=y` is worth more than the fragment's HZ_250); then a line is logged.
        """
        cached = paths.cache_dir("kconfig") / f"{self._kconfig_inputs()[:24]}.json"
        if (known := records.find(cached, str)) is not None:
            return known
        resolved = self._configure(progress)
        kept = kconfig.parse(resolved)
        if lost := kconfig.dropped(dict(self.request.kconfig) or self.required, kept):
            raise kconfig.explain_dropped(lost, self.required, self._kconfig_symbols())
        for name in kconfig.dropped(self.required, kept):
            progress.log(f"{name}={self.required[name]} gives way to the spec's own options")
        if self.request.base:
            progress.log(self._write_dropped(kept))
        records.save(cached, resolved)
        return resolved

    def _write_dropped(self, kept: Mapping[str, str]) -> str:
        """Keep a list of the options of a whole configuration with their fate beside the build; gives its summary."""
        became = kconfig.dropped(self.optional, kept)
        path = self.out / "lab.dropped"
        path.write_text("".join(f"{name}={self.optional[name]} became {value}\n" for name, value in became.items()))
        same = plural(len(self.optional) - len(became), "option")
        return f"{same} of the configuration without its modules, and {len(became)} not: {path}"

    def _kconfig_inputs(self) -> str:
        """Digest of everything that affects a resolved kconfig: Kconfig files, kbuild's scripts, compiler, request."""
        entries = self.repo.git("ls-tree", "-r", self.source.tree_id).splitlines()
        decisive = re.compile(rf"\t(scripts/|Makefile$|{self.architecture.tree}/Makefile|.*/?Kconfig[^/]*$)")
        files = [entry for entry in entries if decisive.search(entry)]
        return records.digest([files, self.required, self.optional, self.compiler, self.make])

    def _kconfig_symbols(self) -> set[str]:
        """Names of all symbols that the tree's Kconfig files define, without CONFIG_."""
        pattern = r"^\s*(menu)?config [A-Za-z0-9_]+"
        lines = self.repo.git("grep", "-hoE", pattern, self.source.tree_id, "--", "*Kconfig*").splitlines()
        return {line.split()[-1] for line in lines}

    def _configure(self, progress: Progress) -> str:
        """Resolve the requested options on top of allnoconfig, or a package's on top of the tree's own defaults."""
        self._start()
        fragment = self.out / "lab.fragment"
        fragment.write_text(kconfig.fragment({**self.optional, **self.required}))
        progress.log("resolving the kernel configuration")
        variables = {
            "kernel_build_fragment": str(fragment),
            "kernel_build_base": "alldefconfig" if self.request.base else "allnoconfig",
        }
        self._play("kernel_configure", variables, progress)
        self._finish()
        return (self.out / ".config").read_text()

    def _make(self, inputs: BuildInputs, resolved: str, work: Work) -> Build:
        """Make the kernel and move it into the store."""
        self._start()
        config = self.out / "lab.config"
        config.write_text(resolved)
        key = store.key_of(inputs)
        # An incremental build takes an unknown number of steps.
        expected = None if self._steps_file.exists() else _TYPICAL_STEPS
        with store.staging(variable=ansible.TAG, value=str(self.worktree)) as staging:
            with follow_log(self.log, work.progress, f"build {self.source.describe}", expected) as steps:
                variables = {
                    "kernel_build_config": str(config),
                    "kernel_build_jobs": work.jobs,
                    "kernel_build_first": self._changed_objects(),
                    "kernel_build_images": self.architecture.images,
                    "kernel_build_boot": f"{self.architecture.tree}/boot",
                    "kernel_build_staging": str(staging),
                    "kernel_build_record": {
                        "schema": 1,
                        "key": key,
                        "inputs": records.plain(inputs),
                        "spec": self.request.text,
                        "commit": self.source.commit,
                        "tree": self.source.tree,
                        "subject": self.source.subject,
                        "compiler_command": self.compiler.command,
                    },
                }
                self._play("kernel_build", variables, work.progress)
            if (staging / "config").read_text() != resolved:
                raise BuildFailed(
                    f"{self.source.describe}: make changed the resolved configuration while building",
                    log=self.log,
                )
            build = store.adopt(staging, key)
        self._finish()
        if not self._steps_file.exists():
            self._steps_file.write_text(str(steps.count))
        return build

    def _changed_objects(self) -> list[str]:
        """The objects of the sources that patches change, if they change a header too: make compiles these first."""
        source = self.source
        if source.build_commit == source.commit or not self.repo.has(source.commit):
            return []  # a worker has the trees, but not the commits
        argv = ("diff", "--name-only", "--no-renames", "-z", source.commit, source.build_commit)
        changed = self.repo.git(*argv).split("\0")
        if not any(path.endswith(".h") for path in changed):
            return []
        objects = [f"{path[:-2]}.o" for path in changed if path.endswith((".c", ".S"))]
        return [name for name in objects if (self.out / name).exists()]

    @property
    def _steps_file(self) -> Path:
        """The steps of the folder's first build, which has ended if the file is there."""
        return self.out / "lab.steps"

    @property
    def _markers(self) -> dict[Path, Path]:
        return {folder: folder.with_name(folder.name + ".unfinished") for folder in (self.out, self.worktree)}

    def _start(self) -> None:
        """Prepare for work that may be killed at any instant.

        A killed compiler leaves half an object that is newer than its source, and make would take it for finished.
        So a build folder whose last use did not end is removed; ccache has the objects that were whole.
        """
        # Processes of a killed lab would continue to write here, if nothing swept them away.
        process.kill_tagged(ansible.TAG, str(self.worktree))
        for folder, marker in self._markers.items():
            if marker.exists():
                shutil.rmtree(folder, ignore_errors=True)
        if is_orphan(self.worktree):
            shutil.rmtree(self.worktree)
        if not self.worktree.exists():
            self.repo.git("worktree", "prune")
        paths.require_space(self.out.parent, _SPACE_NEEDED, "a kernel build")
        self.out.mkdir(parents=True, exist_ok=True)
        self._mark()
        self.log.write_bytes(b"")

    def _mark(self) -> None:
        for marker in self._markers.values():
            marker.touch()

    def _finish(self) -> None:
        for marker in self._markers.values():
            marker.unlink(missing_ok=True)

    def _play(self, playbook: str, variables: Mapping[str, object], progress: Progress) -> None:
        common = {
            "kernel_build_repo": str(self.repo.git_dir),
            "kernel_build_worktree": str(self.worktree),
            "kernel_build_commit": self.source.build_commit,
            "kernel_build_out": str(self.out),
            "kernel_build_make": [
                *self.make,
                f"CC={compilers.with_ccache(self.compiler.command)}",
                f"HOSTCC={compilers.with_ccache(compilers.host_command(self.compiler.command))}",
                # BUG() and WARN() hold paths: the same ones in every worktree, with ccache and without it. make and the
                # compiler see a folder by its own path, no matter which link leads there.
                f"KCPPFLAGS=-fmacro-prefix-map={self.worktree.resolve()}/=../{self.worktree.name}/",
            ],
            "kernel_build_environment": {
                **dict.fromkeys(_CLEARED, ""),
                "LC_ALL": "C",
                **compilers.ccache_environment(),
            },
            "kernel_build_log": str(self.log),
        }
        tag = str(self.worktree)
        try:
            ansible.play(playbook, {**common, **variables}, cancelled=progress.cancelled, tag=tag)
        except ansible.PlaybookFailed as error:
            self._finish()  # make removed the target that failed; the other objects are whole
            raise self._explain(error) from error

    def _explain(self, error: ansible.PlaybookFailed) -> Exception:
        text = self.log.read_text(errors="replace")
        if "No space left on device" in text or "No space left on device" in error.detail:
            self._mark()
            return DiskFull(
                f"no disk space left while building {self.source.describe}",
                hint="free some, e.g. with `lab gc`; ccache keeps the finished objects",
                log=self.log,
            )
        if error.task is None:
            self._mark()
            return HostFailed(
                f"the build of {self.source.describe} was broken off: {error.detail}",
                hint="repeat the command; ccache keeps the finished objects",
                log=self.log,
            )
        if "Killed signal terminated program" in text:
            return HostFailed(
                f"the compiler was killed while building {self.source.describe}",
                hint="most likely there is too little memory for so many compilers: use a smaller -j",
                log=self.log,
            )
        complaint = first_error(text) or error.detail
        version = self._kernel_version()
        hint = compilers.age_hint(self.compiler, version) if version else None
        name, commit = self.source.describe, self.source.commit[:12]
        named = name if commit in name else f"{name} ({commit})"
        return BuildFailed(
            f"{named} does not build with {self.compiler.command}: {complaint}",
            hint=hint,
            log=self.log,
        )

    def _kernel_version(self) -> tuple[int, int] | None:
        makefile = self.repo.git("show", f"{self.source.tree_id}:Makefile")
        match = re.search(r"^VERSION = (\d+)\nPATCHLEVEL = (\d+)", makefile, re.MULTILINE)
        return (int(match[1]), int(match[2])) if match else None


# Kconfig reads files in Documentation too.
_READ_BY_KBUILD = re.compile(r"(Makefile|Kconfig|Kbuild)[^/]*$")
_NEVER_BUILT = re.compile(
    r"(Documentation|LICENSES|tools/testing|tools/perf)/|"
    r"(COPYING|CREDITS|MAINTAINERS|\.mailmap|\.get_maintainer\.ignore|\.clang-format|\.editorconfig)$|"
    r"(.*/)?(README[^/]*|[^/]+\.rst|\.gitignore)$"
)


def is_input(path: str) -> bool:
    """False for a path in a kernel tree that no build of a kernel reads: documentation, lists of people, tests."""
    return bool(_READ_BY_KBUILD.search(path)) or not _NEVER_BUILT.match(path)


_SOURCE_FILE = re.compile(rb"\.\./src/([^\s\\):]+)")
"""A file of the worktree as kbuild notes it, from the build folder beside it."""

_ERROR = re.compile(
    r"^.*(?:(?:fatal )?[eE]rror: |undefined reference to|multiple definition of|\*\*\* No rule to make).*$",
    re.MULTILINE,
)


def errors(log: str, most: int = 40) -> list[str]:
    """The errors of compilers, assemblers and linkers in a build log, each once, and the files that make lacks."""
    return list(dict.fromkeys(match.strip() for match in _ERROR.findall(log)))[:most]


def first_error(log: str) -> str | None:
    """The line of a build log that explains the failure: the first error of a compiler, else make's own."""
    for pattern in (
        r"^.*(?:fatal )?[eE]rror: .*$",  # an assembler writes it large
        r"^.*(?:undefined reference to|multiple definition of).*$",
        r"^.*\*\*\* (?!.*Error \d).*$",
        r"^.*\*\*\*.*$",
    ):
        if match := re.search(pattern, log, re.MULTILINE):
            return match[0].strip()
    return None


def cancel(tree: str) -> None:
    """Terminate the make of this process in a tree's worktree, if one runs, as Ctrl-C in a shell does.

    make then removes half-made targets: the build fails, and its folder stays usable.
    """
    process.cancel_tagged(ansible.TAG, str(worktree_of(tree)), "make")


def raise_priority(tree: str) -> None:
    """Give a build of this process in a tree's worktree, if one runs, the priority of the caller."""
    process.raise_priority_tagged(ansible.TAG, str(worktree_of(tree)))
