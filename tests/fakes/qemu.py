"""A program that stands in for QEMU: it boots a kernel that is a file with a number in it, which it measures.

The first line of the kernel's file is its throughput, or `panic`. The job comes from the initrd, as a guest gets it.
FAKE_RUNS names a file that gets a line for each guest, FAKE_RUN_S is how long one takes.
"""

import json
import os
import sys
import time
from pathlib import Path

VERSION = "7.2.22"


def write(path: Path) -> None:
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} {VERSION} "$@"\n')
    path.chmod(0o755)


def _job(initrd: bytes) -> dict[str, list[list[str]]]:
    """The job's lines by their first word."""
    found: dict[str, list[list[str]]] = {}
    for line in initrd[initrd.rindex(b"seed\t") :].split(b"\0")[0].decode().splitlines():
        word, *fields = line.split("\t")
        found.setdefault(word, []).append(fields)
    return found


def _value(fate: float, seed: int, case: str) -> float:
    return fate * (1 + seed % 7 / 100) if case == "large" else 50.0


def boot(argv: list[str]) -> None:
    job = _job(Path(argv[argv.index("-initrd") + 1]).read_bytes())
    fate = Path(argv[argv.index("-kernel") + 1]).read_text().partition("\n")[0]
    seed = int(job["seed"][0][0])
    if path := os.environ.get("FAKE_RUNS"):
        with Path(path).open("a") as stream:
            stream.write(f"{os.environ.get('FAKE_NAME', 'here')} {fate} {seed}\n")
    time.sleep(float(os.environ.get("FAKE_RUN_S", "0")))
    if fate == "panic":
        Path("console.log").write_text("Kernel panic - not syncing: Oh dear\n")
        return
    Path("console.log").write_text("Linux\n")
    rows: list[dict[str, object]] = [
        {"t": "hello", "release": "6.99.0", "clocksource": "tsc", "mem_kb": 6, "cmdline": "quiet", "cpus": 1}
    ]
    for name, *_ in job["case"]:
        line = json.dumps({"metrics": {"throughput": _value(float(fate), seed, name)}})
        rows += [
            {"t": "begin", "case": name, "now_ns": 1},
            {"t": "out", "case": name, "line": line},
            {"t": "end", "case": name, "status": 0, "signal": 0, "oom_kills": 0, "now_ns": 2},
        ]
    rows.append({"t": "done", "lines": len(rows)})
    Path("report.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    if "--version" in sys.argv:
        sys.stdout.write(f"QEMU emulator version {sys.argv[1]}\n")
    else:
        boot(sys.argv[2:])
