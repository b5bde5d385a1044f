"""A result of guests run by a program that stands in for QEMU: what it reports follows from what it is given."""

import dataclasses
from pathlib import Path

import pytest

from lab.compare import comparison, result_folders, runs
from lab.guests import exact
from lab.guests.exact import Qemu
from lab.kernels.kernel import Kernel, KernelSpec
from lab.report.inputs import StoredComparison

from . import work
from .guest import FakeGuests, kernel, plan, pretend, write_workload

VERSION = "7.2.22 (a stand-in)"


def write_qemu(path: Path, version: str = VERSION) -> Path:
    path.write_text(Path(__file__).with_name("qemu.sh").read_text().replace("@VERSION@", version))
    path.chmod(0o755)
    return path


def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StoredComparison:
    """A stored comparison of two kernels, one seed, two cases."""
    measure = runs.measure
    pretend(monkeypatch, tmp_path, FakeGuests(lambda *_: 0.0))
    monkeypatch.setattr(runs, "measure", measure)
    program = write_qemu(tmp_path / "qemu")
    monkeypatch.setattr(exact, "find_qemu", lambda *_, **__: Qemu(path=str(program), version=VERSION, numbers=(7, 2)))
    monkeypatch.setattr(KernelSpec, "obtain", lambda spec, *_, **__: _kernel(tmp_path, Path(spec.source.path).name))
    folder = result_folders.new_folder(tmp_path / "measured")
    asked = plan(write_workload(tmp_path / "mine"), seeds=1, fixed_seeds=True, qemu=str(program))
    result_folders.store_plan(folder, asked)
    result = comparison.measure(asked, folder, work.quiet())
    return StoredComparison(raw=result, folder=folder)


def _kernel(tmp_path: Path, name: str) -> Kernel:
    path = tmp_path / f"kernel-{name}"
    path.write_bytes(f"the kernel of {name}".encode())
    return dataclasses.replace(kernel(name), bzimage=path)
