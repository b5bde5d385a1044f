"""What a step of `lab bisect` costs beside make and QEMU, on a series of patches that are new each time."""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lab.core.paths import data_folder
from lab.kernels import trees

BASE = "main~3"
_FILES = ("mm/memory.c", "mm/rmap.c", "mm/madvise.c", "mm/mprotect.c", "mm/mremap.c", "mm/mlock.c")
_PROOF_ARMS = 2  # the culprit and its parent
_SHIM = """\
#!/bin/bash
{program} "$@"
status=$?
times >> {log}
exit $status
"""


def rows() -> list[tuple[str, str, float]]:
    """(what, at most, seconds): the lab's own CPU for each kernel built and measured, and a step that is stored."""
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        (here / "series").mkdir()
        _series(here / "series")
        first, overhead_s = _searched(here)
        again, _ = _searched(here)
    assert first["changes"][0]["commit"] == again["changes"][0]["commit"]
    kernels = first["measured"] + 2 + _PROOF_ARMS
    stored = statistics.median(step["build_s"] + step["run_s"] for step in again["path"])
    return [
        ("`lab bisect`, a kernel built and measured: CPU without make and QEMU", "1.5 s", overhead_s / kernels),
        ("`lab bisect`, a step whose kernel is stored, one case", "5 s", stored),
    ]


def _series(folder: Path) -> None:
    """Patches that no build has seen, one of them the story's culprit."""
    tree, number = trees.open_tree().source, int(time.time())
    for place, path in enumerate(_FILES):
        lines = tree.git("show", f"{BASE}:{path}").splitlines()[:4]
        context = "".join(f" {line}\n" for line in lines[1:])
        added = f"+const int lab_bench_{place} = {number};\n"
        change = f"@@ -1,4 +1,5 @@\n {lines[0]}\n{added}{context}"
        (folder / f"{2 * place}.patch").write_text(f"--- a/{path}\n+++ b/{path}\n{change}")
    culprit = sorted((data_folder("kernels") / "patches" / "thp-alignment").glob("*.patch"))[1]
    shutil.copy(culprit, folder / "5.patch")


def _searched(here: Path) -> tuple[dict[str, Any], float]:
    """The answer, and the CPU seconds of everything but make and QEMU."""
    bin_, log = here / "bin", here / "times"
    shutil.rmtree(bin_, ignore_errors=True)
    bin_.mkdir()
    log.write_text("")
    for program in ("make", "qemu-system-x86_64"):
        shim = bin_ / program
        shim.write_text(_SHIM.format(program=shutil.which(program), log=log))
        shim.chmod(0o755)
    before = _children_s()
    printed = _run(
        [sys.executable, "-m", "lab", "bisect", "--series", str(here / "series"), "--old", BASE, "--no-speculate",
         "-w", "alloc-burst:layout-4632k", "--qemu", str(bin_ / "qemu-system-x86_64"), "--json"],
        env={**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    return json.loads(printed), _children_s() - before - _spent_s(log)


def _run(words: list[str], **more: Any) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _spent_s(log: Path) -> float:
    """The sum of what `times` said: of bash itself and of the program, user and system, as 0m1.234s."""
    total = 0.0
    for word in log.read_text().split():
        minutes, seconds = word.removesuffix("s").split("m")
        total += 60 * int(minutes) + float(seconds)
    return total


if __name__ == "__main__":
    for what, limit, seconds in rows():
        print(f"{what}: {seconds:.2f} s (at most {limit})")  # noqa: T201
