"""Workloads: what is measured. A folder with a program, and a `workload.toml` on how to run and judge it."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from lab import rooms
from lab.errors import UserError

SCHEMA = 1
FILE_NAME = "workload.toml"

_NAME = r"^[a-z0-9][a-z0-9._-]*\Z"
Name = Annotated[str, msgspec.Meta(pattern=_NAME, max_length=64)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
GuestPath = Annotated[str, msgspec.Meta(pattern=r"^/[^\s]+\Z")]
CostModel = Literal["none", "tlb", "full"]
Better = Literal["higher", "lower", "neither"]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A number that a case gives."""

    name: Name
    unit: Text
    better: Better
    description: Text
    primary: bool = False


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One variation of a workload. A control is expected not to change."""

    name: Name
    control: bool = False
    note: str = ""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A program, its cases and its metrics."""

    name: Name
    story: Text
    memory_mb: Annotated[int, msgspec.Meta(ge=64)]
    vcpus: Annotated[int, msgspec.Meta(ge=1, le=64)]
    program: GuestPath
    argv: tuple[str, ...]
    metrics: tuple[Metric, ...]
    cases: tuple[Case, ...]
    case_pattern: str = ""
    extra_files: tuple[GuestPath, ...] = ()
    model: CostModel = "tlb"
    folder: Path

    @property
    def files(self) -> tuple[str, ...]:
        """What of the guest image a case needs: its program first."""
        return (self.program, *self.extra_files)

    @property
    def primary(self) -> Metric:
        """The metric a verdict is about."""
        return next(metric for metric in self.metrics if metric.primary)

    def metric(self, name: str) -> Metric:
        """One metric by name; `KeyError` if the workload does not declare it."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(name)

    def case(self, name: str) -> Case:
        """A case of the sweep, or one made up on the spot that fits the workload's pattern."""
        for case in self.cases:
            if case.name == name:
                return case
        if self.case_pattern and re.fullmatch(self.case_pattern, name):
            return Case(name=name, note="not in the default sweep")
        raise UserError(
            f"workload {self.name} has no case {name!r}",
            hint=_suggestion(name, [case.name for case in self.cases]) or f"`lab workload show {self.name}` lists them",
        )

    def command(self, case: Case) -> list[str]:
        """The argument list that runs a case inside the guest."""
        return [self.program, *(word.replace("{case}", case.name) for word in self.argv)]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """`workload.toml` as it is written: tables are in the singular there."""

    schema: int
    name: Name
    story: Text
    memory_mb: Annotated[int, msgspec.Meta(ge=64)]
    vcpus: Annotated[int, msgspec.Meta(ge=1, le=64)]
    program: GuestPath
    argv: tuple[str, ...]
    metric: Annotated[tuple[Metric, ...], msgspec.Meta(min_length=1)]
    case: Annotated[tuple[Case, ...], msgspec.Meta(min_length=1)]
    case_pattern: str = ""
    extra_files: tuple[GuestPath, ...] = ()
    model: CostModel = "tlb"


_TABLES: dict[str, type[msgspec.Struct]] = {"metric": Metric, "case": Case}


def list_workloads() -> list[Workload]:
    """The workloads that come with the lab, by name."""
    return [load(name) for name in _shipped()]


def load(ref: str) -> Workload:
    """A workload by its name, or by the path of its folder (`./mine`, `/somewhere/mine`)."""
    if _is_path(ref):
        file = Path(ref) / FILE_NAME
        if not file.is_file():
            raise UserError(f"{ref} is not a workload: it has no {FILE_NAME}")
    elif ref in _shipped():
        file = rooms.room("workloads") / ref / FILE_NAME
    else:
        known = _shipped()
        raise UserError(
            f"no workload is called {ref!r}",
            hint=_suggestion(ref, known) or f"there is {', '.join(known)}; a folder is given as ./{ref or 'name'}",
        )
    return _read(file)


def select(text: str) -> tuple[Workload, list[Case]]:
    """`NAME` or `NAME:CASE[,CASE...]`: the workload, and the cases chosen or all of them, each once."""
    ref, colon, names = text.rpartition(":")
    if not colon or Path(text).is_dir():
        workload = load(text)
        return workload, list(workload.cases)
    workload = load(ref)
    chosen = [name.strip() for name in names.split(",")]
    if not all(chosen):
        raise UserError(f"{text!r} names an empty case", hint=f"for example {ref}:{workload.cases[0].name}")
    return workload, [workload.case(name) for name in dict.fromkeys(chosen)]


def select_all(texts: Iterable[str]) -> list[tuple[Workload, list[Case]]]:
    """Several selections as one: of each workload all cases that any of them chose, each once."""
    chosen: dict[str, tuple[Workload, list[Case]]] = {}
    for text in texts:
        workload, cases = select(text)
        known, before = chosen.setdefault(workload.name, (workload, []))
        if known.folder != workload.folder:
            raise UserError(
                f"two workloads are called {workload.name}: {known.folder} and {workload.folder}",
                hint="measure one at a time, or rename one",
            )
        before += [case for case in cases if case not in before]
    return list(chosen.values())


def _shipped() -> list[str]:
    return sorted(file.parent.name for file in rooms.room("workloads").glob(f"*/{FILE_NAME}"))


def _is_path(ref: str) -> bool:
    return "/" in ref or ref in (".", "..")


def _suggestion(word: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else None


# --- reading one file, with the line of whatever is wrong in it ---


def _read(file: Path) -> Workload:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file}: {error}") from error
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _malformed(file, text, error) from error
    _check_keys(file, text, raw)
    try:
        parsed = msgspec.convert(raw, _File)
    except msgspec.ValidationError as error:
        raise _invalid(file, text, str(error)) from error
    _check_sense(file, text, parsed)
    return Workload(
        name=parsed.name,
        story=parsed.story,
        memory_mb=parsed.memory_mb,
        vcpus=parsed.vcpus,
        program=parsed.program,
        argv=parsed.argv,
        metrics=parsed.metric,
        cases=parsed.case,
        case_pattern=parsed.case_pattern,
        extra_files=parsed.extra_files,
        model=parsed.model,
        folder=file.parent.resolve(),
    )


def _wrong(file: Path, line: int | None, what: str, hint: str | None = None) -> UserError:
    return UserError(f"{file}:{line}: {what}" if line else f"{file}: {what}", hint=hint)


def _malformed(file: Path, text: str, error: tomllib.TOMLDecodeError) -> UserError:
    """tomllib says where in words: "... (at line 3, column 7)" or "(at end of document)"."""
    found = re.search(r" \(at line (\d+), column \d+\)$", str(error))
    line = int(found[1]) if found else max(1, len(text.splitlines()))
    what = str(error)[: found.start()] if found else str(error)
    return _wrong(file, line, f"not valid TOML: {what}")


def _check_keys(file: Path, text: str, raw: dict[str, Any]) -> None:
    """An unknown key is a mistake, never a key to be ignored."""
    _check_table(file, text, raw, _File, None, None)
    for table, kind in _TABLES.items():
        entries = raw.get(table)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                _check_table(file, text, entry, kind, table, index)


def _check_table(
    file: Path,
    text: str,
    raw: dict[str, Any],
    kind: type[msgspec.Struct],
    table: str | None,
    index: int | None,
) -> None:
    known = [field.name for field in msgspec.structs.fields(kind)]
    for key in raw:
        if key not in known:
            where = f"in [[{table}]]" if table else "at the top"
            hint = _suggestion(key, known) or f"known {where}: {', '.join(known)}"
            raise _wrong(file, _line_of(text, table, index, key), f"unknown key {key!r} {where}", hint)


def _invalid(file: Path, text: str, message: str) -> UserError:
    """msgspec ends its message with a path, as in "... - at `$.metric[1].better`"."""
    found = re.search(r" - at `\$(?:\.(\w+))?(?:\[(\d+)\])?(?:\.(\w+))?.*`$", message)
    if not found:
        return _wrong(file, None, message)
    top, index, key = found[1], found[2], found[3]
    if index is None or top not in _TABLES:
        line = _line_of(text, None, None, top) if top else None
    else:
        line = _line_of(text, top, int(index), key)
    return _wrong(file, line, message)


def _check_sense(file: Path, text: str, parsed: _File) -> None:
    if parsed.schema != SCHEMA:
        raise _wrong(
            file,
            _line_of(text, None, None, "schema"),
            f"schema {parsed.schema} is not known; this lab reads {SCHEMA}",
        )
    _check_unique(file, text, "metric", [metric.name for metric in parsed.metric])
    _check_unique(file, text, "case", [case.name for case in parsed.case])
    primary = [index for index, metric in enumerate(parsed.metric) if metric.primary]
    if len(primary) != 1:
        what = "no metric is primary" if not primary else f"{len(primary)} metrics are primary"
        line = _line_of(text, "metric", primary[1], "primary") if primary else None
        raise _wrong(file, line, what, "exactly one [[metric]] has primary = true")
    if parsed.metric[primary[0]].better == "neither":
        line = _line_of(text, "metric", primary[0], "better")
        raise _wrong(file, line, "the primary metric must be better when higher or lower")
    if not any("{case}" in word for word in parsed.argv) and len(parsed.case) > 1:
        raise _wrong(file, _line_of(text, None, None, "argv"), "argv does not use {case}, so all cases are the same")
    try:
        re.compile(parsed.case_pattern)
    except re.error as error:
        line = _line_of(text, None, None, "case_pattern")
        raise _wrong(file, line, f"case_pattern is not a regular expression: {error}") from error


def _check_unique(file: Path, text: str, table: str, names: list[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise _wrong(file, _line_of(text, table, index, "name"), f"two [[{table}]] are called {name!r}")


def _line_of(text: str, table: str | None, index: int | None, key: str | None) -> int | None:
    """The line of a key, of its table where the key is not there, or nothing.

    tomllib keeps no positions, so the text is scanned for headers and keys. It could be misled only by a
    multi-line string that looks like either; then the number is wrong, and the message is right.
    """
    header = re.compile(r"^\s*\[\[?\s*([\w.-]+)\s*\]\]?")
    assignment = re.compile(r"""^\s*["']?([\w-]+)["']?\s*[=.]""")
    seen: dict[str, int] = {}
    current: tuple[str | None, int | None] = (None, None)
    table_line: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if found := header.match(line):
            name = found[1]
            current = (name, seen.get(name, 0))
            seen[name] = seen.get(name, 0) + 1
            if current == (table, index) or (table is None and name == key):
                table_line = table_line or number
        elif current == (table, index) and (found := assignment.match(line)) and found[1] == key:
            return number
    return table_line
