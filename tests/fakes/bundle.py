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

# The number depends on the kernel, on the root and on the job, as it does in a real guest.
PROGRAM = """\
#!/bin/sh
if [ "$1" = --version ]; then echo 'QEMU emulator version @VERSION@'; exit; fi
for word; do printf '%s\\n' "$word"; done > argv
while [ $# -gt 0 ]; do
    case $1 in
    -kernel) kernel=$2 ;;
    -initrd) initrd=$2 ;;
    esac
    shift
done
if [ -e "${0%/*}/wrong flags" ] && ! grep -q lab.turn=++ argv; then
    echo 'EFLAGS: 050ee67a Kernel panic - not syncing: Fatal exception in interrupt' > console.log
    exit
fi
number=$(cat -- "$kernel" "$initrd" | cksum | cut -d ' ' -f 1)
echo 'Linux' > console.log
{
    echo '{"t": "hello", "release": "6.99", "clocksource": "tsc", "mem_kb": 1, "cmdline": "quiet", "cpus": 1}'
    numbers='{\\"metrics\\": {\\"throughput\\": '$number', \\"faults\\": 7}}'
    for name in small large; do
        echo '{"t": "begin", "case": "'$name'", "now_ns": 1}'
        echo '{"t": "out", "case": "'$name'", "line": "'"$numbers"'"}'
        echo '{"t": "end", "case": "'$name'", "status": 0, "signal": 0, "oom_kills": 0, "now_ns": 2}'
    done
    echo '{"t": "done", "lines": 7}'
} > report.jsonl
"""


def write_qemu(path: Path, version: str = VERSION) -> Path:
    """The program that stands in for QEMU."""
    path.write_text(PROGRAM.replace("@VERSION@", version))
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
