"""Workloads of the user's, and other people's programs, in real guests: their numbers, and their failures."""

import shutil
from pathlib import Path

import pytest

from ..fakes.processes import program
from .conftest import FIX, NEW, Lab, metrics

pytestmark = pytest.mark.guest


def numbers(document: object, case: str) -> dict[str, tuple[list[float], list[float]]]:
    """The samples of a case in both arms, by metric."""
    return {name: (metric["base"], metric["test"]) for name, metric in metrics(document, case).items()}


def test_a_folder_of_the_users_is_compiled_run_and_read(lab: Lab) -> None:
    """Its sources, a Makefile, a file, and a name that needs care."""
    toucher = lab.home / "my workloads, new" / "toucher"
    shutil.copytree(Path(__file__).with_name("toucher"), toucher, dirs_exist_ok=True)
    document = lab.ab(NEW, f"{NEW}@env.PAGES=500", "--seeds", "1", "-w", f"{toucher}:well,other")
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
    one = story.ab(FIX, FIX, "--seeds", "2", "-w", f"fio:{job}")
    found = numbers(one, "my-job-64k")
    assert found["ios"] == ([500, 500], [500, 500]) and found["iops"][0] == found["iops"][1]
    assert one["environment"]["guests"]["fio"]["cmdline"][0] == "null_blk.queue_mode=2"
    job.write_text(JOB.replace("500", "501"))
    assert "has changed since it was measured" in story.refused(2, "replay", one["result"])


def test_a_stressor_by_name_and_one_that_does_not_exist(lab: Lab) -> None:
    found = numbers(lab.ab(NEW, NEW, "--seeds", "1", "-w", "stress-ng:msync"), "msync")
    assert found["bogo_ops"] == ([20], [20]) and found["cycles_per_op"][0][0] > 0
    assert found["bogo_rate"][0] == found["bogo_rate"][1]
    said = lab.refused(2, "ab", "--base", NEW, "--test", NEW, "-w", "stress-ng:msnyc")
    assert "has no case 'msnyc'; did you mean msync" in said


def test_a_script_of_the_users_prints_its_metrics(lab: Lab) -> None:
    script = lab.home / "count.sh"
    script.write_text("""#!/bin/sh\nseq 1 300 | sort -r | wc -l | sed 's/.*/{"metrics": {"lines": &}}/'\n""")
    document = lab.ab(NEW, NEW, "--seeds", "1", "-w", f"script:{script}")
    found = numbers(document, "count")
    assert found["lines"] == ([300], [300]) and found["elapsed"][0][0] > 1_000_000
    script.write_text("#!/usr/bin/nothing\n")
    done = lab.run("workload", "check", f"script:{script}")
    assert done.returncode == 2 and "needs /usr/bin/nothing" in done.stdout


def test_work_that_a_command_leaves_behind_is_no_gain(lab: Lab) -> None:
    script = program(lab.home / "leave.sh", LEAVES)
    document = lab.ab(NEW, f"{NEW}@env.LATER=1", "--seeds", "3", "--exec", str(script))
    (case,) = document["cases"]
    said = "leaves 0 against 1 processes behind, whose work is in no number"
    found = numbers(document, "leave.sh")["cycles_per_op"]
    assert max(found[1]) < min(found[0]), "the work is not in the number"
    assert metrics(document, "leave.sh")["cycles_per_op"]["reason"] == said
    assert document["verdict"] == "unknown" and case["notes"]
    assert not [note for note in case["notes"] if "behind" in note], "the reason says it already"


LEAVES = """\
work() { seq 1 200 | sort -rn > /dev/null; }
if [ "$LATER" ]; then work & else work; fi
"""
