"""The metrics of a case, and the errors when they are missing."""

from pathlib import Path

import pytest

from lab.core.errors import GuestFailed
from lab.guests import output
from lab.guests.channel import CaseOutcome, GuestReport
from lab.workloads import selection
from lab.workloads.spec import Workload

from ..fakes.guest import WORKLOAD, write_workload
from ..workloads.test_parsers import FIO, STRESS_NG

MORE = """
[[metric]]
name = "rss"
unit = "KiB"
better = "neither"
parse = "guest"
field = "max_rss_kb"
description = "memory"

[[metric]]
name = "speed"
unit = "x"
better = "higher"
parse = "regex"
pattern = 'speed=(\\S+)'
optional = true
description = "speed"
"""


def workload(tmp_path: Path, text: str = WORKLOAD, top: str = "") -> Workload:
    return selection.load(write_workload(tmp_path / "mine", text.replace("[[metric]]", f"{top}\n[[metric]]", 1)))


def deliver(chosen: Workload, *stdout: str, stderr: tuple[str, ...] = (), **changes: object) -> dict[str, float]:
    """What is found in the outcome of one case."""
    usage = {"max_rss_kb": 77, "elapsed_ns": 5}
    values = {"ended": True, "status": 0, "usage": usage, "stdout": list(stdout), "stderr": list(stderr), **changes}
    outcome = CaseOutcome(name="small", begin_ns=0, **values)  # type: ignore[arg-type]
    output.collect(GuestReport(cases=[outcome]), chosen, [chosen.case("small")], Path("/guest"))
    return outcome.metrics


GOOD = '{"metrics": {"throughput": 4, "faults": 0, "surplus": 9}}'


def test_each_metric_is_read_from_where_it_is(tmp_path: Path) -> None:
    found = deliver(workload(tmp_path, WORKLOAD + MORE), "speed=3 and more", GOOD)
    assert found == {"throughput": 4, "faults": 0, "rss": 77, "speed": 3}
    assert "speed" not in deliver(workload(tmp_path, WORKLOAD + MORE), GOOD), "it is optional"


def test_an_open_workload_keeps_what_is_printed_beside(tmp_path: Path) -> None:
    chosen = workload(tmp_path, top="open_metrics = true")
    assert deliver(chosen, GOOD) == {"throughput": 4, "faults": 0, "surplus": 9}
    with pytest.raises(GuestFailed, match="metric called 'A B'"):
        deliver(chosen, GOOD.replace("surplus", "A B"))


@pytest.mark.parametrize("missing", ["throughput", "faults"], ids=["primary", "secondary"])
def test_a_metric_that_never_arrived_is_an_error_and_no_zero(tmp_path: Path, missing: str) -> None:
    with pytest.raises(GuestFailed, match=f"mine:small never reported its metric {missing}") as caught:
        deliver(workload(tmp_path), GOOD.replace(missing, "else"))
    assert caught.value.kind == "workload" and "optional = true" in str(caught.value.hint)
    assert caught.value.log == Path("/guest/report.jsonl")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ended": False}, "never ended"),
        ({"oom_kills": 1, "status": 137}, r"ran out of memory \(512 MiB\)"),
        ({"error": "No such file", "status": 127}, "could not be started: No such file"),
        ({"signal": 11, "status": 139}, "killed by signal 11: it printed no error"),
        (
            {"status": 4, "stderr": ("x: not supported on this kernel: bpf: Function not implemented",)},
            "is not supported on this kernel: bpf: Function not implemented",
        ),
        ({"status": 4, "stderr": ("no",)}, "exited with status 4: no"),
        ({"status": 2, "stderr": ("first", "cannot map", "")}, "exited with status 2: cannot map"),
        ({"status": 1, "stdout": ["the disk is full"]}, "exited with status 1: the disk is full"),
    ],
)
def test_a_case_that_did_not_end_well(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(GuestFailed, match=f"mine:small .*{words}"):
        deliver(workload(tmp_path), **changes)  # type: ignore[arg-type]


def test_a_cgroup_that_ran_out_of_memory_is_named(tmp_path: Path) -> None:
    chosen = workload(tmp_path)
    (tmp_path / "console.log").write_text("[ 1.0] Memory cgroup out of memory: Killed process 70 (mine)\n")
    outcome = CaseOutcome(name="small", begin_ns=0, ended=True, status=137, oom_kills=1)
    with pytest.raises(GuestFailed, match="mine:small was killed because its cgroup ran out of memory"):
        output._successful(outcome, chosen.case("small"), chosen, tmp_path)


def test_operations_that_were_not_counted_are_an_error(tmp_path: Path) -> None:
    chosen = workload(tmp_path, top='operations = "throughput"')
    assert deliver(chosen, GOOD)["throughput"] == 4
    with pytest.raises(GuestFailed, match=r"counted no operations \(throughput\)"):
        deliver(chosen, GOOD.replace('"throughput": 4', '"throughput": 0'))


def test_the_shipped_workloads_read_the_outputs_they_are_for(tmp_path: Path) -> None:
    for name, lines in (("fio", FIO), ("stress-ng", STRESS_NG)):
        chosen = selection.load(name)
        case = chosen.cases[0]
        outcome = CaseOutcome(name=case.name, begin_ns=0, ended=True, status=0, stdout=lines, usage={"page_faults": 3})
        output.collect(GuestReport(cases=[outcome]), chosen, [case], tmp_path)
        assert outcome.metrics.keys() == {metric.name for metric in chosen.metrics}
        assert outcome.metrics[chosen.primary.name] > 0 and outcome.metrics[chosen.operations] > 0
