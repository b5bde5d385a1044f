"""An atlas of real guests: two kernels of the story, their step with its functions, and a cell that is measured again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import FIX, Lab

pytestmark = [pytest.mark.guest, pytest.mark.build]

PLAN = """\
schema = 1
name = "story"
seeds = 2
workloads = ["alloc-burst:layout-4632k"]
[[series]]
name = "the lab's own"
kernels = ["FIX^", "FIX"]
"""


def test_two_kernels_have_a_step_with_functions_and_a_cell_is_equal_again(story: Lab, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.replace("FIX", FIX))
    assert story.run("atlas", "run", "--plan", str(plan), "--output", str(tmp_path)).returncode == 0
    file = tmp_path / "x86_64.json"
    before = file.read_bytes()
    document = story.json("atlas", "show", "layout-4632k", "--data", str(file))
    (change,) = [one for one in document["changes"] if one["basis"] == "cycles"]
    assert change["verdict"] == "improvement" and change["ratio"] < 0.9
    assert change["functions"] and "cycles" in change["why"][0]
    again = story.run("atlas", "run", "--plan", str(plan), "--output", str(tmp_path))
    assert again.returncode == 0 and file.read_bytes() == before, "nothing is measured twice"
    kernel = json.loads(before)["columns"][1]["id"]
    checked = story.json("atlas", "check", f"layout-4632k@{kernel}", "--data", str(file), "--plan", str(plan))
    assert [one["stored"] == one["again"] for one in checked["cells"]] == [True]
