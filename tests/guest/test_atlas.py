"""An atlas of real guests: two kernels of the story, their step with its functions and commit, and a cell again."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from .conftest import BASE, TEST, Lab

pytestmark = [pytest.mark.guest, pytest.mark.build]

PLAN = """\
schema = 1
name = "story"
seeds = 2
workloads = ["alloc-burst:layout-4632k"]
[[series]]
name = "the lab's own"
kernels = ["BASE", "TEST"]
"""


def test_two_kernels_have_a_step_with_functions_and_a_cell_is_equal_again(story: Lab) -> None:
    folder = story.home / "atlas"
    folder.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        shutil.chown(folder, story.user)
    plan = folder / "plan.toml"
    plan.write_text(PLAN.replace("BASE", BASE).replace("TEST", TEST))
    assert story.run("atlas", "run", "--plan", str(plan), "--output", str(folder)).returncode == 0
    file = folder / "x86_64.json"
    before = file.read_bytes()
    document = story.json("atlas", "show", "layout-4632k", "--data", str(file))
    (change,) = [one for one in document["changes"] if one["basis"] == "cycles"]
    assert change["verdict"] == "regression" and change["ratio"] > 1.05
    assert change["functions"] and "cycles" in change["why"][0]
    again = story.run("atlas", "run", "--plan", str(plan), "--output", str(folder))
    assert again.returncode == 0 and file.read_bytes() == before, "nothing is measured twice"
    kernel = json.loads(before)["columns"][1]["id"]
    checked = story.json("atlas", "check", f"layout-4632k@{kernel}", "--data", str(file), "--plan", str(plan))
    assert [one["stored"] == one["again"] for one in checked["cells"]] == [True]
    found = story.json("atlas", "bisect", "layout-4632k", BASE, TEST, "--data", str(file))
    assert found["subject"] == "mm: align larger anonymous mappings on THP boundaries"
    shown = story.run("atlas", "show", "layout-4632k", "--data", str(file)).stdout
    assert f'bisected: {found["commit"][:12]} ("{found["subject"]}")' in shown
