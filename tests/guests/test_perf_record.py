"""Profiles of `perf record`: a report of perf 6.1 is in tests/data; the difference is counted by hand."""

import os
import subprocess
from pathlib import Path

import pytest

from lab.guests import perf_record, perf_stat
from lab.guests.initrd import BUSYBOX
from lab.guests.perf_record import Profile, Symbol

from ..fakes.processes import program

RECORDED = (Path(__file__).parents[1] / "data" / "perf-report-6.1.txt").read_text().splitlines()


def profile(event: str = "cycles", **samples: int) -> Profile:
    """A million of the event a sample."""
    counts = samples.items()
    symbols = [Symbol(name=name, place="kernel", period=count * 10**6, samples=count) for name, count in counts]
    return Profile(event=event, symbols=symbols)


# ---- reading


def test_what_perf_reported_on_a_machine_without_a_pmu() -> None:
    profile, rest = perf_record.read(["mine", "lab-perf-report", *RECORDED, "lab-perf-report-end", "mine, too"])
    assert rest == ["mine", "mine, too"]
    assert profile is not None and profile.event == "cpu-clock", "cycles were asked for"
    first, second, *_ = profile.symbols
    assert first == Symbol(name="iowrite16", place="kernel", period=10010010, samples=10)
    assert second == Symbol(name="__strcmp_evex", place="libc.so.6", period=7007007, samples=7)
    rows = [line for line in RECORDED if "|" in line and not line.startswith("#")]
    assert len(profile.symbols) == len(rows) > 20
    assert sum(symbol.samples for symbol in profile.symbols) == 62, "as its own heading says"


@pytest.mark.parametrize(
    "lines", [[], ["Error:", "The /perf.data data has no samples!"], ["# Samples: 0  of event 'cycles'"]]
)
def test_without_samples_there_is_no_profile(lines: list[str]) -> None:
    assert perf_record.read(["lab-perf-report", *lines, "lab-perf-report-end", "x"]) == (None, ["x"])


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", 139)])
def test_the_status_is_the_programs(tmp_path: Path, script: str, status: int) -> None:
    # The real script, under a shell of this machine, with a stand-in for perf that gives 0 for a signal, as perf does.
    report = "case $1 in report) echo reported; exit ;; esac"
    perf = program(tmp_path / "perf", report, 'while [ "$1" != -- ]; do shift; done', "shift", '"$@"')
    shell = program(tmp_path / "busybox", "shift", 'exec sh "$@"')
    wrapped = perf_record.wrap(["sh", "-c", script])
    words = [word.replace(perf_stat.PERF, str(perf)).replace(BUSYBOX, str(shell)) for word in wrapped]
    done = subprocess.run(words, check=False, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == status
    said = done.stderr.splitlines()
    assert said[said.index("lab-perf-report") :] == ["lab-perf-report", "reported", "lab-perf-report-end"]


# ---- the difference


def test_what_moved_most_comes_first() -> None:
    base, test = profile(clear=400, fault=300, rest=300), profile(clear=600, fault=300, new=100)
    found = perf_record.difference(base, test)
    assert [(one.name, one.base_share, one.test_share) for one in found.symbols] == [
        ("rest", 0.3, 0.0), ("clear", 0.4, 0.6), ("new", 0.0, 0.1), ("fault", 0.3, 0.3),
    ]  # fmt: skip
    # Pooled: p = 1000 / 2000; the error is sqrt(0.25 * 2 / 1000) = 0.02236.
    assert found.symbols[1].errors == pytest.approx(0.2 / 0.0223607, rel=1e-5)
    assert found.symbols[3].errors == 0
    assert str(found) == (
        "share of cycles, 1000 and 1000 samples of one boot each: rest 30.0 % -> 0.0 %; clear 40.0 % -> 60.0 %; "
        "new 0.0 % -> 10.0 %"
    )


def test_what_sampling_alone_can_do_is_no_difference() -> None:
    found = perf_record.difference(profile(clear=40, rest=60), profile(clear=50, rest=50))
    assert [one.name for one in found.symbols] == ["clear", "rest"], "it is kept"
    assert str(found).endswith("no function moved beyond the noise of sampling")


def test_code_without_symbols_is_one_for_each_file() -> None:
    symbols = [Symbol(name=f"0x{n:016x}", place="dash", period=5, samples=1) for n in range(4)]
    one = Profile(event="cycles", symbols=symbols)
    (found,) = perf_record.difference(one, one).symbols
    assert (found.name, found.place, found.base, found.base_share) == ("[no symbol]", "dash", 20, 1.0)


def test_arms_that_were_sampled_differently_are_not_compared() -> None:
    found = perf_record.difference(profile("cycles", a=5), profile("cpu-clock", a=5))
    assert found.symbols == [] and "different events" in str(found)
    assert str(perf_record.difference(None, profile(a=5))) == "perf took no samples: the case is too short for it"
    assert perf_record.difference(None, None).samples == (0, 0)
