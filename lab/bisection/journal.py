"""A search's memory: what was found out about each commit, line by line, each on disk before the next is begun.

A line that a crash tore off is no line: nothing of it was relied on yet. Lines are only ever added; `undo` adds one
that takes an earlier one back.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from lab.bisection.commit_range import Candidate
from lab.core import paths
from lab.core.errors import GuestFailure, HostFailed, LabError
from lab.core.records import Record, now


class Reading(Record, frozen=True, kw_only=True, tag_field="event", tag="reading"):
    """A commit, measured or found untestable.

    values: one a seed of the session, empty when untestable; then `untestable` is the way it failed and `why` says
    more. image: digest of the kernel as booted, and of its settings. same_as: the commit of which that is the same,
    so nothing was run.
    """

    commit: str
    values: list[float] = msgspec.field(default_factory=list)
    untestable: str | None = None
    why: str = ""
    log: str | None = None
    release: str = ""
    kernel: str = ""
    image: str = ""
    same_as: str | None = None
    build_s: float = 0.0
    run_s: float = 0.0
    at: str = ""

    @property
    def failure(self) -> str:
        """The way in which the commit fails, in words."""
        return f"cannot be tested ({self.untestable}): {self.why}"


def untestable(
    candidate: Candidate, kind: GuestFailure, error: LabError | ValueError, *, build_s: float = 0.0
) -> Reading:
    """The reading of a commit that does not build, boot or survive the workload."""
    log = str(error.log) if isinstance(error, LabError) and error.log else None
    why = error.message if isinstance(error, LabError) else str(error)
    return Reading(commit=candidate.id, untestable=kind, why=why, log=log, build_s=round(build_s, 3), at=now())


class Seeds(Record, frozen=True, kw_only=True, tag_field="event", tag="seeds"):
    """The seeds that all commits are measured with, found while measuring the ends."""

    seeds: list[int]


class Built(Record, frozen=True, kw_only=True, tag_field="event", tag="built"):
    """A kernel came to hand for live mode's boots, after so many seconds; `image` as in a reading."""

    commit: str
    kernel: str
    image: str
    release: str
    build_s: float
    at: str = ""


class Boot(Record, frozen=True, kw_only=True, tag_field="event", tag="boot"):
    """One fresh boot of a commit in live mode: what it was for, the metric it gave, and when it was over.

    at_s: on the host's clock, which goes on while the lab does not. samples: the metric's values in that boot.
    """

    commit: str
    phase: str = msgspec.field(name="part")
    value: float
    at_s: float
    run_s: float
    samples: list[float] = msgspec.field(default_factory=list)


class Undone(Record, frozen=True, kw_only=True, tag_field="event", tag="undone"):
    """The reading of a commit, or its last boot, taken back."""

    commit: str
    at: str = ""


Event = Reading | Seeds | Built | Boot | Undone
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


class Journal:
    """The file, and what it says by now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Event] = list(_read(path)) if path.exists() else []

    def append(self, event: Event) -> None:
        """Add a line; it is on disk when this returns. Not for a journal that somebody else writes to."""
        line = msgspec.json.encode(event) + b"\n"
        try:
            with paths.writing(self.path), self.path.open("r+b" if self.path.exists() else "w+b") as stream:
                _drop_torn(stream.fileno(), self.path)
                stream.seek(0, os.SEEK_END)
                stream.write(line)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise HostFailed(f"cannot write {self.path}: {error.strerror}") from error
        self.events.append(event)

    @property
    def readings(self) -> dict[str, Reading]:
        """The readings that stand, by commit, in the order they were made."""
        found: dict[str, Reading] = {}
        for event in self.events:
            match event:
                case Reading():
                    found[event.commit] = event
                case Undone():
                    found.pop(event.commit, None)
        return found

    @property
    def standing(self) -> list[Event]:
        """The events that were not taken back, in the order they happened."""
        found: list[Event] = []
        for event in self.events:
            if isinstance(event, Undone):
                last = max(i for i, one in enumerate(found) if isinstance(one, Boot | Reading))
                del found[last]
            else:
                found.append(event)
        return found

    @property
    def boots(self) -> list[Boot]:
        """Live mode's boots that were not taken back."""
        return [event for event in self.standing if isinstance(event, Boot)]

    @property
    def started(self) -> str:
        """The time of the first kernel; empty before there is one."""
        return min((event.at for event in self.standing if isinstance(event, Built | Reading)), default="")

    @property
    def build_s(self) -> float:
        """Seconds spent on kernels, on those that do not build too."""
        return math.fsum(event.build_s for event in self.standing if isinstance(event, Built | Reading))

    @property
    def run_s(self) -> float:
        """Seconds spent on guests."""
        return math.fsum(event.run_s for event in self.standing if isinstance(event, Boot | Reading))

    @property
    def seeds(self) -> list[int] | None:
        """The session's seeds, once they are settled."""
        return next((event.seeds for event in reversed(self.events) if isinstance(event, Seeds)), None)


def _read(path: Path) -> Iterator[Event]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is torn, or nothing
        try:
            yield _decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise HostFailed(
                f"line {number} of {path} cannot be read: {error}",
                hint="a newer lab wrote it, or the file is damaged; remove the lines from there on to go on before it",
            ) from error


def _drop_torn(descriptor: int, path: Path) -> None:
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.ftruncate(descriptor, whole)


def commit_folder(folder: Path, one: Candidate) -> Path:
    """Where the runs of one commit are."""
    return folder / "commits" / safe_name(one.name)


def put_aside(folder: Path, one: Candidate) -> None:
    """Hide the runs of a commit, so that it is really measured again."""
    place = commit_folder(folder, one)
    aside = place.with_name(f"{place.name}.undone")
    shutil.rmtree(aside, ignore_errors=True)
    if place.exists():
        place.rename(aside)


def safe_name(name: str) -> str:
    """A candidate's name as that of a folder."""
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name)
