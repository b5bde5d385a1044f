"""Typed records on disk: JSON with a schema number, written by atomic rename."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import secrets
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from lab.core import paths
from lab.core.errors import DiskFull, HostFailed

T = TypeVar("T")


_DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_CLOCK = r"([01]\d|2[0-3])(:[0-5]\d){2}(\.\d{1,6})?"
Time = Annotated[str, msgspec.Meta(pattern=rf"^{_DAY}T{_CLOCK}[+-]\d\d:\d\d$")]
"""A time as `now` gives it."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all stored records. An unknown field is an error, so a newer lab's file is never half read."""


DAMAGED = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding raises of bytes that are no such record. Of bytes that are not UTF-8 it is a `ValueError`."""


def encode(value: Any) -> bytes:
    """JSON with sorted keys: equal values give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, in hex."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def seal(path: Path) -> None:
    """Write a file's digest beside it."""
    write_atomic(_seal_of(path), file_digest(path).encode())


def is_sealed(path: Path) -> bool:
    """True for a file that is as it was when it was sealed; False where it is not, or has no seal."""
    try:
        return _seal_of(path).read_bytes() == file_digest(path).encode()
    except FileNotFoundError:
        return False


def _seal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old or the new one, at any instant and after any crash."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with paths.writing(path), temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except DiskFull:
        temporary.unlink(missing_ok=True)
        raise
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise HostFailed(f"cannot write {path}: {error.strerror}") from error


def save(path: Path, value: Any) -> None:
    """Write a record as JSON, atomically."""
    write_atomic(path, encode(value))


def decode(content: bytes, kind: type[T]) -> T:
    """A record from its JSON; raises one of `DAMAGED` for anything else."""
    if _ENDLESS.search(content):
        raise ValueError("it has a number that is too large")
    return msgspec.json.decode(content, type=prepared(kind))


_ENDLESS = re.compile(rb"[\[:,\s]-?\d{300}")
"""An integer that no float holds: what is calculated with it fails far from here."""


def prepared(kind: type[T]) -> type[T]:
    """The kind of record, ready to be decoded in several threads at once.

    msgspec reads a struct's fields when it first meets the struct. A second thread that meets it meanwhile takes fields
    that are not there yet, and the process dies of SIGSEGV (msgspec 0.22). So one thread reads them first.
    """
    any_kind: Any = kind  # mypy takes a type[T] for unhashable
    _prepare(any_kind)
    return kind


_preparing = threading.Lock()


@functools.cache
def _prepare(kind: Any) -> None:
    with _preparing:
        msgspec.json.Decoder(kind)


def convert(value: Any, kind: type[T]) -> T:
    """A record from dicts and lists; raises one of `DAMAGED` for anything else."""
    return msgspec.convert(value, prepared(kind))


def load(path: Path, kind: type[T]) -> T:
    """Read a record; `HostFailed` where the file is missing or holds no such record."""
    try:
        return decode(path.read_bytes(), kind)
    except (OSError, *DAMAGED) as error:
        raise HostFailed(f"{path} is not a readable {kind.__name__} record: {error}") from error


def plain(value: Any) -> Any:
    """A record as dicts and lists."""
    return msgspec.to_builtins(value)


def now() -> str:
    """The current time in ISO format, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
