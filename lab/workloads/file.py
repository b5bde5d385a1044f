"""Reading `workload.toml`: what is wrong in it is said with its line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

from lab.core.errors import UserError, suggestion
from lab.core.toml import TomlText
from lab.kernels import spec
from lab.workloads.spec import (
    HUGE_PAGE_MIB,
    Case,
    CostModel,
    GuestPath,
    Metric,
    Name,
    Option,
    Parse,
    Text,
    Word,
    Workload,
)

SCHEMA = 1

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """`workload.toml` as it is written: tables are in the singular there."""

    schema: int
    name: Name
    story: Text
    memory_mb: Annotated[int, msgspec.Meta(ge=64)]
    vcpus: Annotated[int, msgspec.Meta(ge=1, le=64)]
    program: GuestPath
    argv: tuple[Word, ...] = ()
    metric: Annotated[tuple[Metric, ...], msgspec.Meta(min_length=1)]
    case: tuple[Case, ...] = ()
    case_pattern: str = ""
    case_args: tuple[Word, ...] = ()
    case_names: tuple[Word, ...] = ()
    case_files: str = ""
    extra_files: tuple[GuestPath, ...] = ()
    files: tuple[str, ...] = ()
    setup: tuple[Word, ...] = ()
    hugepages: Annotated[int, msgspec.Meta(ge=0)] = 0
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    cmdline: tuple[Annotated[str, msgspec.Meta(pattern=r"^[^\s\"']+\Z")], ...] = ()
    env: dict[str, Word] = msgspec.field(default_factory=dict)
    kconfig: tuple[Option, ...] = ()
    model: CostModel = "tlb"
    isolate: bool = False
    parse: Parse = "json"
    operations: str = ""
    open_metrics: bool = False


_TABLES: dict[str, type[msgspec.Struct]] = {"metric": Metric, "case": Case}


def read(file: Path) -> Workload:
    """The workload of a file; `UserError` names the line of whatever is wrong in it."""
    toml = TomlText(file)
    _check_keys(toml)
    try:
        parsed = msgspec.convert(toml.values, _File)
    except msgspec.ValidationError as error:
        raise _invalid(toml, str(error)) from error
    settings = _settings(toml, parsed)
    _check_sense(toml, parsed)
    _check_files(toml, parsed)
    _check_guest(toml, parsed)
    values = msgspec.structs.asdict(parsed)
    for name in ("schema", "metric", "case", "hugepages"):
        del values[name]
    values |= {"metrics": parsed.metric, "cases": parsed.case, "settings": settings}
    return Workload(**values, folder=file.parent.resolve())


def _check_keys(toml: TomlText) -> None:
    """An unknown key is a mistake, never a key to be ignored."""
    _check_table(toml, toml.values, _File, None, None)
    for table, kind in _TABLES.items():
        entries = toml.values.get(table)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                _check_table(toml, entry, kind, table, index)


def _check_table(
    toml: TomlText, raw: dict[str, Any], kind: type[msgspec.Struct], table: str | None, index: int | None
) -> None:
    known = [field.name for field in msgspec.structs.fields(kind)]
    for key in raw:
        if key not in known:
            where = f"in [[{table}]]" if table else "at the top"
            hint = suggestion(key, known) or f"known {where}: {', '.join(known)}"
            raise toml.wrong(toml.line(key, table, index), f"unknown key {key!r} {where}", hint)


def _invalid(toml: TomlText, message: str) -> UserError:
    """msgspec ends its message with a path, as in "... - at `$.metric[1].better`"."""
    found = re.search(r" - at `(?:key in )?\$(?:\.(\w+))?(?:\[(\d+)\])?(?:\.(\w+))?.*`$", message)
    if not found:
        return toml.wrong(None, message)
    top, index, key = found[1], found[2], found[3]
    if index is not None and top in _TABLES:
        return toml.wrong(toml.line(key, top, int(index)), message)
    return toml.wrong(toml.line(top) if top else None, message)


def _check_sense(toml: TomlText, parsed: _File) -> None:
    if parsed.schema != SCHEMA:
        raise toml.wrong(toml.line("schema"), f"schema {parsed.schema} is not known; this lab reads {SCHEMA}")
    _check_unique(toml, "metric", [metric.name for metric in parsed.metric])
    _check_unique(toml, "case", [case.name for case in parsed.case])
    primary = [index for index, metric in enumerate(parsed.metric) if metric.primary]
    if len(primary) != 1:
        what = "no metric is primary" if not primary else f"{len(primary)} metrics are primary"
        line = toml.line("primary", "metric", primary[1]) if primary else None
        raise toml.wrong(line, what, "exactly one [[metric]] has primary = true")
    if parsed.metric[primary[0]].better == "neither":
        line = toml.line("better", "metric", primary[0])
        raise toml.wrong(line, "the primary metric must be better when higher or lower")
    if parsed.metric[primary[0]].optional:
        raise toml.wrong(toml.line("optional", "metric", primary[0]), "the primary metric cannot be optional")
    if not parsed.case and not parsed.case_files:
        raise toml.wrong(
            None, "there is no [[case]]", "at least one, or case_files for cases that are the user's files"
        )
    _check_commands(toml, parsed)
    _check_metrics(toml, parsed)
    try:
        re.compile(parsed.case_pattern)
    except re.error as error:
        raise toml.wrong(toml.line("case_pattern"), f"case_pattern is not a regular expression: {error}") from error


def _check_unique(toml: TomlText, table: str, names: list[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise toml.wrong(toml.line("name", table, index), f"two [[{table}]] are called {name!r}")


def _check_commands(toml: TomlText, parsed: _File) -> None:
    """Two cases that run the very same command measure the same thing twice."""
    by_name = any("{case}" in word for word in (*parsed.argv, *parsed.case_args))
    seen: dict[tuple[tuple[str, ...], str], str] = {}
    for index, case in enumerate(parsed.case):
        command = (case.args, case.file)
        if not by_name and command in seen:
            line = toml.line("argv") if command == ((), "") else toml.line("name", "case", index)
            raise toml.wrong(
                line,
                f"argv does not use {{case}}, so the cases {seen[command]} and {case.name} are the same",
                "use {case}, or give cases args of their own",
            )
        seen[command] = case.name


def _check_metrics(toml: TomlText, parsed: _File) -> None:
    for index, metric in enumerate(parsed.metric):
        how = metric.parse or parsed.parse
        if (how == "regex") != bool(metric.pattern):
            what = "needs a pattern" if how == "regex" else f"has a pattern, and is read as {how}"
            line = toml.line("pattern" if metric.pattern else "name", "metric", index)
            raise toml.wrong(line, f"the metric {metric.name} {what}", 'a pattern is for parse = "regex"')
        try:
            groups = re.compile(metric.pattern).groups
        except re.error as error:
            line = toml.line("pattern", "metric", index)
            raise toml.wrong(line, f"pattern is not a regular expression: {error}") from error
        if metric.pattern and groups != 1:
            line = toml.line("pattern", "metric", index)
            raise toml.wrong(line, f"pattern has {groups} groups, not one: the group is the number")
    if parsed.operations and parsed.operations not in [metric.name for metric in parsed.metric]:
        hint = suggestion(parsed.operations, [metric.name for metric in parsed.metric])
        raise toml.wrong(toml.line("operations"), f"operations: no [[metric]] is called {parsed.operations!r}", hint)


def _check_files(toml: TomlText, parsed: _File) -> None:
    """Own files are inside the folder and there: nothing else of the user's disk gets into a guest unasked."""
    folder = toml.file.parent.resolve()
    named = [(name, toml.line("files")) for name in parsed.files]
    named += [(case.file, toml.line("file", "case", index)) for index, case in enumerate(parsed.case) if case.file]
    for name, line in named:
        path = (folder / name).resolve()
        if name.startswith("/") or not path.is_relative_to(folder):
            raise toml.wrong(line, f"{name!r} is not inside the workload's folder")
        if not path.is_file():
            raise toml.wrong(line, f"{name!r}: no such file in the workload's folder")


def _check_guest(toml: TomlText, parsed: _File) -> None:
    if parsed.hugepages * HUGE_PAGE_MIB >= parsed.memory_mb:
        raise toml.wrong(
            toml.line("hugepages"),
            f"hugepages = {parsed.hugepages} is {parsed.hugepages * HUGE_PAGE_MIB} MiB, "
            f"and the guest has {parsed.memory_mb} MiB in all",
        )
    for index, case in enumerate(parsed.case):
        if case.memory_mb and case.memory_mb > parsed.memory_mb:
            raise toml.wrong(
                toml.line("memory_mb", "case", index),
                f"the case {case.name} needs {case.memory_mb} MiB, and the guest has {parsed.memory_mb} MiB",
                "raise memory_mb at the top",
            )
    for name in parsed.env:
        if not _ENV_NAME.fullmatch(name):
            raise toml.wrong(toml.line(name, "env"), f"{name!r} is not the name of an environment variable")
        if name.startswith("LAB_"):
            raise toml.wrong(toml.line(name, "env"), f"{name}: names that begin with LAB_ are the lab's own")


def _settings(toml: TomlText, parsed: _File) -> dict[str, str]:
    """Checked like those of a kernel spec. Huge pages come first, while memory is whole."""
    found = {"hugepages": str(parsed.hugepages)} if parsed.hugepages else {}
    for name, value in _flat(parsed.settings):
        line = toml.line(name, "settings") or toml.line("settings")
        if name == "hugepages" or name.startswith(("cmdline.", "env.")):
            raise toml.wrong(line, f"{name} is not set here", "use hugepages = N, cmdline = [...], or the table [env]")
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise toml.wrong(line, f"{name}: a setting is a string or a whole number")
        try:
            spec.check_setting(name, str(value))
        except UserError as error:
            raise toml.wrong(line, error.message, error.hint) from error
        found[name] = str(value)
    return found


def _flat(table: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """`sysctl.vm.swappiness = 1` without quotes is three tables in TOML, and one setting here."""
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        found += _flat(value, f"{before}{name}.") if isinstance(value, dict) else [(f"{before}{name}", value)]
    return found
