"""Strict reading of TOML files: an unknown key is an error, and every error names its file and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import structs

from lab.core import records
from lab.core.errors import UserError, suggestion

SCHEMA = 1
"""The schema of all TOML files that have one."""

SIZE_MAX = 1 << 20
"""The most bytes of a TOML file."""

T = TypeVar("T")
Key = tuple[str | int, ...]


PlanName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z",
        max_length=64,
        description="a name of letters, digits, '.', '_' and '-'",
    ),
]
"""The name of a plan, which becomes part of paths; empty if a file's name stands for it."""


def load(path: Path, kind: type[T]) -> T:
    """The values of a file as a record. `UserError` names the line of an unknown key or a value of a wrong type."""
    return TomlFile(path).convert(kind)


class TomlFile:
    """A TOML file's values, and errors that name the line of one of its keys.

    A key is given by the tables and indices that lead to it: `"metric", 1, "better"`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._text = records.bounded(path, SIZE_MAX).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:  # too large, or not UTF-8
            raise UserError(f"cannot read {path}: {error}") from error
        try:
            self.values: dict[str, Any] = tomllib.loads(self._text)
        except (ValueError, RecursionError) as error:  # numbers and depths that Python refuses, too
            raise self._malformed(str(error)) from error

    def convert(self, kind: type[T]) -> T:
        if (schema := self.values.get("schema", SCHEMA)) != SCHEMA:
            raise self.error(f"schema {schema} is not known; this lab reads {SCHEMA}", "schema")
        try:
            return records.convert(self.values, kind)
        except msgspec.ValidationError:
            raise together(list(self._faults(kind, self.values, ()))) from None

    def error(self, message: str, *key: str | int, hint: str | None = None) -> UserError:
        """An error at the line of a key, or of its table if the key is missing."""
        while key and key not in self._lines:
            key = key[:-1]
        place = f"{self.path}:{self._lines[key]}" if key else str(self.path)
        return UserError(f"{place}: {message}", hint=hint)

    @contextmanager
    def naming(self, *key: str | int) -> Iterator[None]:
        """Give a `UserError` about the value of a key the key's name and line."""
        try:
            yield
        except UserError as error:
            name = next(part for part in reversed(key) if isinstance(part, str))
            raise self.error(f"{name}: {error.message}", *key, hint=error.hint) from error

    def _malformed(self, error: str) -> UserError:
        """tomllib ends its message with "(at line 3, column 7)" or "(at end of document)"."""
        match = re.search(r" \(at line (\d+), column \d+\)$", error)
        line = int(match[1]) if match else max(1, len(self._text.splitlines()))
        return UserError(f"{self.path}:{line}: not valid TOML: {error[: match.start()] if match else error}")

    def _faults(self, kind: Any, value: Any, key: Key) -> Iterator[UserError]:
        """All errors of a value: in its parts, or if they are sound, as a whole."""
        parts = list(self._part_faults(_plain(kind), value, key))
        yield from parts
        if parts:
            return
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            yield self.error(_at(key) + _said(str(error).partition(" - at `$")[0], value, kind), *key)

    def _part_faults(self, kind: Any, value: Any, key: Key) -> Iterator[UserError]:
        if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            fields = {field.encode_name: field for field in structs.fields(kind)}
            meant = ""
            for name in value:
                if name not in fields and kind.__struct_config__.forbid_unknown_fields:
                    meant += suggestion(name, fields) or ""
                    hint = suggestion(name, fields) or f"known: {', '.join(fields)}"
                    yield self.error(f"unknown key {name!r}", *key, name, hint=hint)
            for name, field in fields.items():
                if name in value:
                    yield from self._faults(field.type, value[name], (*key, name))
                elif field.required and not re.search(rf"\b{re.escape(name)}\b", meant):
                    yield self.error(f"{_at(key)}the key {name!r} is missing", *key)
        elif isinstance(value, list) and get_origin(kind) in (list, tuple):
            kinds = get_args(kind)
            for index, item in enumerate(value):
                own = kinds[0] if len(kinds) == 1 or kinds[1] is ... else kinds[min(index, len(kinds) - 1)]
                yield from self._faults(own, item, (*key, index))
        elif isinstance(value, dict) and get_origin(kind) is dict:
            for name, item in value.items():
                yield from self._faults(get_args(kind)[1], item, (*key, name))

    @cached_property
    def _lines(self) -> dict[Key, int]:
        """The line of each key. tomllib keeps no positions, so it reads the statements again, one by one."""
        lines: dict[Key, int] = {}
        table: Key = ()
        sizes: dict[Key, int] = {}
        statement, first = "", 1
        for number, line in enumerate(self._text.split("\n"), start=1):
            statement += line + "\n"
            try:
                values = tomllib.loads(statement)
            except tomllib.TOMLDecodeError:
                continue  # a string or an array of several lines
            if statement.lstrip().startswith("["):
                table = _header(values, sizes)
                for end in range(1, len(table) + 1):
                    lines.setdefault(table[:end], first)
            else:
                _note(lines, table, values, first)
            statement, first = "", number + 1
        return lines


def _header(values: Any, sizes: dict[Key, int]) -> Key:
    """The table that a header begins, as in `[a.b]` or `[[a]]`; sizes: of the arrays of tables so far."""
    table: Key = ()
    while values:
        ((name, values),) = values.items()
        table = (*table, name)
        if isinstance(values, list):
            (values,) = values
            sizes[table] = sizes.get(table, 0) + 1
        if table in sizes:
            table = (*table, sizes[table] - 1)
    return table


def _note(lines: dict[Key, int], key: Key, value: Any, line: int) -> None:
    """Keep the first line of a key, and of those inside an inline table or behind a dot."""
    lines.setdefault(key, line)
    if isinstance(value, dict):
        for name, item in value.items():
            _note(lines, (*key, name), item, line)


def together(faults: Sequence[UserError]) -> UserError:
    """Several errors of a file as one, a line each."""
    if len(faults) == 1:
        return faults[0]
    return UserError("\n".join(f"{one.message} ({one.hint})" if one.hint else one.message for one in faults))


def _at(key: Key) -> str:
    """A key in front of the error in its value: `row[1].name: `."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")
    return f"{name}: " if name else ""


def _plain(kind: Any) -> Any:
    """A type without its constraints, and without None."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        some = [one for one in get_args(kind) if one is not NoneType]
        return _plain(some[0]) if len(some) == 1 else kind
    return kind


_TYPES = {
    "str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "a table", "null": "nothing", "datetime": "a time", "date": "a date",
}  # fmt: skip
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}


def _said(message: str, value: Any, kind: Any) -> str:
    """The words of the lab for an error of msgspec about a value."""
    if match := re.fullmatch(r"Expected `(.*?)`, got `(.*)`", message):
        wanted, found = (" or ".join(_TYPES.get(one, one) for one in each.split(" | ")) for each in match.groups())
        return f"must be {wanted}, not {found}"
    if match := re.fullmatch(r"Expected `.*?` (>=|<=|>|<) (.*)", message):
        return f"{value} is not {_BOUNDS[match[1]]} {match[2]}"
    if match := re.fullmatch(r"Expected `.*?` of length (>=|<=) (\d+)", message):
        return "must not be empty" if match[1] == ">=" and match[2] == "1" else f"length is not {match[1]} {match[2]}"
    if match := re.fullmatch(r"Expected `str` matching regex (.*)", message):
        return f"{value!r} is not {_form(kind) or f'of the form {match[1]}'}"
    if message.startswith("Invalid enum value"):
        return f"{value!r} is none of {', '.join(map(str, _choices(kind)))}"
    return message


def _form(kind: Any) -> str:
    """The words for a type's pattern: the description beside it; empty if it has none."""
    metas = [*get_args(kind)[1:], *(meta for one in get_args(kind) for meta in get_args(one)[1:])]
    return next((meta.description for meta in metas if isinstance(meta, msgspec.Meta) and meta.description), "")


def _choices(kind: Any) -> list[Any]:
    """The values of a Literal or of an enum."""
    plain = _plain(kind)
    return list(get_args(plain)) or list(plain)
