"""An atlas of real guests: two kernels, the step between them with its functions, and a cell again."""

import json
from pathlib import Path

import pytest

from .conftest import NEW, OLD, Lab

pytestmark = pytest.mark.guest

CASE = "alternate-2048k-1400k"
PLAN = f"""\
schema = 1
name = "two"
seeds = 2
workloads = ["alloc-burst:{CASE}"]
[[series]]
name = "two packages"
kernels = ["{OLD}", "{NEW}"]
"""


def test_two_kernels_have_a_step_with_functions_and_a_cell_is_equal_again(lab: Lab, open_folder: Path) -> None:
    plan, file = open_folder / "plan.toml", open_folder / "x86_64.json"
    plan.write_text(PLAN)
    measure = ("atlas", "run", "--plan", str(plan), "--output", str(open_folder))
    done = lab.run(*measure)
    assert done.returncode == 0, done.stderr
    before = file.read_bytes()
    document = lab.json("atlas", "show", CASE, "--data", str(file))
    (change,) = [one for one in document["changes"] if one["basis"] == "cycles"]
    assert change["verdict"] == "regression" and change["ratio"] > 1.05
    assert change["functions"] and "cycles" in change["why"][0]
    assert lab.run(*measure).returncode == 0 and file.read_bytes() == before, "nothing is measured twice"
    kernel = json.loads(before)["columns"][1]["id"]
    checked = lab.json("atlas", "check", f"{CASE}@{kernel}", "--data", str(file), "--plan", str(plan))
    assert [one["stored"] == one["again"] for one in checked["cells"]] == [True]
