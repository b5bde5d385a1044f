"""From a kernel spec to a kernel that boots: resolve it, then build it, download it or take the file.

Each kind of spec is a record with the methods of `KernelSource`, in a module of its own. A new kind needs such a
module, its prefix in `lab.kernels.spec`, and an entry in `Source` and `resolve` here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from lab.core import paths, records
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.progress import QUIET, Progress
from lab.core.records import Record
from lab.kernels import architecture, archives, build, compilers, debs, file_source, files, kconfig, revisions, store
from lab.kernels.architecture import Architecture, MachineType
from lab.kernels.archives import PackageRecord
from lab.kernels.build import BuildRequest, TreeSource
from lab.kernels.file_source import FileSource
from lab.kernels.files import KernelFiles
from lab.kernels.kconfig import NOTHING, Needs
from lab.kernels.spec import MOUNT, Pair, ParsedSpec, parse
from lab.kernels.trees import Tree


class KernelSource(Protocol):
    """The source of a kernel that the lab does not build, in full ids and hashes: equal sources are the same kernel."""

    @property
    def origin(self) -> str:
        """The collection that the kernel belongs to: its tree, or all packages, or all files."""

    @property
    def label(self) -> str | None:
        """The kernel's name in its collection, which others can look up; None without such a name."""

    def obtain(self, work: Work) -> KernelFiles:
        """Put the kernel's files on this machine."""

    def provenance(self, folder: Path) -> Iterator[str]:
        """Lines for people about how to get the kernel's source; patch and kconfig are written into a folder."""


Source = TreeSource | PackageRecord | FileSource


class KernelSpec(Record, frozen=True, kw_only=True):
    """One kernel and the settings around it. note: a choice that the lab made for the user.

    In kconfig, the value of `config` is a package, as apt takes it, or the label of a file's content; that of `arch` is
    an architecture.
    """

    text: str
    source: Source
    kconfig: tuple[Pair, ...] = ()
    settings: tuple[Pair, ...] = ()
    note: str | None = None

    def obtain(self, work: Work, *, cc: str = compilers.DEFAULT, needs: Needs = NOTHING) -> Kernel:
        """Make the kernel bootable: build it, download it, or look at the file.

        A build has the workloads' needs built in, unless the spec says otherwise.
        """
        if isinstance(self.source, TreeSource):
            return Kernel(spec=self, **asdict(build.files_of(self._request(self.source, cc, needs, work), work)))
        source: KernelSource = self.source
        kernel = Kernel(spec=self, **asdict(source.obtain(work)))
        if lacking := kconfig.not_bootable(kernel.configuration() or {}):
            raise UserError(
                f"{self.text} does not have built in all that every guest needs: {', '.join(lacking)}",
                hint="take another kernel of its distribution, or build one from a tree",
            )
        return kernel

    def request_key(self, *, cc: str = compilers.DEFAULT, needs: Needs = NOTHING) -> str:
        """A key of the kernel that is known before it is made: the store's, if it is built."""
        if (source := self.tree_source) is None:
            return records.digest(self.source)
        return self._request(source, cc, needs, Work(progress=QUIET)).key

    def warm(self, work: Work, *, cc: str = compilers.DEFAULT, needs: Needs = NOTHING) -> None:
        """Compile a tree's kernel in the build folder of the tree's next one; see `Workspace.warm`."""
        if (source := self.tree_source) is not None:
            build.Workspace(self._request(source, cc, needs, work)).warm(work)

    def files_read(self, work: Work, *, cc: str = compilers.DEFAULT, needs: Needs = NOTHING) -> set[str]:
        """The files of the source that its build read; none if it is not built from a tree."""
        source = self.tree_source
        return build.Workspace(self._request(source, cc, needs, work)).files_read(work) if source else set()

    def _request(self, source: TreeSource, cc: str, needs: Needs, work: Work) -> BuildRequest:
        own = dict(self.kconfig)
        needs |= kconfig.mount_needs(dict(self.settings).get(MOUNT))
        guests = own.pop("arch", architecture.DEFAULT)
        base = self._whole_configuration(own.pop("config", None), work)
        required = tuple(own.items())
        required += kconfig.missing(required, needs.required, base, guests=guests)
        return BuildRequest(
            text=self.text,
            source=source,
            kconfig=required,
            optional=kconfig.missing(required, needs.optional, base, guests=guests),
            base=base,
            compiler=compilers.of_guests(guests, cc),
            guests=guests,
        )

    def _whole_configuration(self, label: str | None, work: Work) -> tuple[Pair, ...]:
        """The configuration of a package or a file, without modules; nothing for none."""
        if label is None:
            return ()
        if label.startswith(kconfig.KEPT):
            return tuple(kconfig.kept(label).items())
        files = debs.labelled(label, self.architecture).obtain(work)
        found = Kernel(spec=self, **asdict(files)).configuration()
        if found is None:
            raise UserError(
                f"the package {label.replace('=', ' ')} does not contain the configuration of its kernel",
                hint="name another one, of which the suite still has the configuration: %config=deb:PACKAGE",
            )
        return tuple(kconfig.of_package(found).items())

    @property
    def architecture(self) -> str:
        own = dict(self.kconfig).get("arch", architecture.DEFAULT)
        return getattr(self.source, "architecture", own)

    @property
    def tree_source(self) -> TreeSource | None:
        """The source, if it is a revision of a git tree."""
        return self.source if isinstance(self.source, TreeSource) else None


def resolve(text: str, tree: Tree | str | None = None, *, progress: Progress = QUIET) -> KernelSpec:
    """The kernel of a spec. Without a tree, revisions are those of `trees.current()`."""
    spec = parse(text)
    source: Source
    note = None
    match spec.kind:
        case "rev":
            source, note = revisions.resolve(spec, tree, progress)
        case "worktree":
            source = revisions.resolve_worktree(spec)
        case "src":
            source = revisions.resolve_source(spec, progress)
        case "file":
            source = file_source.resolve(spec.body, progress)
        case "https" | "http":
            source = file_source.resolve_address(f"{spec.kind}:{spec.body}", progress)
        case word if word in archives.ARCHIVES:
            source = archives.ARCHIVES[word].resolve(spec.body, progress)
        case word:
            source = file_source.resolve_scheme(word, spec.body, progress)
    options = kconfig_of(spec, progress)
    return KernelSpec(text=spec.text, source=source, kconfig=options, settings=spec.settings, note=note)


def kconfig_of(spec: ParsedSpec, progress: Progress = QUIET) -> tuple[Pair, ...]:
    """The kconfig of a spec; `config` names a package at one version, or the content of a file."""
    options = dict(spec.kconfig)
    value = options.get("config")
    if value is None:
        return spec.kconfig
    if value == "distro" and spec.kind != "src":
        raise UserError(
            f"{spec.text}: config=distro is the configuration of the package that a src: tree is the source of",
            hint="name a package, e.g. %config=deb:trixie/6.12",
        )
    if value != "distro" and archives.asked(value) is None:
        if not (path := paths.expanded(value)).is_file():
            wrong = "not a file" if path.exists() else "no such file"
            raise UserError(f"config={value}: {wrong}", hint="a package is written %config=deb:trixie/6.12")
        label = kconfig.keep(path, options.get("arch", architecture.DEFAULT))
        return tuple((options | {"config": label}).items())
    body = spec.body if value == "distro" else value.removeprefix("deb:")
    if (guests := options.get("arch")) and ":" not in body:
        body = f"{body}:{guests}"
    return tuple((options | {"config": debs.resolve(body, progress).label}).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(KernelFiles):
    """A kernel on this machine, with its spec."""

    spec: KernelSpec

    @property
    def guest_architecture(self) -> Architecture:
        return architecture.load(self.architecture)

    def machines(self) -> list[MachineType]:
        """The machine types that it boots on, fastest first."""
        if self.architecture != architecture.DEFAULT:
            return list(self.guest_architecture.boards)
        fast = [MachineType.MICROVM, MachineType.Q35_PVH] if self.vmlinux else []
        return [*fast, MachineType.Q35] if self.bzimage else fast

    def image(self, machine: MachineType) -> Path:
        """The file to boot on a machine type."""
        image = self.vmlinux if architecture.image_of(machine) == "vmlinux" else self.bzimage
        if image is None:
            raise ValueError(f"{self.spec.text} does not boot on {machine}")
        return image

    def configuration(self) -> dict[str, str] | None:
        """The kconfig of its build; None if neither a file nor the image has it."""
        image = self.vmlinux or self.bzimage
        if self.config is not None:
            text: str | None = self.config.read_text()
        else:
            text = files.kconfig_of(image) if image else None
        return kconfig.parse(text) if text else None

    def compiler(self) -> str | None:
        """The version of its compiler, as that prints it; None if neither store nor image say so."""
        if self.spec.tree_source:
            build = store.find(self.key)
            return build.inputs.compiler if build else None
        image = self.vmlinux or self.bzimage
        return files.compiler_of(image) if image else None


def require_one_architecture(architectures: Iterable[tuple[str, str]]) -> None:
    """Refuse arms of several architectures. architectures: the text of each arm's spec, and its architecture."""
    found = list(architectures)
    if len(names := {name for _, name in found}) > 1:
        raise UserError(
            f"the arms are of different architectures: {', '.join(f'{text} is of {name}' for text, name in found)}",
            hint=f"compare kernels of one; --arch {','.join(sorted(names))} measures each and shows them side by side",
        )


def common_machine(*kernels: Kernel) -> MachineType:
    """The fastest machine type that all kernels boot on: both arms get the same guest."""
    require_one_architecture((kernel.spec.text, kernel.architecture) for kernel in kernels)
    for machine in MachineType:
        if all(machine in kernel.machines() for kernel in kernels):
            return machine
    names = ", ".join(f"{kernel.spec.text} ({'/'.join(kernel.machines()) or 'none'})" for kernel in kernels)
    raise UserError(
        f"no machine type boots all of {names}",
        hint="a vmlinux needs CONFIG_PVH; give the bzImage of the same kernel instead",
    )
