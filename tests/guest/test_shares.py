"""Two distributor's kernels under a program of the user's: whose cost it is, what differed, and what failed."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from .conftest import NEW, OLD, Lab

pytestmark = [pytest.mark.guest, pytest.mark.smoke]

PROGRAM = r"""
#include <lab/mark.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Compares a string of the environment, whose place and length the seed moves. */
static int compare(void)
{
	const char *pad = getenv("LAB_PAD");
	char *copy = strdup(pad ? pad : "");
	volatile int sum = 0;
	double begin;

	copy[strlen(copy) > 60 ? 60 : 0] = 'y';
	begin = seconds();
	lab_window_begin();
	for (int i = 0; i < 2000; i++) {
		syscall(SYS_getppid);
		sum += strcmp(pad, copy);
		lab_operation_end();
	}
	lab_window_end();
	printf("{\"metrics\": {\"rate\": %.3f}}\n", 2000 / (seconds() - begin));
	return 0;
}

/* Works for two thousandths of a second of guest time, whatever it gets done. */
static int race(void)
{
	double begin = seconds();
	int count = 0;

	lab_window_begin();
	while (seconds() - begin < 0.002) {
		syscall(SYS_getppid);
		count++;
		lab_operation_end();
	}
	lab_window_end();
	printf("{\"metrics\": {\"rate\": %d}}\n", count);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "compare"))
		return compare();
	if (argc == 2 && !strcmp(argv[1], "race"))
		return race();
	fputs("cannot do that\n", stderr);
	return 3;
}
"""
TOML = """\
schema = 1
name = "{name}"
story = "a system call, and a comparison of strings whose place the seed moves"
memory_mb = 512
vcpus = 1
measures = "kernel"
program = "/usr/bin/strings"
argv = ["{{case}}"]

[[metric]]
name = "rate"
unit = "op/s"
better = "higher"
primary = true
description = "operations per second of guest time"

"""
MAKEFILE = "$(OUT)/strings: strings.c\n\t$(CC) -O1 -static -I$(LAB_INCLUDE) -o $@ $<\n"


def write(lab: Lab, name: str, *cases: str) -> Path:
    """A workload of the user's with some of the program's cases."""
    folder = lab.home / name
    folder.mkdir(exist_ok=True)
    (folder / "strings.c").write_text(PROGRAM)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "workload.toml").write_text(TOML.format(name=name) + "".join(f'[[case]]\nname = "{c}"\n' for c in cases))
    return folder


@pytest.fixture(scope="module")
def measured(lab: Lab) -> tuple[int, Any, str]:
    """The status, the document and the messages of a comparison one of whose cases fails."""
    done = lab.run("ab", "--base", OLD, "--test", NEW, "-w", str(write(lab, "strings", "compare", "broken")), "--json")
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_case_that_fails_costs_itself(lab: Lab, measured: tuple[int, Any, str]) -> None:
    status, document, said = measured
    assert status == 4 and "Traceback" not in said
    compare, broken = document["cases"]
    assert broken["failed"]["arms"] == ["base", "test"] and broken["failed"]["kind"] == "workload"
    assert broken["failed"]["message"].endswith("strings:broken exited with status 3: cannot do that")
    assert compare["failed"] is None and compare["verdict"] in ("same", "regression", "improvement")
    assert document["reason"].endswith("; 1 of 2 cases failed")
    shown = lab.run("report", document["result"]).stdout
    assert "strings:broken exited with status 3: cannot do that" in shown


def test_the_kernels_share_decides_and_the_programs_own_code_is_named(measured: tuple[int, Any, str]) -> None:
    _, document, _ = measured
    case = document["cases"][0]
    metrics = {metric["name"]: metric for metric in case["metrics"]}
    assert metrics["kernel_cycles"]["primary"]
    own = metrics["user_instructions"]["base"]
    assert max(own) > 1.05 * min(own), "the seed moves the string"
    kernel = metrics["kernel_cycles"]["base"]
    assert statistics.pstdev(kernel) < 0.005 * statistics.fmean(kernel), "and not the kernel"
    (note,) = [note for note in case["notes"] if "depends on the seed" in note]
    assert "strcmp" in note


def test_guests_that_differ_before_any_case_are_told(measured: tuple[int, Any, str]) -> None:
    _, document, _ = measured
    (remark,) = document["remarks"]
    assert "scheduler features" in remark and "PLACE_LAG" in remark


def test_work_that_follows_the_clock_is_refused(lab: Lab) -> None:
    race = write(lab, "race", "race")
    said = lab.run("workload", "check", str(race), "--run", NEW).stdout
    assert "race:race does as much work as the clock lets it" in said and "clocked = true" in said
    said = lab.refused(2, "ab", "--base", NEW, "--test", NEW, "-w", str(race))
    assert "race:race does as much work as the clock lets it" in said
    (race / "workload.toml").write_text((race / "workload.toml").read_text().replace("vcpus", "clocked = true\nvcpus"))
    assert lab.json("ab", "--base", NEW, "--test", NEW, "-w", str(race), "--seeds", "1")["cases"]


def test_a_program_without_marks_has_windows(lab: Lab) -> None:
    script = lab.home / "pipe.sh"
    script.write_text("#!/bin/sh\nseq 200 | wc -l > /dev/null\n")
    script.chmod(0o755)
    document = lab.json("ab", "--base", NEW, "--test", NEW, "-w", f"script:{script}")
    assert document["verdict"] == "same" and document["seeds"] == [1, 2, 3]
    folder = lab.home / ".local/share/kernel-ab-lab/results" / document["result"]
    runs = [json.loads(path.read_text()) for path in (folder / "runs").iterdir()]
    assert all(len(run["windows"]["pipe"]) == 3 for run in runs)
