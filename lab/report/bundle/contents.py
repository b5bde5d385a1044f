"""The contents of a bundle: its records `bundle.json` and `expected.json`, its file names, and `SHA256SUMS`.

The records hold every parameter of a guest as a plain value. The lab that replays a bundle builds QEMU's arguments
from them, and never runs a command from a received file.

`SHA256SUMS` finds damage, not forgery: a person who changes a file can change its sum. `sha256sum -c SHA256SUMS` checks
it without the lab.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from lab.compare.results import AbResult
from lab.core import records, toml
from lab.core.errors import UserError
from lab.core.records import Record
from lab.core.text import NO_PATTERN, visible
from lab.guests.exact import ExactGuest, ExactMachine, Qemu
from lab.guests.plugin import Instrument, Model
from lab.kernels.architecture import MachineType
from lab.workloads.spec import Case, Workload

SCHEMA = "lab.bundle/1"
DESCRIPTION = "bundle.json"
EXPECTED = "expected.json"
RESULT = "result.json"
SCRIPT = "run.sh"
REPORTS = "expected.sha256"
MACHINE = "guests/exact.toml"
PLUGIN = "plugin"
#: The folder that run.sh writes to; it is not part of the bundle.
OUT = "out"


class Boot(Record, frozen=True, kw_only=True):
    """The start of the guests of one workload, arm and turn (see `runs.GuestRun`). Paths are those in the bundle."""

    workload: str
    arm: str
    turn: int = 0
    kernel: str
    root: str
    machine: MachineType
    vcpus: int
    memory_mb: int
    append: list[str]
    model: Model | None = None

    @property
    def name(self) -> str:
        return f"{self.workload} {self.arm}" + (f" turn {self.turn}" if self.turn else "")


class Guest(Record, frozen=True, kw_only=True):
    """One guest. job: the archive that follows the root in its initrd. Its kernel and root are those of its `Boot`."""

    name: str
    workload: str
    arm: str
    seed: int
    cases: list[str]
    job: str
    turn: int = 0

    @property
    def start(self) -> tuple[str, str, int]:
        """The key of its `Boot`."""
        return self.workload, self.arm, self.turn


class Plugin(Record, frozen=True, kw_only=True):
    """The cost plugin: the digest of its sources, and the file of the machine that it models.

    model_version: of the numbers that it gives; 0 in bundles from before there were versions.
    """

    sources: str
    machine: str
    model_version: int = 0


class Bundle(Record, frozen=True, kw_only=True):
    """`bundle.json`. readings: by workload, the rules that read numbers from its program's output."""

    schema: Literal["lab.bundle/1"] = "lab.bundle/1"
    result: str
    boots: list[Boot]
    guests: list[Guest]
    readings: dict[str, dict[str, Any]]
    plugin: Plugin | None = None

    def boot(self, guest: Guest) -> Boot:
        return next(boot for boot in self.boots if (boot.workload, boot.arm, boot.turn) == guest.start)


class ExpectedGuest(Record, frozen=True, kw_only=True):
    """The output of a guest when it was measured: its numbers, and digests of its files if they were kept."""

    numbers: dict[str, dict[str, float]]
    report_sha256: str | None = None
    costs_sha256: str | None = None


class Expected(Record, frozen=True, kw_only=True):
    """`expected.json`: all guests by name."""

    schema: Literal["lab.expected/1"] = "lab.expected/1"
    guests: dict[str, ExpectedGuest]


class BundleFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle's folder and its records."""

    folder: Path
    bundle: Bundle
    expected: Expected
    result: AbResult
    machine: ExactMachine
    readings: dict[str, Workload]


# ---- the guest


def guest_of(boot: Boot, qemu: Qemu, parameters: ExactMachine, instrument: Instrument | None) -> ExactGuest:
    return ExactGuest(
        qemu=qemu,
        machine=boot.machine,
        vcpus=boot.vcpus,
        memory_mb=boot.memory_mb,
        cmdline=boot.append,
        instrument=instrument,
        parameters=parameters,
    )


# ---- reading a bundle


def reading(workload: Workload, cases: list[Case]) -> dict[str, Any]:
    """The rules that read a workload's output, without the paths of its files."""
    bare = msgspec.structs.replace(
        workload, folder=Path(), cases=tuple(msgspec.structs.replace(case, file="") for case in cases), files=()
    )
    rules: dict[str, Any] = msgspec.to_builtins(bare, enc_hook=str)
    return rules


def load(folder: Path) -> BundleFolder:
    """Load a bundle after `check`; `UserError` if its records contradict each other or its files."""
    bundle = _record(folder / DESCRIPTION, Bundle)
    expected = _record(folder / EXPECTED, Expected)
    _check_references(folder, bundle, expected)
    return BundleFolder(
        folder=folder,
        bundle=bundle,
        expected=expected,
        result=_record(folder / RESULT, AbResult),
        machine=toml.load(folder / MACHINE, ExactMachine),
        readings={name: _workload(folder, name, raw) for name, raw in bundle.readings.items()},
    )


def _record(path: Path, kind: type[Any]) -> Any:
    try:
        return records.decode(records.bounded(path).read_bytes(), kind)
    except (OSError, *records.DAMAGED) as error:
        raise UserError(
            f"{path} cannot be read: {error}", hint="another version of the lab may have made it; ask for a new bundle"
        ) from error


def _check_references(folder: Path, bundle: Bundle, expected: Expected) -> None:
    """Refuse records that name a file, a boot or a guest that is not in the bundle."""
    paths = [path for boot in bundle.boots for path in (boot.kernel, boot.root)]
    paths += [guest.job for guest in bundle.guests] + ([bundle.plugin.machine] if bundle.plugin else [])
    for path in paths:
        if not is_inside(path) or not (folder / path).is_file():
            raise UserError(f"{folder / DESCRIPTION} names {path!r}, which is no file of the bundle")
    boots = {(boot.workload, boot.arm, boot.turn) for boot in bundle.boots}
    for guest in bundle.guests:
        is_known = guest.start in boots and guest.workload in bundle.readings
        if not is_known or guest.name not in expected.guests or not re.fullmatch(r"[a-z0-9][a-z0-9._+-]*", guest.name):
            raise UserError(f"{folder / DESCRIPTION}: the description of the guest {guest.name!r} is incomplete")
    if any(boot.model for boot in bundle.boots) and bundle.plugin is None:
        raise UserError(f"{folder / DESCRIPTION}: a guest runs a cost model, but the bundle has no plugin")


def is_inside(path: str) -> bool:
    """True if a path of a bundle stays in it."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path and "\0" not in path


def _workload(folder: Path, name: str, raw: dict[str, Any]) -> Workload:
    try:
        workload = msgspec.convert(raw, records.prepared(Workload), dec_hook=_path)
        for metric in workload.metrics:
            if metric.pattern and re.compile(metric.pattern).groups != 1:
                raise UserError(f"{folder / DESCRIPTION}: {name}: {metric.name}: its pattern has not one group")
    except (msgspec.ValidationError, *NO_PATTERN) as error:
        raise UserError(f"{folder / DESCRIPTION}: {name}: {error}") from error
    return workload


def _path(kind: type[Any], value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(kind)


def save(folder: Path, bundle: Bundle, expected: Expected, result: AbResult) -> None:
    for name, record in ((DESCRIPTION, bundle), (EXPECTED, expected), (RESULT, result)):
        records.write_atomic(folder / name, records.encode(record))


# ---- checksums

NAME = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_SHOWN = 5


def write(folder: Path) -> None:
    """Write the checksums of all files in a folder."""
    lines = [f"{records.file_digest(folder / name)}  {name}\n" for name in sorted(_files(folder)) if name != NAME]
    records.write_atomic(folder / NAME, "".join(lines).encode())


def check(folder: Path) -> None:
    """`UserError` that names every file that was changed, removed or added."""
    listed = _read(folder)
    present = set(_files(folder)) - {NAME}
    problems = [f"{name} is missing" for name in sorted(set(listed) - present)]
    problems += [f"{name} is not in {NAME}" for name in sorted(present - set(listed))]
    problems += [f"{name} was changed" for name in sorted(present & set(listed)) if _differs(folder, name, listed)]
    if problems:
        more = f", and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UserError(
            f"{folder} is damaged: {visible('; '.join(problems[:_SHOWN]))}{more}",
            hint="nothing was run; get the bundle again",
        )


def _read(folder: Path) -> dict[str, str]:
    path = folder / NAME
    if not path.is_file() or path.is_symlink():
        raise UserError(f"{folder} is no bundle, or a damaged one: {NAME} is missing")
    listed = {}
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if not match or not is_inside(match[2]):
            raise UserError(f"{path}: line {number} is no checksum of a file in the bundle", hint="nothing was run")
        listed[match[2]] = match[1]
    return listed


def _files(folder: Path) -> Iterator[str]:
    """Everything below a folder that is not a folder, without the output of run.sh."""
    for parent, folders, files in os.walk(folder):
        if Path(parent) == folder and OUT in folders:
            folders.remove(OUT)
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in (*files, *links):
            yield str((Path(parent) / name).relative_to(folder))


def _differs(folder: Path, name: str, listed: dict[str, str]) -> bool:
    """True for a file with another sum, and for every link, which could lead out of the bundle."""
    path = folder / name
    return not stat.S_ISREG(path.lstat().st_mode) or records.file_digest(path) != listed[name]
