"""The C code of an operation, found by the table of operations that a workload's sources end with."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lab.workloads.spec import Workload

_ROW = re.compile(r'^\t\t?\{ "(?P<name>[\w-]+)", (?P<words>[^{}]*) \},?$', re.MULTILINE)
_SIZED = re.compile(r"\.run = (\w+)")


class _Row(NamedTuple):
    """A line of a table: the functions of a case, its preparation last, and the line itself."""

    functions: list[str]
    line: str


@cache
def _files(folder: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(folder.glob("*.c"))}


def of_case(workload: Workload, case: str) -> str:
    """The operation of a case and what is prepared for it, as its source has them; empty where there is no table."""
    for text in _files(workload.folder).values():
        row = _row(text, case)
        if row is not None:
            bodies = [body for name in row.functions if (body := _function(text, name))]
            return "\n\n".join([*bodies, row.line])
    return ""


def _row(text: str, case: str) -> _Row | None:
    """The line of a case; a case of any size has that of its prefix, whose operation all of them share."""
    for match in _ROW.finditer(text):
        name, words = match["name"], [word.strip() for word in match["words"].split(",")]
        if name == case:
            run, prepare = (*words, "NULL")[:2]
            return _Row([run, prepare], match[0].strip())
        if name.endswith("-") and case.startswith(name) and (sized := _SIZED.search(text)):
            return _Row([sized[1], words[0]], f"{match[0].strip()} /* {case.removeprefix(name)} */")
    return None


def _function(text: str, name: str) -> str:
    """The definition of an operation or a preparation."""
    match = re.search(rf"^(?:OPERATION|PREPARE)\({re.escape(name)}\)\n\{{\n.*?^\}}", text, re.MULTILINE | re.DOTALL)
    return match[0] if match else ""
