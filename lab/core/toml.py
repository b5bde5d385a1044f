"""Where things are in a TOML file, and errors that name the line. tomllib itself keeps no positions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from lab.core.errors import UserError


class TomlText:
    """A TOML file that is read once, as text and as values."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            self.text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {file}: {error}") from error
        try:
            self.values: dict[str, Any] = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise self._malformed(error) from error

    def wrong(self, line: int | None, what: str, hint: str | None = None) -> UserError:
        """What is wrong, and where."""
        return UserError(f"{self.file}:{line}: {what}" if line else f"{self.file}: {what}", hint=hint)

    def _malformed(self, error: tomllib.TOMLDecodeError) -> UserError:
        """tomllib says where in words: "... (at line 3, column 7)" or "(at end of document)"."""
        found = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        line = int(found[1]) if found else max(1, len(self.text.splitlines()))
        what = str(error)[: found.start()] if found else str(error)
        return self.wrong(line, f"not valid TOML: {what}")

    def line(self, key: str | None, table: str | None = None, index: int | None = None) -> int | None:
        """The line of a key, of its table where the key is not there, or nothing.

        A table is named, and counted where there are several of one name. The text is scanned for headers and
        keys; a multi-line string that looks like either could mislead it. Then the number is wrong, and the
        message is right.
        """
        header = re.compile(r"^\s*\[\[?\s*([\w.-]+)\s*\]\]?")
        assignment = re.compile(r"""^\s*(?:["']([^"']+)["']|([\w.-]+))\s*=""")
        seen: dict[str, int] = {}
        current: tuple[str | None, int | None] = (None, None)
        table_line: int | None = None
        wanted = (table, index if index is not None or table is None else 0)
        for number, line in enumerate(self.text.splitlines(), start=1):
            if found := header.match(line):
                name = found[1]
                current = (name, seen.get(name, 0))
                seen[name] = seen.get(name, 0) + 1
                if current == wanted or (table is None and name == key):
                    table_line = table_line or number
            elif current == wanted and (found := assignment.match(line)) and _is_key(found[1] or found[2], key):
                return number
        return table_line


def _is_key(written: str, key: str | None) -> bool:
    """`a.b = 1` is a line of the key `a` and of `a.b`."""
    return key is not None and (written == key or written.startswith(f"{key}."))
