"""Any spec as a kernel that can be booted: built, unpacked from a package, or a file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from lab.core import paths
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.records import write_atomic
from lab.kernels import build as kernel_build
from lab.kernels import compilers, debs, files, kconfig, store
from lab.kernels.debs import DebSource
from lab.kernels.resolve import FileSource, KernelSpec, TreeSource


class MachineType(StrEnum):
    """How a guest is put together. Both arms of a comparison get the same one."""

    MICROVM = "microvm"  # PVH boot of an uncompressed vmlinux: the fastest
    Q35_PVH = "q35-pvh"  # the same on a PC, for kernels that want one
    Q35 = "q35"  # bzImage through the decompressor: boots anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel at hand. `vmlinux` is there when it can be booted by PVH; `commit` when it came from a tree."""

    spec: KernelSpec
    key: str
    release: str
    commit: str | None
    bzimage: Path | None
    vmlinux: Path | None
    symbols: Path | None

    def machines(self) -> list[MachineType]:
        """The machine types that it boots on, fastest first."""
        fast = [MachineType.MICROVM, MachineType.Q35_PVH] if self.vmlinux else []
        return [*fast, MachineType.Q35] if self.bzimage else fast

    def image(self, machine: MachineType) -> Path:
        """The file to boot on a machine type."""
        chosen = self.bzimage if machine is MachineType.Q35 else self.vmlinux
        if chosen is None:
            raise ValueError(f"{self.spec.text} does not boot on {machine}")
        return chosen


def obtain(spec: KernelSpec, work: Work, *, cc: str = compilers.DEFAULT) -> Kernel:
    """Make a resolved spec bootable: build it, download it, or look at the file."""
    match spec.source:
        case TreeSource() as source:
            build = kernel_build.obtain(spec, work, compiler=compilers.identify(cc))
            folder = store.folder_of(build.key)
            return Kernel(
                spec=spec,
                key=build.key,
                release=build.release,
                commit=source.commit,
                bzimage=folder / "bzImage",
                vmlinux=_bootable(folder / "vmlinux"),
                symbols=folder / "System.map",
            )
        case DebSource() as source:
            folder = debs.fetch_deb(source, progress=work.progress)
            bzimage = next((folder / "boot").glob("vmlinuz-*"))
            symbols = next((folder / "boot").glob("System.map-*"), None)
            return _prebuilt(spec, bzimage, symbols)
        case FileSource() as source:
            return _prebuilt(spec, Path(source.path), None)


def common_machine(*kernels: Kernel) -> MachineType:
    """The fastest machine type that all of them boot on: the guest around both arms is one."""
    for machine in MachineType:
        if all(machine in kernel.machines() for kernel in kernels):
            return machine
    names = ", ".join(f"{kernel.spec.text} ({'/'.join(kernel.machines()) or 'none'})" for kernel in kernels)
    raise UserError(
        f"no machine type boots all of {names}",
        hint="a vmlinux needs CONFIG_PVH; give the bzImage of the same kernel instead",
    )


def _bootable(vmlinux: Path) -> Path | None:
    return vmlinux if files.has_pvh(vmlinux) else None


def _prebuilt(spec: KernelSpec, path: Path, symbols: Path | None) -> Kernel:
    found = files.inspect(path)
    is_bzimage = found.kind == "bzImage"
    return Kernel(
        spec=spec,
        key=found.sha256,
        release=found.release,
        commit=None,
        bzimage=path if is_bzimage else None,
        vmlinux=_unpacked(path, found.sha256) if is_bzimage else _bootable(path),
        symbols=symbols,
    )


def _unpacked(bzimage: Path, sha256: str) -> Path | None:
    """The vmlinux inside a bzImage, unpacked once; None when it cannot be booted by PVH."""
    target = paths.cache_dir("vmlinux") / sha256[:24]
    if not target.exists():
        vmlinux = files.extract_vmlinux(bzimage)
        write_atomic(target, vmlinux if files.has_pvh(vmlinux) else b"")
    return target if target.stat().st_size else None


def configuration(kernel: Kernel) -> dict[str, str] | None:
    """The kconfig that a kernel was built with; None where nothing tells."""
    if isinstance(kernel.spec.source, TreeSource):
        return kconfig.parse((store.folder_of(kernel.key) / "config").read_text())
    image = kernel.bzimage or kernel.vmlinux
    if image is None:
        return None
    beside = next(image.parent.glob(f"config-{kernel.release}"), None)
    text = beside.read_text() if beside else files.kconfig_of(image)
    return kconfig.parse(text) if text else None
