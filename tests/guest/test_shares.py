"""Two distributor's kernels under a program of the user's: whose cost it is, what differed, and what failed."""

import json
import shutil
import statistics
from pathlib import Path

import pytest

from ..fakes.processes import program
from .conftest import NEW, OLD, Lab, metrics

pytestmark = [pytest.mark.guest, pytest.mark.smoke]


def write(lab: Lab, name: str, *cases: str) -> Path:
    """A workload of the user's with some of the program's cases."""
    folder = Path(shutil.copytree(Path(__file__).with_name("strings"), lab.home / name, dirs_exist_ok=True))
    text = (folder / "workload.toml").read_text().replace('"strings"', f'"{name}"', 1)
    (folder / "workload.toml").write_text(text + "".join(f'[[case]]\nname = "{case}"\n' for case in cases))
    return folder


def test_a_case_that_fails_costs_itself_and_the_kernels_share_of_the_other_decides(lab: Lab) -> None:
    folder = write(lab, "strings", "compare", "broken")
    done = lab.run("ab", "--base", OLD, "--test", NEW, "-w", str(folder), "--json")
    assert done.returncode == 4 and "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    compare, broken = document["cases"]
    assert broken["failed"]["arms"] == ["base", "test"] and broken["failed"]["kind"] == "workload"
    assert broken["failed"]["message"].endswith("strings:broken exited with status 3: cannot do that")
    assert compare["failed"] is None and compare["verdict"] in ("same", "regression", "improvement")
    assert document["reason"].endswith("; 1 of 2 cases failed")
    shown = lab.run("report", document["result"]).stdout
    assert "strings:broken exited with status 3: cannot do that" in shown
    found = metrics(document, "compare")
    assert found["kernel_cycles"]["primary"]
    own = found["user_instructions"]["base"]
    assert max(own) > 1.05 * min(own), "the seed moves the string"
    kernel = found["kernel_cycles"]["base"]
    assert statistics.pstdev(kernel) < 0.005 * statistics.fmean(kernel), "and not the kernel"
    (note,) = [note for note in document["cases"][0]["notes"] if "depends on the seed" in note]
    assert "strcmp" in note
    (remark,) = document["remarks"]
    assert "scheduler features" in remark and "PLACE_LAG" in remark


def test_work_that_follows_the_clock_is_refused(lab: Lab) -> None:
    race = write(lab, "race", "race")
    said = lab.run("workload", "check", str(race), "--run", NEW).stdout
    assert "race:race does as much work as the clock lets it" in said and "clocked = true" in said
    said = lab.refused(2, "ab", "--base", NEW, "--test", NEW, "-w", str(race))
    assert "race:race does as much work as the clock lets it" in said
    (race / "workload.toml").write_text((race / "workload.toml").read_text().replace("vcpus", "clocked = true\nvcpus"))
    assert lab.ab(NEW, NEW, "-w", str(race), "--seeds", "1")["cases"]


def test_a_program_without_marks_has_windows(lab: Lab) -> None:
    document = lab.ab(NEW, NEW, "-w", f"script:{program(lab.home / 'pipe.sh', 'seq 200 | wc -l > /dev/null')}")
    assert document["verdict"] == "same" and document["seeds"] == [1, 2, 3]
    folder = lab.home / ".local/share/kernel-ab-lab/results" / document["result"]
    runs = [json.loads(path.read_text()) for path in (folder / "runs").iterdir()]
    assert all(len(run["windows"]["pipe"]) == 3 for run in runs)
