"""A comparison that is broken off, in each mode: nothing outlives it, nothing that it measured is lost."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import NEW, OLD, Lab

pytestmark = [pytest.mark.guest, pytest.mark.smoke]

CASES = "alloc-burst:layout-512k,layout-4632k"


def _guests(folder: Path) -> str:
    """The processes of guests whose files are in a folder."""
    argv = ["pgrep", "-f", f"^[^ ]*qemu-system.*{folder}"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _require_none(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while _guests(folder):
        assert time.monotonic() < deadline, "a guest outlived the lab"
        time.sleep(0.05)


@pytest.mark.parametrize(("stop", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_exact_comparison_goes_on_with_what_it_has(
    lab: Lab, open_folder: Path, stop: signal.Signals, status: int
) -> None:
    folder = open_folder / "result"
    words = ("ab", "--base", OLD, "--test", NEW, "--jobs", "1", "-w", CASES, "--seeds", "2", "--result", str(folder))

    def is_measuring() -> bool:
        return bool(list(folder.glob("runs/*.json")) and _guests(folder))

    ended, said = lab.stop_when(is_measuring, stop, *words)
    assert ended == status, said
    assert stop != signal.SIGINT or said.rpartition("--resume ")[2].split()[0] == str(folder)
    _require_none(folder)
    assert not (folder / "result.json").exists()
    kept = {path: path.read_bytes() for path in (folder / "runs").glob("*.json")}
    document = lab.json("ab", "--resume", str(folder))
    assert kept and all(path.read_bytes() == content for path, content in kept.items())
    assert len(list(folder.glob("runs/*.json"))) == 4 > len(kept)
    assert [len(metric["base"]) for case in document["cases"] for metric in case["metrics"] if metric["primary"]] == [
        2, 2,
    ]  # fmt: skip


def test_a_live_comparison_goes_on_with_what_it_has(lab: Lab) -> None:
    folder = lab.home / "live-killed"
    words = ("ab", "--mode", "live", "--accel", "tcg", "--base", OLD, "--test", NEW, "-w", "alloc-burst:layout-4632k")
    words = (*words, "--rounds=2", "--iterations=2", "--result", str(folder))
    process = lab.start(*words, start_new_session=True)
    deadline = time.monotonic() + 600
    while not list(folder.glob("boots/*.json")):
        assert time.monotonic() < deadline, "no guest has ended"
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    _require_none(folder)
    kept = {path: path.read_bytes() for path in folder.glob("boots/*.json")}
    document = lab.json("ab", "--resume", str(folder))
    assert kept and all(path.read_bytes() == content for path, content in kept.items()), "measured twice"
    counted = [one for one in document["live"]["rounds"] if one["state"] in ("kept", "disturbed")]
    assert [one["number"] for one in counted] == [1, 2]
    for one in counted:
        assert sorted(one["order"]) == ["base", "test"]
        for boot in one["boots"]:
            values = boot["values"]["alloc-burst:layout-4632k"]
            assert all(len(found) == 2 for found in values.values())
            assert len(boot["cpus"]) == 1
    assert document["mode"] == "live" and document["verdict"] == "unknown", "two rounds decide nothing"
