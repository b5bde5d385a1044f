"""`perf stat` around cases: its events, its output and the summary; an output of perf 6.1 is in tests/data."""

import subprocess
from pathlib import Path

import pytest

from lab.compare import boots
from lab.guests import perf_stat
from lab.guests.channel import CaseOutcome, GuestReport
from lab.guests.perf_stat import HARDWARE, SOFTWARE, WALKS
from lab.workloads import selection

from ..fakes.guest import write_workload

RECORDED = Path(__file__).parents[1] / "data" / "perf-stat-6.1.jsonl"


def line(event: str, value: str, share: float = 100.0) -> str:
    """As perf writes it, see perf-stat(1)."""
    return (
        f'{{"counter-value" : "{value}", "unit" : "", "event" : "{event}", "event-runtime" : 594753, '
        f'"pcnt-running" : {share:.2f}, "metric-value" : 0.000000, "metric-unit" : "(null)"}}'
    )


# ---- reading


def test_what_perf_wrote_on_a_machine_without_a_pmu() -> None:
    found = perf_stat.read(RECORDED.read_text().splitlines())
    assert found.values == {
        "task-clock": 2.027144, "page-faults": 169.0, "context-switches": 4.0, "cpu-migrations": 0.0,
    }  # fmt: skip
    assert found.summary.not_supported == [event.name for event in HARDWARE]
    assert (found.summary.not_counted, found.summary.shares) == ([], {})
    assert found.rest == ["something of its own", '{"not": "of perf"}'], "what the program said stays its own"


def test_events_that_took_turns_say_for_how_long() -> None:
    found = perf_stat.read([line("cycles", "1000.000000"), line("dTLB-load-misses", "500.000000", 45.67)])
    assert found.values == {"cycles": 1000.0, "dTLB-load-misses": 500.0}
    assert found.summary.shares == {"dTLB-load-misses": 45.67}


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '{"event": "cycles"}', "\x1b[0m{", '"event"', "{" * 100])
def test_any_other_line_is_the_programs(text: str) -> None:
    assert perf_stat.read([text]).rest == [text]


# ---- asking


def test_a_host_without_a_pmu_is_known(tmp_path: Path) -> None:
    assert not perf_stat.has_pmu(tmp_path)
    devices = tmp_path / "sys/bus/event_source/devices"
    (devices / "software").mkdir(parents=True)
    assert not perf_stat.has_pmu(tmp_path)
    (devices / "cpu_core").mkdir()
    assert perf_stat.has_pmu(tmp_path)


def test_page_walks_are_asked_for_where_perf_has_a_name_for_them() -> None:
    assert perf_stat.events([]) == (*SOFTWARE, *HARDWARE)
    assert perf_stat.events(["dtlb_load_misses.walk_active", "other"]) == (*SOFTWARE, *HARDWARE, WALKS[0])


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", 139)])
def test_a_program_that_is_killed_is_not_taken_for_one_that_ended_well(script: str, status: int) -> None:
    words = perf_stat.wrap(["sh", "-c", script], SOFTWARE)
    assert words[:5] == ["/usr/bin/perf", "stat", "-j", "-e", "task-clock,page-faults,context-switches,cpu-migrations"]
    # perf itself would give 0 for the signal, so the shell that it starts must not.
    shell = words[words.index("--") + 2 :]
    assert subprocess.run(shell, check=False, capture_output=True).returncode == status


# ---- what a boot gives


def outcome(*said: str) -> CaseOutcome:
    return CaseOutcome(
        name="small", begin_ns=0, end_ns=1, ended=True, status=0, stderr=list(said),
        stdout=['{"metrics": {"throughput": 3.5, "faults": 7}}'],
    )  # fmt: skip


def test_events_stand_beside_the_programs_own_numbers(tmp_path: Path) -> None:
    workload = selection.load(write_workload(tmp_path / "mine"))
    report = GuestReport(cases=[
        outcome("a warning", line("page-faults", "10.000000")),
        outcome(line("page-faults", "11.000000"), line("cycles", "<not counted>")),
        outcome(line("page-faults", "12.000000"), line("cycles", "5.000000", 30)),
    ])  # fmt: skip
    counted = boots._take_events(report)
    values = boots.collect(report, workload, [workload.case("small")], 3, tmp_path, counted)
    assert values["small"] == {
        "throughput": [3.5] * 3, "faults": [7.0] * 3, "perf-page-faults": [10.0, 11.0, 12.0],
        "perf-cycles": [None, None, 5.0],
    }  # fmt: skip
    assert report.cases[0].stderr == ["a warning"]
    total = perf_stat.merge(reading.summary for reading in counted)
    assert (total.pmu, total.shares, total.not_counted) == (True, {"cycles": 30.0}, ["cycles"])


# ---- the summary


def summary(*lines: str) -> perf_stat.PerfSummary:
    return perf_stat.merge([perf_stat.read(lines).summary])


@pytest.mark.parametrize(("lines", "said"), [
    ([line("page-faults", "1"), line("cycles", "1")], "2 events counted all the time"),
    ([line("cycles", "<not supported>")], "no PMU in the guest: software events only"),
    ([line("cycles", "1"), line("instructions", "<not supported>")], "not in the guest's PMU: instructions"),
    ([line("cycles", "1", 40)], "counted in turns and scaled up: cycles 40 % of the time"),
    ([line("cycles", "<not counted>", 0)], "got no counter in some boots: cycles"),
])  # fmt: skip
def test_it_is_said_in_words(lines: list[str], said: str) -> None:
    assert str(summary(*lines)) == said


def test_of_several_boots_the_smallest_share_counts() -> None:
    boots_of = [summary(line("cycles", "1", share)) for share in (80, 35, 60)]
    both = perf_stat.merge([*boots_of, summary(line("cycles", "1"), line("instructions", "<not supported>"))])
    assert both.shares == {"cycles": 35.0} and both.not_supported == ["instructions"]
    seen = perf_stat.merge([both, summary(line("instructions", "7"))])
    assert seen.not_supported == [] and seen.events == ["cycles", "instructions"]
    assert perf_stat.merge([]).pmu is False
