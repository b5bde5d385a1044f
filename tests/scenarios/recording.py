"""The terminal recording of the documentation's first page, and its report, from real runs: `make recording`.

Types the README's first comparison and the question after it into a terminal, and keeps what these print, and when, in
asciinema's format, version 2 (https://docs.asciinema.org/manual/asciicast/v2/). Packages and the guest's image should
be there already: what is downloaded and built is recorded, too.
"""

import argparse
import codecs
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pexpect

from lab import report
from lab.core.records import write_atomic
from lab.report import inputs

TOP = Path(__file__).resolve().parents[2]
FILE = TOP / "docs" / "_static" / "first.cast"
PAGE = FILE.with_suffix(".html")
COLUMNS, ROWS = 100, 36
COMMANDS = (
    "lab ab --base deb:trixie-backports/6.16 --test deb:trixie-backports/6.17"
    " -w syscalls:getppid,mprotect-private-4k,mprotect-private-64k,mprotect-private-1m,mprotect-private-4m",
    "lab explain latest --case mprotect-private-4m",
)
TYPING_S = 0.03
PAUSE_S = 1.5
IDLE_S = 0.5
"""A player waits no longer than this between two outputs: a minute of measuring passes in seconds."""

FRAME_S = 0.5
"""Output that comes within this time is one event: a bar moves twice a second."""

_ESTIMATE = re.compile(r"about [0-9.]+ (s|min|h) left")
_RESULT = re.compile(r"result (\d{8}-\d{6}-[0-9a-f]{4})")
_DRAWN_OVER = re.compile(r"\r\x1b\[2K[^\r\n]*(?=\r\x1b\[2K)")

Event = tuple[float, str]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    events, start_s = list[Event](), 0.0
    for line in COMMANDS:
        events += _typed(line, start_s)
        start_s = events[-1][0]
        events += visible(_run(line, start_s))
        start_s = events[-1][0] + PAUSE_S
    write_atomic(FILE, cast(events).encode())
    name = _RESULT.search("".join(text for _, text in events))
    if name is None:
        sys.exit("recording: the output names no result")
    write_atomic(PAGE, report.render("html", inputs.open_comparisons([name[1]])).encode())
    print(f"{FILE.relative_to(TOP)}: {events[-1][0]:.0f} s, {len(events)} events")  # noqa: T201


def cast(events: Iterable[Event]) -> str:
    """A file in asciinema's format: a header, then one line for each output with its time in seconds."""
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "idle_time_limit": IDLE_S}
    header["env"] = {"TERM": "xterm-256color"}
    rows = [header, *([round(time_s, 2), "o", text] for time_s, text in events)]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def visible(events: Iterable[Event]) -> Iterator[Event]:
    """Events without what a bar draws over at once, and without bars that did not move."""
    before = ""
    for time_s, text in events:
        last = _DRAWN_OVER.sub("", text)
        bar = _ESTIMATE.sub("", last)
        if bar != before or not bar.startswith("\r"):
            yield time_s, last
        before = bar


def _typed(line: str, start_s: float) -> Iterator[Event]:
    yield start_s, "\x1b[32m$\x1b[0m "
    for position, letter in enumerate(line):
        yield start_s + PAUSE_S + position * TYPING_S, letter
    yield start_s + PAUSE_S + len(line) * TYPING_S + PAUSE_S / 3, "\r\n"


def _run(line: str, start_s: float) -> Iterator[Event]:
    """What a command prints to a terminal, with the times since the recording began."""
    program, *arguments = line.split()
    terminal = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(Path.home()), **terminal}
    path = str(Path(sys.executable).with_name(program))
    child = pexpect.spawn(path, arguments, dimensions=(ROWS, COLUMNS), env=env, timeout=None)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    began, frame, text = time.monotonic(), 0.0, ""
    while True:
        over = False
        try:
            text += decoder.decode(child.read_nonblocking(1 << 16, timeout=FRAME_S))
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            over = True
        now = time.monotonic() - began
        if text and (over or now - frame >= FRAME_S):
            yield start_s + now, text
            frame, text = now, ""
        if over:
            break
    child.close()
    if child.exitstatus:
        sys.exit(f"recording: {line}: exit status {child.exitstatus}")


if __name__ == "__main__":
    main()
