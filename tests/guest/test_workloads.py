"""Workloads of the user's, and other people's programs, in real guests: their numbers, and their failures."""

from pathlib import Path

import pytest

from .conftest import FIX, NEW, Lab, samples

pytestmark = pytest.mark.guest

PROGRAM = r"""
#include <lab/mark.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Touches PAGES pages, one operation each. */
int main(void)
{
	long pages = atol(getenv("PAGES"));
	char *memory = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *note = fopen("/workload/note.txt", "r");
	char word[32] = "";

	if (!note || !fgets(word, sizeof(word), note))
		return 3;
	lab_window_begin();
	for (long i = 0; i < pages; i++) {
		memory[i << 12] = 1;
		lab_operation_end();
	}
	lab_window_end();
	printf("touched: %ld pages\nthe note says %s\n", pages, word);
	return 0;
}
"""

MAKEFILE = """\
$(OUT)/toucher: toucher.c
\t$(CC) -O2 -static -I$(LAB_INCLUDE) -o $@ $<
"""

TOML = """\
schema = 1
name = "toucher"
story = "pages touched"
memory_mb = 512
vcpus = 1
program = "/usr/bin/toucher"
files = ["note.txt"]
isolate = true
cmdline = ["lab_test_word=1"]
parse = "regex"

[settings]
thp = "never"

[env]
PAGES = "300"

[[metric]]
name = "touched"
unit = "pages"
better = "higher"
primary = true
pattern = '^touched: (\\d+) pages$'
description = "pages touched"

[[metric]]
name = "page_faults"
unit = "faults"
better = "lower"
parse = "guest"
description = "page faults of the program"

[[case]]
name = "well"
args = ["well"]

[[case]]
name = "other"
args = ["other"]
"""


@pytest.fixture(scope="module")
def toucher(lab: Lab) -> Path:
    """A folder of the user's: sources, a Makefile, a file, and a name that needs care."""
    folder = lab.home / "my workloads, new" / "toucher"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("toucher.c", PROGRAM), ("Makefile", MAKEFILE), ("workload.toml", TOML), ("note.txt", "hi")):
        (folder / name).write_text(text)
    return folder


def numbers(document: object, case: str) -> dict[str, tuple[list[float], list[float]]]:
    found = samples(document)
    return {name.removeprefix(f"{case}."): pair for name, pair in found.items() if name.startswith(f"{case}.")}


def test_a_folder_of_the_users_is_compiled_run_and_read(lab: Lab, toucher: Path) -> None:
    arms = ("--base", NEW, "--test", f"{NEW}@env.PAGES=500", "--seeds", "1")
    document = lab.json("ab", *arms, "-w", f"{toucher}:well,other")
    for case in ("well", "other"):
        found = numbers(document, case)
        assert found["touched"] == ([300], [500])
        base, test = found["page_faults"]
        assert test[0] - base[0] == 200, "with thp=never, one fault a page"
    guest = document["environment"]["guests"]["toucher"]
    assert guest["env"] == {"PAGES": "300"} and guest["settings"] == {"thp": "never"}
    assert guest["commands"]["well"] == ["/usr/bin/toucher", "well"]
    assert document["test"]["settings"]["env.PAGES"] == "500"


JOB = "[mine]\nfilename=/dev/nullb0\nallow_file_create=0\nioengine=psync\ndirect=1\nrw=read\nbs=64k\nnumber_ios=500\n"


@pytest.mark.build  # packages have null_blk as a module, which no guest loads
def test_a_job_file_of_the_users_is_run_as_often_as_it_says(story: Lab) -> None:
    job = story.home / "My job, 64k.fio"
    job.write_text(JOB)
    one = story.json("ab", "--base", FIX, "--test", FIX, "--seeds", "2", "-w", f"fio:{job}")
    found = numbers(one, "my-job-64k")
    assert found["ios"] == ([500, 500], [500, 500]) and found["iops"][0] == found["iops"][1]
    assert one["environment"]["guests"]["fio"]["cmdline"][0] == "null_blk.queue_mode=2"
    job.write_text(JOB.replace("500", "501"))
    assert "has changed since it was measured" in story.refused(2, "replay", one["result"])


def test_a_stressor_by_name_and_one_that_does_not_exist(lab: Lab) -> None:
    arms = ("--base", NEW, "--test", NEW, "--seeds", "1")
    found = numbers(lab.json("ab", *arms, "-w", "stress-ng:msync"), "msync")
    assert found["bogo_ops"] == ([20], [20]) and found["cycles_per_op"][0][0] > 0
    assert found["bogo_rate"][0] == found["bogo_rate"][1]
    said = lab.refused(2, "ab", *arms, "-w", "stress-ng:msnyc")
    assert "has no case 'msnyc'; did you mean msync" in said


def test_a_script_of_the_users_prints_its_metrics(lab: Lab) -> None:
    script = lab.home / "count.sh"
    script.write_text("""#!/bin/sh\nseq 1 300 | sort -r | wc -l | sed 's/.*/{"metrics": {"lines": &}}/'\n""")
    document = lab.json("ab", "--base", NEW, "--test", NEW, "--seeds", "1", "-w", f"script:{script}")
    found = numbers(document, "count")
    assert found["lines"] == ([300], [300]) and found["elapsed"][0][0] > 1_000_000
    script.write_text("#!/usr/bin/nothing\n")
    done = lab.run("workload", "check", f"script:{script}")
    assert done.returncode == 2 and "needs /usr/bin/nothing" in done.stdout
