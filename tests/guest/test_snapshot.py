"""A guest that goes on from a kept state gives the bytes of one that booted: report, console, modelled costs."""

import dataclasses
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lab.compare import result_folders, runs
from lab.compare.measurement import prepare
from lab.compare.plan import ArmPlan, MeasureOptions, Plan
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.guests import snapshot
from lab.guests.run import RunningGuests
from lab.kernels.architecture import MachineType

from .conftest import CACHE, DATA, NEW, OLD, Lab, link_store, new_folder

pytestmark = [pytest.mark.guest]

FILES = ("report.jsonl", "console.log", "costs.jsonl", "user-code.json")


def _folder(lab: Lab) -> Path:
    return Path(lab.home, CACHE, "snapshots")


def _snapshots(lab: Lab) -> list[Path]:
    return [path for path in _folder(lab).iterdir() if path.is_dir()] if _folder(lab).is_dir() else []


@pytest.fixture
def own(lab: Lab) -> Lab:
    """The installed lab in a home of its own, without snapshots."""
    home = new_folder(lab)
    link_store(home)
    snapshots = home / CACHE / "snapshots"
    snapshots.unlink()
    snapshots.mkdir()
    if os.geteuid() == 0:
        shutil.chown(snapshots, lab.user)
    return dataclasses.replace(lab, home=home)


def _bytes(lab: Lab, *words: str, seeds: int = 2) -> dict[str, bytes]:
    """All that the guests of a comparison wrote."""
    folder = Path(lab.home, DATA, "results", lab.ab(OLD, NEW, "--seeds", str(seeds), *words)["result"])
    guests = [path for path in sorted((folder / "guests").glob("*/*")) if path.name in FILES]
    assert len(guests) >= 2 * seeds * 3
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in guests}


def _differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _require_equal(own: Lab, *words: str, seeds: int = 2, states: int = 2) -> None:
    """The same bytes of guests that booted, that leave a state and that continue from it, which is made once."""
    booted = _bytes(own, *words, "--no-snapshot", seeds=seeds)
    assert not _snapshots(own), "it must not"
    keeping = _bytes(own, *words, seeds=seeds)
    kept = {path: (path / "snapshot.json").stat().st_ino for path in _snapshots(own)}
    assert len(kept) == states, "one of each kernel and number of vCPUs"
    restored = _bytes(own, *words, seeds=seeds)
    assert {path: (path / "snapshot.json").stat().st_ino for path in _snapshots(own)} == kept, "none was made again"
    assert _differing(booted, keeping) == _differing(booted, restored) == []


@pytest.mark.smoke
def test_a_restored_guest_has_the_bytes_of_one_that_booted_and_kept_no_state(own: Lab) -> None:
    _require_equal(own, "-w", "syscalls:getppid,fork-exit,pipe-pingpong,posix-mq", seeds=1)


def test_the_state_of_one_seed_serves_the_others_by_the_full_model(own: Lab) -> None:
    _require_equal(own, "-w", "syscalls:fork-exit", "--model", "full")


@pytest.mark.usefixtures("qemu_of_turns")
def test_vcpus_that_contend(own: Lab) -> None:
    """Other vCPUs may have an interrupt to take when the state is kept: on how many vCPUs, the image decides."""
    _require_equal(own, "-w", "contention:fstat,futex-wait", "--cpus", "2,4", states=4)


def test_longer_cases_and_other_workloads(own: Lab) -> None:
    words = ("-w", "alloc-burst", "-w", "hackbench", "-w", "compaction-stall")
    booted, keeping, restored = _bytes(own, *words, "--no-snapshot"), _bytes(own, *words), _bytes(own, *words)
    assert _differing(booted, keeping) == _differing(booted, restored) == []


@pytest.mark.parametrize("machine", ["q35-pvh", "q35"])
def test_on_a_pc(own: Lab, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """A kernel without the fast boot gets these machines; here a package gets them, too."""
    own.json("ab", "--base", NEW, "--test", NEW, "--seeds", "1", "-w", "syscalls:getppid")  # fetches, as the user
    monkeypatch.setenv("XDG_CACHE_HOME", str(own.home / CACHE.parent))
    monkeypatch.setenv("XDG_DATA_HOME", str(own.home / DATA.parent))
    work = Work(progress=Progress(quiet=True))
    options = MeasureOptions(workload=("syscalls:getppid,fork-exit",))
    arm = ArmPlan(spec=options.resolve([NEW], work.progress)[0], cc="gcc")
    guests = prepare(Plan.of(options, base=arm, test=arm), result_folders.new_folder(None), work)
    bench = dataclasses.replace(guests.series[0].bench, machine=MachineType(machine))
    guest = runs.GuestRun(bench=bench, arm=guests.arms[0], seed=3, cases=guests.series[0].cases)

    def run(one: runs.GuestRun = guest) -> tuple[bool, list[bytes]]:
        runs.make_folder(one)
        booted = runs.boot(one, RunningGuests()).booted
        return booted, [(one.folder / name).read_bytes() for name in FILES]

    first, written = run()
    assert first and run() == (False, written)
    assert run(dataclasses.replace(guest, bench=dataclasses.replace(bench, snapshots=False))) == (True, written)
    # QEMU can do nothing with a state that is no guest's.
    place = guest.snapshot()
    assert place is not None
    with snapshot._unnamed(place.folder.parent) as file:
        subprocess.run(["zstd", "-q", "-c"], input=b"no guest" * 1000, stdout=file, check=True)
        place.keep(file, b"", b"")
    assert run() == (True, written), "another one is made"
    assert run() == (False, written)


@pytest.mark.smoke
def test_a_damaged_state_is_made_anew(own: Lab) -> None:
    words = ("-w", "syscalls:getppid")
    first = _bytes(own, *words)
    for folder in _snapshots(own):
        state = folder / "state.zst"
        content = bytearray(state.read_bytes())
        content[len(content) // 2] ^= 1
        state.write_bytes(content)
    assert _differing(first, _bytes(own, *words)) == []
    assert len(_snapshots(own)) == 2


def test_where_it_cannot_be_the_guest_boots(own: Lab) -> None:
    for words in (("-w", "boot"), ("-w", "syscalls:getppid", "--model", "none")):
        own.json("ab", "--base", OLD, "--test", NEW, "--seeds", "1", *words)
        assert not _snapshots(own), words


def test_a_lab_that_is_killed_leaves_nothing(own: Lab) -> None:
    words = ("-w", "syscalls:getppid")
    first = _bytes(own, *words)
    # The boot, the writing of the states and their reading, on fast machines and slow ones.
    for number, moment in enumerate(range(10, 80, 6)):
        if number % 2:
            for path in _snapshots(own):
                shutil.rmtree(path)
        process = subprocess.Popen(
            own.command("ab", "--base", OLD, "--test", NEW, "--seeds", "2", *words), cwd="/", env=own.environment(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        time.sleep(moment / 10)
        process.send_signal(signal.SIGKILL)
        process.wait()
        named = sorted(path.name for path in _folder(own).glob("*/*"))
        assert set(named) <= {"state.zst", "snapshot.json"}, named
        assert not [path for path in _folder(own).iterdir() if path.name[0] == "."]
    assert _differing(first, _bytes(own, *words)) == []
