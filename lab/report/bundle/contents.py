"""The contents of a bundle: `bundle.json` and `expected.json`, and the names of its files.

Everything that a guest is started with is here as plain values: the lab that replays a bundle puts QEMU's
arguments together itself, and never takes a command from a file that somebody sent.

`SHA256SUMS`: what every file of a bundle must be. `sha256sum -c SHA256SUMS` checks the same.

It is there against damage. Who changes a file can change its sum, so a bundle is worth as much trust as its sender.
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
from lab.core.text import visible
from lab.guests.exact import ExactGuest, ExactMachine, Qemu
from lab.guests.plugin import Instrument, Model
from lab.kernels.kernel import MachineType
from lab.workloads.spec import Case, Workload

SCHEMA = "lab.bundle/1"
DESCRIPTION = "bundle.json"
EXPECTED = "expected.json"
RESULT = "result.json"
SCRIPT = "run.sh"
REPORTS = "expected.sha256"
MACHINE = "guests/exact.toml"
PLUGIN = "plugin"
#: What run.sh writes; no part of the bundle.
OUT = "out"


class Boot(Record, frozen=True, kw_only=True):
    """The start of the guests of one workload and arm. Paths are those in the bundle."""

    workload: str
    arm: str
    kernel: str
    root: str
    machine: MachineType
    vcpus: int
    memory_mb: int
    append: list[str]
    model: Model | None = None

    @property
    def name(self) -> str:
        """The name of the guest."""
        return f"{self.workload} {self.arm}"


class Guest(Record, frozen=True, kw_only=True):
    """One guest: what it boots is a `Boot`, and the job is what follows the root in its initrd."""

    name: str
    workload: str
    arm: str
    seed: int
    cases: list[str]
    job: str


class Plugin(Record, frozen=True, kw_only=True):
    """The cost plugin: the digest of its sources, and the file of the machine that it models."""

    sources: str
    machine: str


class Bundle(Record, frozen=True, kw_only=True):
    """`bundle.json`. readings: of each workload, how numbers are read from what its program prints."""

    schema: Literal["lab.bundle/1"] = "lab.bundle/1"
    result: str
    boots: list[Boot]
    guests: list[Guest]
    readings: dict[str, dict[str, Any]]
    plugin: Plugin | None = None

    def boot(self, guest: Guest) -> Boot:
        """The start of a guest."""
        return next(boot for boot in self.boots if (boot.workload, boot.arm) == (guest.workload, guest.arm))


class ExpectedGuest(Record, frozen=True, kw_only=True):
    """The output of a guest when it was measured. Digests are those of the files that it wrote, if they were kept."""

    numbers: dict[str, dict[str, float]]
    report_sha256: str | None = None
    costs_sha256: str | None = None


class Expected(Record, frozen=True, kw_only=True):
    """`expected.json`: all guests by name."""

    schema: Literal["lab.expected/1"] = "lab.expected/1"
    guests: dict[str, ExpectedGuest]


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that was read, in its folder."""

    folder: Path
    bundle: Bundle
    expected: Expected
    result: AbResult
    machine: ExactMachine
    readings: dict[str, Workload]


# ---- how a guest is started


def guest_of(boot: Boot, qemu: Qemu, parameters: ExactMachine, instrument: Instrument | None) -> ExactGuest:
    """The guest of a boot."""
    return ExactGuest(
        qemu=qemu,
        machine=boot.machine,
        vcpus=boot.vcpus,
        memory_mb=boot.memory_mb,
        cmdline=boot.append,
        instrument=instrument,
        parameters=parameters,
    )


# ---- reading it back


def reading(workload: Workload, cases: list[Case]) -> dict[str, Any]:
    """A workload as far as its output's reading goes: nothing of where its files were."""
    bare = msgspec.structs.replace(
        workload, folder=Path(), cases=tuple(msgspec.structs.replace(case, file="") for case in cases), files=()
    )
    found: dict[str, Any] = msgspec.to_builtins(bare, enc_hook=str)
    return found


def load(folder: Path) -> Opened:
    """A bundle whose files are known to be whole; `UserError` where they make no sense."""
    bundle = _record(folder / DESCRIPTION, Bundle)
    expected = _record(folder / EXPECTED, Expected)
    _check_sense(folder, bundle, expected)
    return Opened(
        folder=folder,
        bundle=bundle,
        expected=expected,
        result=_record(folder / RESULT, AbResult),
        machine=toml.load(folder / MACHINE, ExactMachine),
        readings={name: _workload(folder, name, raw) for name, raw in bundle.readings.items()},
    )


def _record(path: Path, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(
            f"{path} cannot be read: {error}", hint="it may be of another lab's version; ask for a new bundle"
        ) from error


def _check_sense(folder: Path, bundle: Bundle, expected: Expected) -> None:
    """Every name leads to something, inside the bundle."""
    paths = [path for boot in bundle.boots for path in (boot.kernel, boot.root)]
    paths += [guest.job for guest in bundle.guests] + ([bundle.plugin.machine] if bundle.plugin else [])
    for path in paths:
        if not is_inside(path) or not (folder / path).is_file():
            raise UserError(f"{folder / DESCRIPTION} names {path!r}, which is no file of the bundle")
    boots = {(boot.workload, boot.arm) for boot in bundle.boots}
    for guest in bundle.guests:
        known = (guest.workload, guest.arm) in boots and guest.workload in bundle.readings
        if not known or guest.name not in expected.guests or not re.fullmatch(r"[a-z0-9][a-z0-9._+-]*", guest.name):
            raise UserError(f"{folder / DESCRIPTION}: the guest {guest.name!r} is not described whole")
    if any(boot.model for boot in bundle.boots) and bundle.plugin is None:
        raise UserError(f"{folder / DESCRIPTION}: a model is run, and there is no plugin")


def is_inside(path: str) -> bool:
    """True if a path of a bundle stays in it."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path and "\0" not in path


def _workload(folder: Path, name: str, raw: dict[str, Any]) -> Workload:
    try:
        found = msgspec.convert(raw, Workload, dec_hook=_path)
        for metric in found.metrics:
            if metric.pattern and re.compile(metric.pattern).groups != 1:
                raise UserError(f"{folder / DESCRIPTION}: {name}: {metric.name}: its pattern has not one group")
    except (msgspec.ValidationError, re.error) as error:
        raise UserError(f"{folder / DESCRIPTION}: {name}: {error}") from error
    return found


def _path(kind: type[Any], value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(kind)


def save(folder: Path, bundle: Bundle, expected: Expected, result: AbResult) -> None:
    """Write the records."""
    for name, record in ((DESCRIPTION, bundle), (EXPECTED, expected), (RESULT, result)):
        records.save(folder / name, record)


NAME = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_SHOWN = 5


def write(folder: Path) -> None:
    """List everything in a folder."""
    lines = [f"{records.file_digest(folder / name)}  {name}\n" for name in sorted(_files(folder)) if name != NAME]
    records.write_atomic(folder / NAME, "".join(lines).encode())


def check(folder: Path) -> None:
    """`UserError` naming every file that is not what it was, is gone, or came in addition."""
    listed = _read(folder)
    found = set(_files(folder)) - {NAME}
    problems = [f"{name} is missing" for name in sorted(set(listed) - found)]
    problems += [f"{name} is not in {NAME}" for name in sorted(found - set(listed))]
    problems += [f"{name} is not what it was" for name in sorted(found & set(listed)) if _differs(folder, name, listed)]
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
        found = _LINE.fullmatch(line)
        if not found or not is_inside(found[2]):
            raise UserError(f"{path}: line {number} is no checksum of a file in the bundle", hint="nothing was run")
        listed[found[2]] = found[1]
    return listed


def _files(folder: Path) -> Iterator[str]:
    """All that is below a folder and not itself one, but for what run.sh wrote."""
    for place, folders, files in os.walk(folder):
        if Path(place) == folder and OUT in folders:
            folders.remove(OUT)
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in (*files, *links):
            yield str((Path(place) / name).relative_to(folder))


def _differs(folder: Path, name: str, listed: dict[str, str]) -> bool:
    """A link is never what it was: it would lead out of the bundle."""
    path = folder / name
    return not stat.S_ISREG(path.lstat().st_mode) or records.file_digest(path) != listed[name]
