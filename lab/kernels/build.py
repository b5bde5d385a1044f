"""Where one tree's kernels are built: the lab's own worktree of it, and a build folder per kconfig and compiler.

The work is Ansible's; what may be killed at any instant leaves nothing here that is believed afterwards.

From a resolved kernel spec to a finished kernel in the store.

The key is the hash of the source's tree object, the resolved kconfig, the compiler and make's variables. What is
stored is never built again; what was interrupted leaves nothing that looks finished.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock, Timeout

from lab.core import ansible, paths, process, records
from lab.core.errors import BuildFailed, DiskFull, HostFailed
from lab.core.executor import Work
from lab.core.git import Repo
from lab.core.progress import Progress, follow_log
from lab.kernels import compilers, kconfig, store
from lab.kernels.compilers import Compiler
from lab.kernels.resolve import KernelSpec, TreeSource
from lab.kernels.store import Build, BuildInputs
from lab.kernels.trees import open_tree

# Everything of make's that could differ between two hosts is pinned; all of it is part of the key.
MAKE_VARIABLES = [
    "ARCH=x86_64",
    "KBUILD_BUILD_TIMESTAMP=2024-01-01 00:00:00 +0000",
    "KBUILD_BUILD_USER=lab",
    "KBUILD_BUILD_HOST=lab",
    "KBUILD_BUILD_VERSION=1",
    "LOCALVERSION=",
    # kconfig writes down which of them it finds; they may come, go and grow older between two builds.
    "RUSTC=none",
    "PAHOLE=none",
]

# Variables of the caller that would reach kbuild behind the key's back, or make's own from `make ab`.
_CLEARED = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "KCFLAGS", "KAFLAGS", "KCPPFLAGS", "CROSS_COMPILE", "LDFLAGS")

# A full build of the guest's kconfig on 6.12 prints this many steps; only the bar's first guess.
_TYPICAL_STEPS = 1700

_SPACE_NEEDED = 3 << 30


def worktree_of(tree: str) -> Path:
    """Where a tree's worktree is: beside its build folders, and `../src` seen from each of them.

    Objects in ccache are known by such relative paths, and so serve all trees.
    """
    return paths.cache_dir("work", tree) / "src"


class Workspace:
    """A worktree, and beside it one of its build folders.

    Consecutive revisions share them, so only what changed is compiled. Used by one lab at a time.
    """

    def __init__(self, source: TreeSource, compiler: Compiler, configuration: str) -> None:
        self.source = source
        self.compiler = compiler
        self.repo: Repo = open_tree(source.tree).repo
        self.worktree = worktree_of(source.tree)
        self.out = self.worktree.with_name(configuration)
        self.log = paths.cache_dir("logs") / f"build-{source.tree_id[:12]}-{configuration}.log"

    def locked(self, progress: Progress) -> FileLock:
        """The lock on the worktree; says so when another lab holds it."""
        lock = FileLock(f"{self.worktree}.lock")
        try:
            lock.acquire(timeout=0.1)
            lock.release()
        except Timeout:
            progress.log(f"another lab is building from tree '{self.source.tree}'; waiting for it")
        return lock

    def kconfig_inputs(self, required: Mapping[str, str], optional: Mapping[str, str]) -> str:
        """Digest of all that a resolved kconfig depends on: Kconfig files, kbuild's scripts, compiler, request."""
        entries = self.repo.git("ls-tree", "-r", self.source.tree_id).splitlines()
        decisive = re.compile(r"\t(scripts/|Makefile$|arch/x86/Makefile|.*/?Kconfig[^/]*$)")
        files = [entry for entry in entries if decisive.search(entry)]
        return records.digest([files, required, optional, self.compiler, MAKE_VARIABLES])

    def kconfig_symbols(self) -> set[str]:
        """Names of all symbols that the tree's Kconfig files define, without CONFIG_."""
        found = self.repo.git(
            "grep", "-hoE", r"^\s*(menu)?config [A-Za-z0-9_]+", self.source.tree_id, "--", "*Kconfig*"
        )
        return {line.split()[-1] for line in found.splitlines()}

    def configure(self, options: Mapping[str, str], progress: Progress) -> str:
        """Resolve requested options on top of allnoconfig; the complete `.config`."""
        self._start()
        request = self.out / "lab.fragment"
        request.write_text(kconfig.fragment(options))
        progress.log("resolving the kernel configuration")
        self._play("kernel_configure", {"kernel_build_fragment": str(request)}, progress)
        self._finish()
        return (self.out / ".config").read_text()

    def build(self, spec: KernelSpec, inputs: BuildInputs, resolved: str, work: Work) -> Build:
        """Make the kernel and move it into the store."""
        self._start()
        config = self.out / "lab.config"
        config.write_text(resolved)
        key = store.key_of(inputs)
        staging = store.staging_dir()
        try:
            with follow_log(self.log, work.progress, f"build {self.source.describe}", self._expected_steps()) as steps:
                variables = {
                    "kernel_build_config": str(config),
                    "kernel_build_jobs": work.jobs,
                    "kernel_build_staging": str(staging),
                    "kernel_build_record": self._record(spec, inputs, key),
                }
                self._play("kernel_build", variables, work.progress)
            if (staging / "config").read_text() != resolved:
                raise BuildFailed(
                    f"{self.source.describe}: make changed the resolved configuration while building",
                    log=self.log,
                )
            build = store.adopt(staging, key)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        self._finish()
        if not (self.out / "lab.steps").exists():
            (self.out / "lab.steps").write_text(str(steps.count))
        return build

    def _record(self, spec: KernelSpec, inputs: BuildInputs, key: str) -> dict[str, object]:
        return {
            "schema": 1,
            "key": key,
            "inputs": records.plain(inputs),
            "spec": spec.text,
            "commit": self.source.commit,
            "tree": self.source.tree,
            "subject": self.source.subject,
            "compiler_command": self.compiler.command,
        }

    def _expected_steps(self) -> int | None:
        """Steps of the bar: a first build's are known roughly; an incremental one's not at all."""
        return None if (self.out / "lab.steps").exists() else _TYPICAL_STEPS

    @property
    def _markers(self) -> dict[Path, Path]:
        return {folder: folder.with_name(folder.name + ".unfinished") for folder in (self.out, self.worktree)}

    def _start(self) -> None:
        """Prepare for work that may be killed at any instant.

        A killed compiler leaves half an object that is newer than its source, which make would believe. So a
        build folder whose last use did not end is thrown away; ccache has the objects that were whole.
        """
        # Ansible and make outlive a lab that is killed, and would go on writing here.
        process.kill_tagged(ansible.TAG, str(self.worktree))
        for folder, marker in self._markers.items():
            if marker.exists():
                shutil.rmtree(folder, ignore_errors=True)
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
                *MAKE_VARIABLES,
                f"CC={self.compiler.make_command}",
                f"HOSTCC={self.compiler.make_command}",
            ],
            "kernel_build_environment": {
                **dict.fromkeys(_CLEARED, ""),
                "LC_ALL": "C",
                "CCACHE_DIR": str(paths.cache_dir("ccache")),
                # Objects are shared between worktrees and build folders, whatever their paths.
                "CCACHE_BASEDIR": str(paths.cache_dir()),
                "CCACHE_NOHASHDIR": "1",
                # kbuild has the compiler list what a file includes, so a miss need not be preprocessed first, which
                # saves a sixth of the CPU time of a first build.
                "CCACHE_DEPEND": "1",
            },
            "kernel_build_log": str(self.log),
        }
        try:
            ansible.play(playbook, {**common, **variables}, cancelled=progress.cancelled, tag=str(self.worktree))
        except ansible.PlaybookFailed as error:
            self._finish_failed()
            raise self._explain(error) from error

    def _finish_failed(self) -> None:
        # make itself removed the target that failed; what is there is whole.
        self._finish()

    def _explain(self, error: ansible.PlaybookFailed) -> Exception:
        text = self.log.read_text(errors="replace")
        if "No space left on device" in text or "No space left on device" in error.detail:
            self._mark()
            return DiskFull(
                f"no disk space left while building {self.source.describe}",
                hint="free some, e.g. with `lab gc`; what was finished is kept by ccache",
                log=self.log,
            )
        if error.task is None:
            self._mark()
            return HostFailed(
                f"the build of {self.source.describe} was broken off: {error.detail}",
                hint="do it again; what was finished is kept by ccache",
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
        return BuildFailed(
            f"{self.source.describe} ({self.source.commit[:12]}) does not build with "
            f"{self.compiler.command}: {complaint}",
            hint=hint,
            log=self.log,
        )

    def _kernel_version(self) -> tuple[int, int] | None:
        makefile = self.repo.git("show", f"{self.source.tree_id}:Makefile")
        found = re.search(r"^VERSION = (\d+)\nPATCHLEVEL = (\d+)", makefile, re.MULTILINE)
        return (int(found[1]), int(found[2])) if found else None


def first_error(log: str) -> str | None:
    """The line of a build log that says what went wrong: the first compiler error, else make's own words."""
    for pattern in (
        r"^.*(?:fatal )?error: .*$",
        r"^.*undefined reference to.*$",
        r"^.*\*\*\* (?!.*Error \d).*$",
        r"^.*\*\*\*.*$",
    ):
        if found := re.search(pattern, log, re.MULTILINE):
            return found[0].strip()
    return None


def obtain(spec: KernelSpec, work: Work, *, compiler: Compiler) -> Build:
    """The kernel of a spec: from the store, or built.

    Raises `UserError` for options that kconfig does not know or drops, `BuildFailed` with the first error of the
    log, `HostFailed` when the disk is too full. A hit calls neither git nor Ansible.
    """
    source = spec.source
    if not isinstance(source, TreeSource):
        raise TypeError("only a tree's revision is built")
    required, optional = kconfig.requested(spec.kconfig)
    request = records.digest([source.tree_id, required, optional, compiler, MAKE_VARIABLES])
    if (build := store.find_request(request)) is None:
        remote = work.executor and work.executor.build(spec, source, compiler, request, work.progress)
        build = remote or _build(spec, source, required, optional, compiler, work)
        store.remember_request(request, build.key)
    if not store.hold(build):  # `lab gc` took it this very moment
        return obtain(spec, work, compiler=compiler)
    return build


def _build(
    spec: KernelSpec,
    source: TreeSource,
    required: Mapping[str, str],
    optional: Mapping[str, str],
    compiler: Compiler,
    work: Work,
) -> Build:
    workspace = Workspace(source, compiler, records.digest([required, optional, compiler.version])[:12])
    with workspace.locked(work.progress):
        resolved = _resolve_kconfig(workspace, dict(spec.kconfig), required, optional, work.progress)
        inputs = BuildInputs(
            tree_id=source.tree_id,
            kconfig_sha256=records.digest(resolved),
            compiler=compiler.version,
            linker=compiler.linker,
            make=MAKE_VARIABLES,
        )
        key = store.key_of(inputs)
        if (build := store.find(key)) is not None:
            return build
        return workspace.build(spec, inputs, resolved, work)


def _resolve_kconfig(
    workspace: Workspace,
    own: Mapping[str, str],
    required: Mapping[str, str],
    optional: Mapping[str, str],
    progress: Progress,
) -> str:
    """The complete `.config` of a request, remembered by everything in the tree that decides it.

    An option of the spec's own that is dropped is an error. So is one of the guest's, unless it gave way to the
    spec's (`%CONFIG_HZ_1000=y` is worth more than the fragment's HZ_250); then it is only said.
    """
    memo = paths.cache_dir("kconfig") / f"{workspace.kconfig_inputs(required, optional)[:24]}.json"
    if memo.is_file():
        return records.load(memo, str)
    resolved = workspace.configure({**optional, **required}, progress)
    kept = kconfig.parse(resolved)
    if lost := kconfig.dropped(own or required, kept):
        raise kconfig.explain_dropped(lost, required, workspace.kconfig_symbols())
    for name in kconfig.dropped(required, kept):
        progress.log(f"{name}={required[name]} gives way to the spec's own options")
    records.save(memo, resolved)
    return resolved


def cancel(tree: str) -> None:
    """Stop a build of this process in a tree's worktree, if there is one, the way Ctrl-C in a shell would.

    make then removes what is half done, so the build fails and its folder stays good.
    """
    process.cancel_tagged(ansible.TAG, str(worktree_of(tree)), "make")


def raise_priority(tree: str) -> None:
    """Give a build of this process in a tree's worktree, if there is one, the priority of the caller."""
    process.raise_priority_tagged(ansible.TAG, str(worktree_of(tree)))
