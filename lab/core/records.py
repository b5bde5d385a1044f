"""Typed records on disk: JSON with a schema number, written by atomic rename."""

from __future__ import annotations

import functools
import hashlib
import logging
import mmap
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from lab.core import paths
from lab.core.errors import HostFailed

T = TypeVar("T")

logger = logging.getLogger(__name__)

_DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_CLOCK = r"([01]\d|2[0-3])(:[0-5]\d){2}(\.\d{1,6})?"
Time = Annotated[str, msgspec.Meta(pattern=rf"^{_DAY}T{_CLOCK}[+-]\d\d:\d\d$")]
"""A time as `now` gives it."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all stored records. An unknown field is an error, so a newer lab's file is never half read."""

    @property
    def contradiction(self) -> str:
        """The first thing in which the record contradicts itself, in words; empty if it does not."""
        return ""


DAMAGED = (msgspec.MsgspecError, ValueError, RecursionError)
"""The errors of decoding bytes that are not such a record. Bytes that are not UTF-8 give a `ValueError`."""


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


def unseal(path: Path) -> None:
    """Take the seal from a file before it changes: if the lab is killed then, no wrong seal is left."""
    _seal_of(path).unlink(missing_ok=True)


def is_changed(path: Path) -> bool:
    """True for a file that has changed since it was sealed; a file without a seal counts as sound."""
    return _seal_of(path).exists() and not is_sealed(path)


def require_unchanged(path: Path) -> None:
    """Raise `HostFailed` for a file that has changed since it was sealed; a file without a seal counts as sound."""
    if is_changed(path):
        raise HostFailed(f"{path} changed since it was written", hint="by the disk or a program; measure again")


def is_sealed(path: Path) -> bool:
    """True for a file that is as it was when it was sealed; False if it is not, or has no seal."""
    try:
        return _seal_of(path).read_bytes() == file_digest(path).encode()
    except FileNotFoundError:
        return False


def remembered_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, calculated once a process while the file keeps its size and its time."""
    status = path.stat()
    return _digest_as(path, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.cache
def _digest_as(path: Path, *_identity: int) -> str:
    return file_digest(path)


def sealed_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, from its seal if it has one."""
    try:
        return _seal_of(path).read_text()
    except FileNotFoundError:
        return file_digest(path)


def _seal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.new")
"""The hidden name of a file that is being written, and that a killed writer leaves. `lab gc` deletes it."""


def write_atomic(path: Path, content: bytes | mmap.mmap) -> None:
    """Write a file so that a reader sees the old or the new one, at any instant and after any crash."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with paths.writing(path):
            try:
                with temporary.open("xb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise HostFailed(f"cannot write {path}: {error.strerror}") from error


def save(path: Path, value: Any) -> None:
    """Write a record as JSON, atomically and sealed."""
    write_atomic(path, sealed(encode(value)))


_SEAL = re.compile(rb'\{"seal":"([0-9a-f]{64})",')
_VALUE = b'"value":'


def sealed(document: bytes) -> bytes:
    """A JSON object with its own SHA-256 as the first member, `seal`; another value as the `value` beside it.

    So a reader notices a bit that turned on the disk, which may leave a document that reads well with another number.
    """
    seal = b'{"seal":"%s",' % hashlib.sha256(document).hexdigest().encode()
    is_object = document[:1] == b"{" and document[1:2] != b"}"
    return seal + document[1:] if is_object else seal + _VALUE + document + b"}"


def unsealed(content: bytes) -> bytes:
    """The sealed document; a `ValueError` if it is another now. A document without a seal counts as sound."""
    found = _SEAL.match(content)
    if found is None:
        return content
    rest = content[found.end() :]
    for document in (b"{" + rest, rest.removeprefix(_VALUE).removesuffix(b"}")):
        if hashlib.sha256(document).hexdigest().encode() == found[1]:
            return document
    raise ValueError("it changed since it was written (its seal does not match)")


def decode(content: bytes, kind: type[T]) -> T:
    """A record from its JSON; raises one of `DAMAGED` for anything else."""
    content = unsealed(content)
    value = msgspec.json.decode(content, type=prepared(kind))
    if isinstance(value, Record):
        schema, known = getattr(value, "schema", None), schema_of(type(value))
        if known is not None and schema != known:
            raise ValueError(f"it has schema {schema!r}, and this lab reads {known!r}")
        if value.contradiction:
            raise ValueError(f"it contradicts itself: {value.contradiction}")
    return value


@functools.cache
def _schema_of(kind: Any) -> Any:
    return next((f.default for f in msgspec.structs.fields(kind) if f.name == "schema" and not f.required), None)


def schema_of(kind: Any) -> Any:
    """The schema that a kind of record is written with; None if the kind has no schema."""
    return _schema_of(kind)


def repeated(values: Iterable[T]) -> T | None:
    """The first value that occurs a second time; None if all differ."""
    counted = Counter(values)
    return next((value for value, count in counted.items() if count > 1), None)


def prepared(kind: type[T]) -> type[T]:
    """The kind of record, ready to be decoded in several threads at once.

    msgspec reads a struct's fields when it first meets the struct. A second thread that meets it at the same time takes
    fields that are not there yet, and the process dies of SIGSEGV (msgspec 0.22). So one thread reads them first.
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


SIZE_MAX = 64 << 20
"""The most bytes of a record: ten times the largest that a suite leaves."""


def bounded(path: Path, most: int = SIZE_MAX) -> Path:
    """A path again; a `ValueError` if its file is larger than any such file should be."""
    if path.stat().st_size > most:
        raise ValueError(f"it is larger than {most >> 20} MiB")
    return path


def load(path: Path, kind: type[T]) -> T:
    """Read a record; `HostFailed` if the file is missing or holds no such record."""
    try:
        return decode(bounded(path).read_bytes(), kind)
    except (OSError, *DAMAGED) as error:
        raise HostFailed(f"{path} is not a readable {kind.__name__} record: {error}") from error


def find(path: Path, kind: type[T]) -> T | None:
    """Read a record that may be missing; None, with a warning, if it is damaged."""
    if not path.exists():
        return None
    try:
        return load(path, kind)
    except HostFailed as error:
        warn_once(error.message)
        return None


def load_each(files: Iterable[Path], kind: type[T]) -> Iterator[tuple[Path, T]]:
    """Each record with its file; a damaged one is named in a warning, and passed over."""
    for path in files:
        if (record := find(path, kind)) is not None:
            yield path, record


def warn_once(message: str) -> None:
    """Warn of something that several parts of a command meet."""
    if message not in _warned:
        _warned.add(message)
        logger.warning("%s", message)


_warned: set[str] = set()
forget_warnings = _warned.clear


def plain(value: Any) -> Any:
    """A record as dicts and lists."""
    return msgspec.to_builtins(value)


def now() -> str:
    """The current time in ISO format, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
