"""Strict reading of TOML files: an unknown key is an error, and every error names its file and line."""

from __future__ import annotations

import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from lab.core.errors import UserError, suggestion

SCHEMA = 1
"""The schema of all TOML files that have one."""

T = TypeVar("T")
Key = tuple[str | int, ...]


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
            self._text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"cannot read {path}: {error}") from error
        try:
            self.values: dict[str, Any] = tomllib.loads(self._text)
        except (ValueError, RecursionError) as error:  # numbers and depths that Python refuses, too
            raise self._malformed(str(error)) from error

    def convert(self, kind: type[T]) -> T:
        """The values as a record."""
        if (schema := self.values.get("schema", SCHEMA)) != SCHEMA:
            raise self.error(f"schema {schema} is not known; this lab reads {SCHEMA}", "schema")
        try:
            return msgspec.convert(self.values, kind)
        except msgspec.ValidationError as error:
            raise self._invalid(kind, str(error)) from error

    def error(self, message: str, *key: str | int, hint: str | None = None) -> UserError:
        """An error at the line of a key; at that of its table where the key is missing."""
        while key and key not in self._lines:
            key = key[:-1]
        place = f"{self.path}:{self._lines[key]}" if key else str(self.path)
        return UserError(f"{place}: {message}", hint=hint)

    def _malformed(self, error: str) -> UserError:
        """tomllib ends its message with "(at line 3, column 7)" or "(at end of document)"."""
        match = re.search(r" \(at line (\d+), column \d+\)$", error)
        line = int(match[1]) if match else max(1, len(self._text.splitlines()))
        return UserError(f"{self.path}:{line}: not valid TOML: {error[: match.start()] if match else error}")

    def _invalid(self, kind: type, error: str) -> UserError:
        """msgspec ends its message with a path, as in "... - at `$.metric[1].better`"."""
        message, _, place = error.partition(" - at `$")
        if match := re.match(r"\.(\w+)\[\.\.\.\]", place):
            place = self._with_name(kind, match[1], error) + place[match.end() :]
        parts = re.findall(r"\.([^.\[`]+)|\[(\d+)\]", place)
        key: Key = tuple(name or int(index) for name, index in parts)
        if match := re.fullmatch(r"Object contains unknown field `(.*)`", message):
            known = _keys(kind, key)
            hint = suggestion(match[1], known) or f"known: {', '.join(known)}"
            return self.error(f"unknown key {match[1]!r}", *key, match[1], hint=hint)
        if match := re.fullmatch(r"Object missing required field `(.*)`", message):
            message = f"the key {match[1]!r} is missing"
        name = place.strip(".`")
        return self.error(f"{name}: {message}" if name else message, *key)

    def _with_name(self, kind: type, table: str, error: str) -> str:
        """The path of the entry that is wrong in a table of any names, for which msgspec writes `[...]`."""
        for name, value in self.values[table].items():
            try:
                msgspec.convert({**self.values, table: {name: value}}, kind)
            except msgspec.ValidationError as again:
                if str(again) == error:
                    return f".{table}.{name}"
        return f".{table}"

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


def _keys(kind: type, path: Key) -> list[str]:
    """The keys that are known in the table at a path."""
    node: Any = inspect.type_info(kind)
    for part in (*path, None):
        if isinstance(node, inspect.UnionType):
            node = next(option for option in node.types if not isinstance(option, inspect.NoneType))
        if part is None:
            break
        if isinstance(node, inspect.StructType):
            node = next(field.type for field in node.fields if field.encode_name == part)
        else:
            node = node.value_type if isinstance(node, inspect.DictType) else node.item_type
    return [field.encode_name for field in node.fields]
