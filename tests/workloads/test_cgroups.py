"""cgroups: its table of cases, which two workloads share."""

import re

from lab.core.paths import data_folder
from lab.workloads import selection

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
