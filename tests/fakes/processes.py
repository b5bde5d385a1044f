"""Programs that stand in for others, and waits for processes."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so; fail if it is not after a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def lives(pid: int) -> bool:
    """True while a process runs; a zombie does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def program(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path
