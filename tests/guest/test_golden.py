"""The numbers of small measurements are those of `golden.json`, or the version of the model was raised.

`make golden` records the table anew.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from lab.core import records
from lab.core.process import run_text
from lab.guests import model_version
from lab.guests.plugin import Model
from lab.kernels import compilers

from . import golden, probe
from .conftest import NEW, Lab
from .golden import Cells, Table

pytestmark = pytest.mark.guest

VERSION = model_version.history()[-1].number
PROBE = {
    Model.COUNT: ("loads 64 3", "strings 777 5", "strings 8192 3", "chase 8", "classes 40"),
    Model.TLB: ("loads 1 100", "loads 64 3", "loads 512 2", "loads 4096 2", "huge 20", "strings 777 5",
                "strings 8192 3", "chase 64", "classes 40"),
    Model.FULL: ("loads 64 3", "loads 4096 2", "huge 20", "strings 777 5", "strings 4096 11", "chase 8", "classes 40"),
}  # fmt: skip
SYSCALLS = ("getppid", "open-close", "pread-4k", "pipe-pingpong", "tcp-pingpong", "fault-anon", "mprotect-private-4k",
            "fork-exec", "signal-deliver")  # fmt: skip
METRICS = (
    "cycles_per_op", "kernel_cycles_p50", "kernel_instructions", "user_instructions", "loads", "stores", "dtlb_misses",
    "itlb_misses",
)  # fmt: skip
CONTENDED = (*METRICS, "moved_lines", "contended_atomics", "queue_cycles")


@pytest.fixture(scope="module")
def of_probe(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Cells:
    """The cells of programs counted by hand."""
    bench = probe.make(lab, tmp_path_factory.mktemp("golden"))
    cells = {}
    for model, cases in PROBE.items():
        bench.measure(*cases, model=model)
        for case, window in bench.known[model].items():
            assert window.kernel["instructions"] == 0, "a tick fell into it"
            counters = {"millicycles": window.millicycles, **window.user}
            cells[f"{case} {model}"] = {name: value for name, value in counters.items() if value}
    return cells


def cells_of(document: Any, metrics: tuple[str, ...]) -> Cells:
    """The cells of a matrix, by case and arm."""
    return {
        f"{cell['workload']}:{cell['case']} {cell['arm']}": {name: cell["means"][name] for name in metrics}
        for cell in document["cells"]
    }


@pytest.fixture(scope="module")
def document(lab: Lab) -> Any:
    """The cases on the package, in guests with and without huge pages."""
    return lab.json(
        "matrix", "--kernel", NEW, "--set", "thp=always,never", "--seeds", "1",
        "-w", f"syscalls:{','.join(SYSCALLS)}", "-w", "alloc-burst:layout-2048k", "-w", "pointer-chase:chase-1m",
    )  # fmt: skip


@pytest.fixture(scope="module")
def contended(lab: Lab, qemu_of_turns: None) -> Any:
    """Cases on several vCPUs, under the QEMU that these need."""
    return lab.json("matrix", "--kernel", NEW, "--set", "thp=always,never", "--seeds", "1",
                    "-w", "contention@4:fault-t,fstat")  # fmt: skip


def surroundings(document: Any) -> dict[str, str]:
    """The kernel, QEMU and toolchain that a document's cells depend on besides the lab."""
    compiler = compilers.identify()
    return {
        "kernel": document["arms"][0]["arm"]["release"],
        "QEMU": document["environment"]["qemu"],
        "compiler": compiler.version,
        "C library": records.file_digest(Path(run_text([compiler.command, "-print-file-name=libc.a"]).strip()))[:16],
    }


@pytest.fixture(scope="module", autouse=True)
def _recorded(request: pytest.FixtureRequest) -> None:
    """Record the table before it is compared, if that was asked for."""
    if "LAB_GOLDEN_RECORD" not in os.environ:
        return
    probed, document, contended = map(request.getfixturevalue, ("of_probe", "document", "contended"))
    table = Table(
        version=VERSION,
        surroundings={"package": surroundings(document), "contended": surroundings(contended)},
        probe=probed,
        package=cells_of(document, METRICS),
        contended=cells_of(contended, CONTENDED),
    )
    golden.record(table, golden.load() if golden.PATH.exists() else None)


@pytest.mark.smoke
def test_programs_counted_by_hand_have_the_numbers_of_the_table(of_probe: Cells) -> None:
    why = golden.complaint(golden.load(), VERSION, "probe", of_probe)
    assert not why, why


@pytest.mark.smoke
def test_cases_on_a_package_have_the_numbers_of_the_table(document: Any) -> None:
    compare("package", surroundings(document), cells_of(document, METRICS))


def test_cases_on_several_vcpus_have_the_numbers_of_the_table(contended: Any) -> None:
    compare("contended", surroundings(contended), cells_of(contended, CONTENDED))


def compare(part: str, around: dict[str, str], measured: Cells) -> None:
    """Compare a part of the table that depends on its surroundings, where these are the recorded ones."""
    table = golden.load()
    if moved := golden.moved(table, part, around):
        pytest.skip(f"the table's numbers are of another environment: {moved}")
    why = golden.complaint(table, VERSION, part, measured)
    assert not why, why
