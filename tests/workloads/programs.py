"""The lab's own workloads as programs, compiled and run on this machine."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab.workloads import selection

needs_compiler = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("make")), reason="needs gcc and make to compile the workload"
)


def build(source: Path, out: Path) -> Path:
    """Compile the folder of a workload into another one."""
    subprocess.run(["make", "-s", "-C", source, f"OUT={out}", "CC=gcc"], check=True, env={"PATH": os.environ["PATH"]})
    return out


def run(program: Path, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program with a seed, and no other variables than these."""
    given = {"LAB_SEED": "1", **env}
    return subprocess.run([program, *words], capture_output=True, text=True, env=given, check=False, timeout=60)


def document_of(name: str, done: subprocess.CompletedProcess[str]) -> Any:
    """The line that a program printed, whose metrics are all declared; the test is skipped if a kernel lacks the case.

    A container may not offer a case either.
    """
    if done.returncode == 4:
        assert done.stdout == "" and done.stderr.startswith(f"{name}: not supported on this kernel: ")
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    document = json.loads(done.stdout)
    assert set(document["metrics"]) <= {metric.name for metric in selection.load(name).metrics}
    return document
