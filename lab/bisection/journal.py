"""The memory of a search: a line for each event, on disk before the next one begins.

An incomplete last line after a crash is ignored: nothing relied on it yet. Lines are only ever added; `undo` adds a
line that takes an earlier one back.
"""

from __future__ import annotations

import io
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from lab.bisection.commit_range import Candidate
from lab.compare.beliefs import Belief
from lab.core import paths
from lab.core.errors import GuestFailure, HostFailed, LabError
from lab.core.records import DAMAGED, Record, bounded, now, sealed, unsealed


class Reading(Record, frozen=True, kw_only=True, tag_field="event", tag="reading"):
    """A commit, measured or found untestable.

    values: one a seed of the session; none if it is untestable. instructions: the same of the count of instructions
    that stands beside modelled cycles. whole: the same of each metric of the whole cost (`costs.WHOLE`).
    belief: the CPU that its kernel believes in; None without a model.
    left: the processes that its command left behind, on average.
    untestable: the way in which it failed; `why` says more.
    image: a digest of the kernel as booted, and of its settings.
    same_as: an earlier commit with the same image, whose values these are.
    layout: in live mode, the layout that cannot be tested; the commit itself can.
    errors: of a build that failed, in a search among files or hunks: they name the next hunks.
    """

    commit: str
    values: list[float] = msgspec.field(default_factory=list)
    instructions: list[float] = msgspec.field(default_factory=list)
    whole: dict[str, list[float]] = msgspec.field(default_factory=dict)
    belief: Belief | None = None
    left: float = 0.0
    untestable: str | None = None
    why: str = ""
    log: str | None = None
    release: str = ""
    kernel: str = ""
    image: str = ""
    same_as: str | None = None
    layout: int = 0
    build_s: float = 0.0
    run_s: float = 0.0
    at: str = ""
    errors: list[str] = msgspec.field(default_factory=list)

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
    """The seeds of all commits, chosen by the measurement of the ends."""

    seeds: list[int]


class BuiltKernel(Record, frozen=True, kw_only=True, tag_field="event", tag="built"):
    """A kernel for live mode's boots, built or found in the store; `image` as in a reading."""

    commit: str
    layout: int = 0
    kernel: str
    image: str
    release: str
    build_s: float
    at: str = ""


class Boot(Record, frozen=True, kw_only=True, tag_field="event", tag="boot"):
    """One fresh boot of a commit in live mode.

    layout: that of the image; 0 is the usual one. phase: that of the search.
    value: the metric, from the samples.
    at_s: the end of the boot on the host's clock, which continues between two runs of the lab.
    """

    commit: str
    layout: int = 0
    phase: str = msgspec.field(name="part")
    value: float
    at_s: float
    run_s: float
    samples: list[float] = msgspec.field(default_factory=list)


class Undo(Record, frozen=True, kw_only=True, tag_field="event", tag="undone"):
    """The undoing of a commit's reading, or of its last boot."""

    commit: str
    at: str = ""


_HINT = "a newer lab wrote it, or the file is damaged; remove the lines from there on to go on before it"
Event = Reading | Seeds | BuiltKernel | Boot | Undo
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


class Journal:
    """The journal's file and its events."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Event] = list(_read(path)) if path.exists() else []

    def append(self, event: Event) -> None:
        """Add a line; it is on disk when this returns. The file must have no other writer."""
        line = sealed(msgspec.json.encode(event)) + b"\n"
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
    def kept(self) -> list[Event]:
        """The events that were not undone, in the order they happened."""
        kept: list[Event] = []
        for event in self.events:
            if isinstance(event, Undo):
                of_commit = [
                    i for i, e in enumerate(kept) if isinstance(e, Boot | Reading) and e.commit == event.commit
                ]
                if not of_commit:
                    raise HostFailed(f"{self.path} takes back {event.commit}, which it does not have", hint=_HINT)
                del kept[of_commit[-1]]
            else:
                kept.append(event)
        return kept

    @property
    def readings(self) -> dict[str, Reading]:
        """The readings that were not undone, by commit, in the order they were made."""
        return {event.commit: event for event in self.kept if isinstance(event, Reading)}

    @property
    def boots(self) -> list[Boot]:
        """The boots that were not undone."""
        return [event for event in self.kept if isinstance(event, Boot)]

    @property
    def started(self) -> str:
        """The time of the first kernel; empty before there is one."""
        return min((event.at for event in self.kept if isinstance(event, BuiltKernel | Reading)), default="")

    @property
    def build_s(self) -> float:
        """Seconds spent on kernels, failed builds included."""
        return math.fsum(event.build_s for event in self.kept if isinstance(event, BuiltKernel | Reading))

    @property
    def run_s(self) -> float:
        """Seconds spent on guests."""
        return math.fsum(event.run_s for event in self.kept if isinstance(event, Boot | Reading))

    @property
    def seeds(self) -> list[int] | None:
        """The session's seeds, once both ends were measured."""
        return next((event.seeds for event in reversed(self.events) if isinstance(event, Seeds)), None)


def _read(path: Path) -> Iterator[Event]:
    try:
        content = bounded(path).read_bytes()
    except ValueError as error:
        raise HostFailed(f"{path} cannot be read: {error}", hint=_HINT) from error
    for number, line in enumerate(io.BytesIO(content), start=1):
        if not line.endswith(b"\n"):
            return  # torn
        try:
            yield _decoder.decode(unsealed(line.removesuffix(b"\n")))
        except DAMAGED as error:
            raise HostFailed(
                f"line {number} of {path} cannot be read: {error}",
                hint=_HINT,
            ) from error


def _drop_torn(descriptor: int, path: Path) -> None:
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.ftruncate(descriptor, whole)


def commit_folder(folder: Path, candidate: Candidate) -> Path:
    """The folder of one commit's runs."""
    return folder / "commits" / safe_name(candidate.name)


def put_aside(folder: Path, candidate: Candidate) -> None:
    """Hide the runs of a commit, so that it is really measured again."""
    runs = commit_folder(folder, candidate)
    aside = runs.with_name(f"{runs.name}.undone")
    shutil.rmtree(aside, ignore_errors=True)
    if runs.exists():
        runs.rename(aside)


def safe_name(name: str) -> str:
    """A name that a folder may have."""
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name)
