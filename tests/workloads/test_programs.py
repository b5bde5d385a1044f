"""What holds for all of the lab's own programs: the names that they refuse, and that their bytes are the same."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.core.paths import data_folder
from lab.workloads import selection

from .programs import build, document_of, needs_compiler, run

pytestmark = needs_compiler

REFUSED = {
    "alloc-burst": (
        "", "layout-", "layout-0k", "layout-12q", "layout-4632k-jemalloc", "layout-2m-4m", "layout-65m",
        "layout-99999999999999999999k", "burst-1m-33m", "burst-8m-2m", "sweep-2m",
    ),
    "aio-hugetlbfs": (
        "", "read-", "read-0k", "read-32m", "read-99999999999999999999k", "read-64k-d257",
        "read-64k-d99999999999999999999", "read-64k-registered", "uring-64k-malloc-registered", "write-64k",
    ),
    "compaction-stall": ("fault-80", "fault-0-fresh", "fault-80-aged"),
    "large-alloc": ("", "zero-64-fresh", "zero-6k-fresh", "zero-64k", "zero-99999999999999999999k-fresh"),
    "syscalls": ("nothing", "mprotect-private-5", "mprotect-shared-65m"),
    "latency": ("nothing",),
    "cgroups": ("nothing",),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_names_are_misuse_in_one_line(compiled: Callable[[str], Path], name: str) -> None:
    for case in REFUSED[name]:
        done = run(compiled(name), "--case", case)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), case
        assert done.stderr.startswith(f"{name}: case '{case}': ")
    done = run(compiled(name))
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(f"usage: {name} --case ")


@pytest.mark.parametrize(
    ("name", "files", "row", "groups"),
    [
        ("syscalls", "*.c", r"NAME, \w+,", {"fs", "ipc", "mm", "net", "poll", "process", "sched", "security",
                                            "signal", "time"}),
        ("latency", "*.c", "NAME,", {"timers", "busy", "wake"}),
        # Two workloads share a program, and each has the rows of one function or of some files.
        ("cgroups", "*.c", "NAME, ping_pong,", {"depth", "across"}),
        ("fairness", "*.c", "NAME, compute,", {""}),
        ("contention", "[!c]*.c", ".name = NAME,", {"user", "files", "memory", "ipc"}),
        ("charging", "cgroups.c", ".name = NAME,", {""}),
    ],
)  # fmt: skip
def test_every_row_of_a_program_s_table_is_a_case_of_a_group(name: str, files: str, row: str, groups: set[str]) -> None:
    loaded = selection.load(name)
    sources = (data_folder("workloads") / Path(loaded.program).name).glob(files)
    form = r"^\t\{ " + row.replace("NAME", '"([a-z0-9-]+)"')
    rows = [found for path in sources for found in re.findall(form, path.read_text(), re.MULTILINE)]
    cases = [case.name for case in loaded.cases if not re.fullmatch(loaded.case_pattern, case.name)]
    assert sorted(rows) == sorted(cases)
    assert {case.group for case in loaded.cases} == groups


@pytest.mark.parametrize("case", ["nanosleep", "posix-timer", "setitimer-running", "uring-timeout", "wake-futex"])
def test_a_case_of_latency_gives_all_its_metrics(compiled: Callable[[str], Path], case: str) -> None:
    metrics = document_of("latency", run(compiled("latency"), "--case", case))["metrics"]
    assert set(metrics) == {metric.name for metric in selection.load("latency").metrics}
    assert metrics["ops"] == 500
    assert 0 < metrics["grain"] <= metrics["latency_p50"] <= metrics["latency_p99"] <= metrics["latency_max"]
    assert metrics["grain"] <= metrics["latency_mid"] <= metrics["latency_p99"]


@pytest.mark.parametrize("source", ["workloads/alloc-burst", "images/guest"])
def test_the_same_bytes_from_any_folder(source: str, tmp_path: Path) -> None:
    first, _, rest = source.partition("/")
    here = data_folder(first) / rest
    # The marks' header is found beside the program's folder.
    shutil.copytree(data_folder("workloads") / "include", tmp_path / "other-place" / "workloads" / "include")
    elsewhere = tmp_path / "other-place" / first / rest
    shutil.copytree(here, elsewhere)
    name = "init" if first == "images" else "alloc-burst"
    one = build(here, tmp_path / "one") / name
    two = build(elsewhere, tmp_path / "two" / "deeper") / name
    assert one.read_bytes() == two.read_bytes()
    assert str(tmp_path).encode() not in one.read_bytes()
