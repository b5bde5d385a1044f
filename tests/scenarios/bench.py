"""`make bench`: the figures that the project keeps an eye on, with the machine named. Never a test.

make bench                 everything whose kernels are stored or quick
make bench ARGS=--build    also a first build, from an empty cache (minutes)
"""

import argparse
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LAB = [sys.executable, "-m", "lab"]
BASE, TEST = "efa7df3e3bb5^", "efa7df3e3bb5"
SUITE = ("--suite", "quick")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="store_true", help="also time a first build from an empty cache")
    asked = parser.parse_args()
    _lab("kernel", "build", BASE, TEST)
    _lab("image", "build")
    ratios, booted = _model_ratios(), _snapshot_ratios()
    rows = [
        ("`lab --help`", "0.3 s", _timed(lambda: _lab("--help"), 5)),
        ("store hit (`lab kernel build`)", "0.5 s", _timed(lambda: _lab("kernel", "build", TEST), 5)),
        ("boot to the first instruction of the workload", "1 s", _boot_s()),
        ("`lab ab`, one case", "10 s", _timed(lambda: _ab("-w", "alloc-burst:layout-4632k"), 3)),
        ("`lab ab`, whole alloc-burst sweep", "30 s", _timed(_ab, 3)),
        ("kernel, one changed .c file", "15 s", _changed_file_s()),
        ("`lab history trend`, among a million samples", "1 s", _trend_s()),
    ]
    if asked.build:
        rows.append(("kernel, first build, nothing cached", "300 s", _first_build_s()))
    print(f"{_machine()}\n\n| what | at most | measured (median) |\n|---|---|---|")  # noqa: T201
    for name, limit, seconds in rows:
        print(f"| {name} | {limit} | {seconds:.2f} s |")  # noqa: T201
    for model, limit in (("tlb", 1.3), ("full", 3.0)):
        print(f"| a guest with `--model {model}`, to one with none | {limit} | {ratios[model]:.2f} |")  # noqa: T201
    for what, (limit, ratio) in booted.items():
        print(f"| {what}, processor time of `--no-snapshot` to that without | at least {limit} | {ratio:.2f} |")  # noqa: T201


def _lab(*arguments: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [*LAB, *arguments], check=True, capture_output=True, text=True, env={**os.environ, **(env or {})}
    )
    return done.stdout


def _ab(*more: str) -> str:
    return _lab("ab", BASE, TEST, "--json", *more)


def _model_ratios(rounds: int = 5) -> dict[str, float]:
    """How much longer a guest of the sweep runs under each cost model than without: medians, taken in turn."""
    seconds: dict[str, list[float]] = {"none": [], "tlb": [], "full": []}
    for _ in range(rounds):
        for model, taken in seconds.items():
            result = json.loads(
                _ab("-w", "alloc-burst", "--model", model, "--seeds", "1", "--jobs", "1", "--no-snapshot")
            )["result"]
            taken.append(sum(run["wall_s"] for run in _runs(result)))
    return {model: statistics.median(taken) / statistics.median(seconds["none"]) for model, taken in seconds.items()}


def _snapshot_ratios(rounds: int = 3) -> dict[str, tuple[float, float]]:
    """The processor time of comparisons of two packages in which each guest boots, to that with states at hand.

    The first comparison makes the states; the fastest of each kind counts.
    """
    ratios = {}
    for what, limit, words in (("one case", 2.5, ("-w", "syscalls:getppid")), ("`--suite quick`", 1.8, SUITE)):
        taken: dict[str, list[float]] = {"--snapshot": [], "--no-snapshot": []}
        for _ in range(rounds):
            for option, seconds in taken.items():
                before = _children_s()
                _lab("ab", "--base", "deb:6.1", "--test", "deb:6.12", *words, "--json", option)
                seconds.append(_children_s() - before)
        ratios[what] = (limit, min(taken["--no-snapshot"]) / min(taken["--snapshot"]))
    return ratios


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _runs(result: str) -> list[dict[str, float]]:
    from lab.compare import result_folders

    return [
        json.loads(path.read_text()) for path in sorted((result_folders.open_folder(result) / "runs").glob("*.json"))
    ]


def _timed(work: Callable[[], object], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        started = time.monotonic()
        work()
        seconds.append(time.monotonic() - started)
    return statistics.median(seconds)


def _boot_s(rounds: int = 5) -> float:
    """From the start of QEMU until the guest says that it begins the first case."""
    document = json.loads(_ab("-w", "alloc-burst:layout-512k", "--seeds", "1"))
    from lab.compare import result_folders
    from lab.core.progress import Progress
    from lab.guests import channel, image, initrd
    from lab.workloads import selection

    folder = result_folders.open_folder(document["result"])
    run = json.loads((folder / "runs" / "alloc-burst-base-0001.json").read_text())
    workload, cases = selection.select("alloc-burst:layout-512k")
    commands = channel.encode_cases(1, [(case.name, workload.command(case)) for case in cases])
    seconds = []
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        root = initrd.pack_initrd(image.obtain(Progress(quiet=True)), workload).read_bytes()
        (here / "initrd.cpio").write_bytes(root + channel.pack_job(channel.encode_job(), commands))
        argv = [word.replace(str(folder / "guests" / "alloc-burst-base-0001"), name) for word in run["argv"]]
        for _ in range(rounds):
            (here / "report.jsonl").unlink(missing_ok=True)
            started = time.monotonic()
            guest = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
            while b'"begin"' not in _content(here / "report.jsonl") and guest.poll() is None:
                time.sleep(0.002)
            seconds.append(time.monotonic() - started)
            guest.kill()
            guest.wait()
    return statistics.median(seconds)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _patch(folder: Path, number: int) -> Path:
    """A patch to one .c file: another magic number in a message nobody prints."""
    path = folder / f"change-{number}.patch"
    path.write_text(
        "--- a/mm/memory.c\n+++ b/mm/memory.c\n@@ -1,4 +1,5 @@\n \n"
        " // SPDX-License-Identifier: GPL-2.0-only\n"
        f"+const int lab_bench_marker = {number};\n"
        " /*\n  *  linux/mm/memory.c\n"
    )
    return path


def _changed_file_s() -> float:
    """A build after one that differs in one .c file; a fresh change each time, so nothing has it cached."""
    with tempfile.TemporaryDirectory() as name:
        numbers = itertools.count(int(time.time()))
        _lab("kernel", "build", f"{BASE}+{_patch(Path(name), next(numbers))}")
        return _timed(lambda: _lab("kernel", "build", f"{BASE}+{_patch(Path(name), next(numbers))}"), 3)


def _trend_s() -> float:
    """One metric's trend, from the database alone: a year's nights are one series of many."""
    from ..fakes import samples

    with tempfile.TemporaryDirectory() as name:
        path = f"{name}/history.sqlite"
        samples.fill(path, samples=1_000_000)
        return _timed(lambda: samples.trend(path), 5)


def _first_build_s() -> float:
    with tempfile.TemporaryDirectory() as name:
        return _timed(lambda: _lab("kernel", "build", TEST, env={"XDG_CACHE_HOME": name}), 1)


def _machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "?",
    )
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores ({model}), Linux {platform.release()}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
