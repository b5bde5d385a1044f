"""A guest that goes on from a kept state gives the bytes of one that booted: report, console, modelled costs."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import CACHE, DATA, NEW, OLD, Lab

pytestmark = [pytest.mark.guest]

CASES = "syscalls:getppid,fork-exit,pipe-pingpong,posix-mq"
FILES = ("report.jsonl", "console.log", "costs.jsonl", "user-code.json")


def _folder(lab: Lab) -> Path:
    return lab.home / CACHE / "snapshots"


def _snapshots(lab: Lab) -> list[Path]:
    return [path for path in _folder(lab).iterdir() if path.is_dir()] if _folder(lab).is_dir() else []


@pytest.fixture(autouse=True)
def _none_at_first(lab: Lab) -> None:
    for path in _snapshots(lab):
        shutil.rmtree(path)


def _bytes(lab: Lab, *words: str) -> dict[str, bytes]:
    """All that the guests of a comparison wrote."""
    folder = _folder_of(lab, lab.json("ab", "--base", OLD, "--test", NEW, "--seeds", "2", *words))
    guests = [path for path in sorted((folder / "guests").glob("*/*")) if path.name in FILES]
    assert len(guests) >= 2 * 2 * 3
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in guests}


def _folder_of(lab: Lab, document: Any) -> Path:
    return lab.home / DATA / "results" / str(document["result"])


def _differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


@pytest.mark.smoke
@pytest.mark.parametrize("model", ["tlb", "full"])
def test_a_restored_guest_has_the_bytes_of_one_that_booted(lab: Lab, model: str) -> None:
    words = ("-w", CASES, "--model", model)
    booted = _bytes(lab, *words, "--no-snapshot")
    assert not _snapshots(lab)
    keeping = _bytes(lab, *words)
    kept = {path: (path / "snapshot.json").stat().st_ino for path in _snapshots(lab)}
    assert len(kept) == 2, "one of each kernel"
    restored = _bytes(lab, *words)
    assert {path: (path / "snapshot.json").stat().st_ino for path in _snapshots(lab)} == kept, "none was made again"
    assert _differing(booted, keeping) == _differing(booted, restored) == []


def test_longer_cases_and_other_workloads(lab: Lab) -> None:
    words = ("-w", "alloc-burst", "-w", "hackbench", "-w", "compaction-stall")
    booted, keeping, restored = _bytes(lab, *words, "--no-snapshot"), _bytes(lab, *words), _bytes(lab, *words)
    assert _differing(booted, keeping) == _differing(booted, restored) == []


def test_on_a_pc(lab: Lab) -> None:
    """`%CONFIG_PVH=n` is not needed: packages without vmlinux boot on q35."""
    words = ("-w", "syscalls:getppid,fork-exit")
    kernel = lab.json("kernel", "build", NEW)["kernels"][0]["files"]["bzImage"]

    def run(*more: str) -> dict[str, bytes]:
        document = lab.json(
            "ab", "--base", f"file:{kernel}", "--test", f"file:{kernel}@thp=never", "--seeds", "2", *words, *more
        )
        assert document["environment"]["machine"] == "q35"
        guests = sorted(_folder_of(lab, document).glob("guests/*/*"))
        return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in guests if path.name in FILES}

    booted, keeping, restored = run("--no-snapshot"), run(), run()
    assert len(_snapshots(lab)) == 2
    assert _differing(booted, keeping) == _differing(booted, restored) == []


@pytest.mark.smoke
def test_a_damaged_state_is_made_anew(lab: Lab) -> None:
    words = ("-w", "syscalls:getppid")
    first = _bytes(lab, *words)
    for folder in _snapshots(lab):
        state = folder / "state.zst"
        content = bytearray(state.read_bytes())
        content[len(content) // 2] ^= 1
        state.write_bytes(content)
    assert _differing(first, _bytes(lab, *words)) == []
    assert len(_snapshots(lab)) == 2


def test_where_it_cannot_be_the_guest_boots(lab: Lab) -> None:
    for words in (("-w", "boot"), ("-w", "syscalls:getppid", "--model", "none")):
        _bytes(lab, *words)
        assert not _snapshots(lab), words


def test_a_lab_that_is_killed_leaves_nothing(lab: Lab) -> None:
    words = ("-w", "syscalls:getppid")
    first = _bytes(lab, *words)
    # The boot, the writing of the states and their reading, on fast machines and slow ones.
    for number, moment in enumerate(range(10, 80, 6)):
        if number % 2:
            for path in _snapshots(lab):
                shutil.rmtree(path)
        process = subprocess.Popen(
            lab.command("ab", "--base", OLD, "--test", NEW, "--seeds", "2", *words), cwd="/", env=lab.environment(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        time.sleep(moment / 10)
        process.send_signal(signal.SIGKILL)
        process.wait()
        named = sorted(path.name for path in _folder(lab).glob("*/*"))
        assert set(named) <= {"state.zst", "snapshot.json"}, named
        assert not [path for path in _folder(lab).iterdir() if path.name[0] == "."]
    assert _differing(first, _bytes(lab, *words)) == []
