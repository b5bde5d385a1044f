"""cgroups, compiled on this machine: its table of cases, which two workloads share, and what it refuses."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.core.paths import data_folder
from lab.workloads import selection

from .test_alloc_burst import build

FOLDER = data_folder("workloads") / "cgroups"


def test_every_kind_is_a_case_of_the_workload_that_judges_it() -> None:
    rows = re.findall(r'^\t\{ "([a-z0-9-]+)", (\w+),', (FOLDER / "cgroups.c").read_text(), re.M)
    costs, fairness = selection.load("cgroups"), selection.load("fairness")
    assert [name for name, run in rows if run == "ping_pong"] == [case.name for case in costs.cases]
    assert [name for name, run in rows if run == "compute"] == [case.name for case in fairness.cases]
    assert set(costs.groups) == {"depth", "across"} and all(case.group for case in costs.cases)
    assert costs.program == fairness.program


def test_the_kernels_share_decides_costs_and_the_guests_clock_fairness() -> None:
    costs, fairness = selection.load("cgroups"), selection.load("fairness")
    assert (costs.measures, costs.model, fairness.model) == ("kernel", "tlb", "none")
    for loaded in (costs, fairness):
        assert all("CONFIG_FAIR_GROUP_SCHED" in loaded.kconfig_of(case) for case in loaded.cases)


@pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("make")), reason="needs gcc and make to compile the workload"
)
@pytest.mark.parametrize(
    ("words", "complaint"),
    [(("--case", "nothing"), "case 'nothing': no such case"), ((), "usage: cgroups --case NAME")],
)
def test_other_names_are_misuse(tmp_path: Path, words: tuple[str, ...], complaint: str) -> None:
    program = build(FOLDER, tmp_path) / "cgroups"
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stdout == ""
