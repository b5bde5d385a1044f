"""Reading and checking `workload.toml`: every error names its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from lab.core import paths, records
from lab.core.errors import UserError, suggestion
from lab.core.records import Record
from lab.core.text import NO_PATTERN, listed
from lab.core.toml import Key, TomlFile, together
from lab.kernels.spec import check_setting
from lab.workloads.spec import HUGE_PAGE_MIB, Case, Limit, Metric, Program, Workload


class _File(Program, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`workload.toml` as written: tables are in the singular there."""

    schema: int
    metrics: Annotated[tuple[Metric, ...], msgspec.Meta(min_length=1)] = msgspec.field(name="metric")
    cases: tuple[Case, ...] = msgspec.field(name="case", default=())
    hugepages: Annotated[int, msgspec.Meta(ge=0)] = 0
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class _Limits(Record, frozen=True, kw_only=True):
    """`workloads/unseen.toml`."""

    schema: int
    limits: tuple[Limit, ...] = msgspec.field(name="limit")


@cache
def limits() -> dict[str, Limit]:
    """The limits of exact mode by name."""
    found = TomlFile(paths.data_folder("workloads") / "unseen.toml").convert(_Limits)
    return {limit.name: limit for limit in found.limits}


def turns_note(vcpus: int) -> str:
    """The line about the limits of exact mode with several vCPUs; empty for one."""
    unseen = [f"{limit.name} ({limit.brief})" for limit in limits().values() if limit.turns]
    return f"{vcpus} vCPUs take turns: exact mode does not see {listed(unseen, 'or')}" if vcpus > 1 else ""


def read(file: Path) -> Workload:
    """The workload of a file; `UserError` has a line for each error, with its place."""
    try:
        return _read(file, records.file_digest(file))
    except OSError:
        return _read(file, "")  # which names the error in it


@cache
def _read(file: Path, _digest: str) -> Workload:
    """The workload of a file, which a command reads many times, while the file has this digest."""
    toml = TomlFile(file)
    parsed = toml.convert(_File)
    faults = []
    for check in (_check_sense, _check_commands, _check_metrics, _check_files, _check_guest, _check_unseen, _settings):
        try:
            check(toml, parsed)
        except UserError as error:
            faults.append(error)
    if faults:
        raise together(faults)
    values = {name: getattr(parsed, name) for name in Program.__struct_fields__}
    return Workload(**{**values, "settings": _settings(toml, parsed)}, folder=file.parent.resolve())


def _check_sense(toml: TomlFile, parsed: _File) -> None:
    _check_unique(toml, "metric", [metric.name for metric in parsed.metrics])
    _check_unique(toml, "case", [case.name for case in parsed.cases])
    _check_groups(toml, parsed)
    primary = [index for index, metric in enumerate(parsed.metrics) if metric.primary]
    if len(primary) != 1:
        what = "no metric is primary" if not primary else f"{len(primary)} metrics are primary"
        key = ("metric", primary[1], "primary") if primary else ()
        raise toml.error(what, *key, hint="exactly one [[metric]] has primary = true")
    if parsed.metrics[primary[0]].better == "neither":
        raise toml.error("the primary metric must be better when higher or lower", "metric", primary[0], "better")
    if parsed.metrics[primary[0]].optional:
        raise toml.error("the primary metric cannot be optional", "metric", primary[0], "optional")
    if not parsed.cases and not parsed.case_files:
        raise toml.error(
            "there is no [[case]]", hint="write at least one, or case_files for cases that are the user's files"
        )
    try:
        re.compile(parsed.case_pattern)
    except NO_PATTERN as error:
        raise toml.error(f"case_pattern is not a regular expression: {error}", "case_pattern") from error


def _check_unique(toml: TomlFile, table: str, names: list[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise toml.error(f"two [[{table}]] are called {name!r}", table, index, "name")


def _check_groups(toml: TomlFile, parsed: _File) -> None:
    """Refuse a group whose name selects a case, too."""
    names = {case.name for case in parsed.cases}
    for index, case in enumerate(parsed.cases):
        if case.group in names:
            raise toml.error(f"the group {case.group!r} is called like a case", "case", index, "group")


def _check_commands(toml: TomlFile, parsed: _File) -> None:
    """Refuse two cases that run the same command."""
    by_name = any("{case}" in word for word in (*parsed.argv, *parsed.case_args))
    seen: dict[tuple[tuple[str, ...], str], str] = {}
    for index, case in enumerate(parsed.cases):
        command = (case.args, case.file)
        if not by_name and command in seen:
            key = ("argv",) if command == ((), "") else ("case", index, "name")
            raise toml.error(
                f"argv does not use {{case}}, so the cases {seen[command]} and {case.name} are the same",
                *key,
                hint="use {case}, or give cases args of their own",
            )
        seen[command] = case.name


def _check_metrics(toml: TomlFile, parsed: _File) -> None:
    for index, metric in enumerate(parsed.metrics):
        how = metric.parse or parsed.parse
        if (how == "regex") != bool(metric.pattern):
            what = "needs a pattern" if how == "regex" else f"has a pattern, and is read as {how}"
            key = "pattern" if metric.pattern else "name"
            hint = 'a pattern is for parse = "regex"'
            raise toml.error(f"the metric {metric.name} {what}", "metric", index, key, hint=hint)
        try:
            groups = re.compile(metric.pattern).groups
        except NO_PATTERN as error:
            what = f"pattern is not a regular expression: {error}"
            raise toml.error(what, "metric", index, "pattern") from error
        if metric.pattern and groups != 1:
            what = f"pattern has {groups} groups, not one: the group is the number"
            raise toml.error(what, "metric", index, "pattern")
    names = [metric.name for metric in parsed.metrics]
    if parsed.operations and parsed.operations not in names:
        what = f"operations: no [[metric]] is called {parsed.operations!r}"
        raise toml.error(what, "operations", hint=suggestion(parsed.operations, names))
    times = [metric.name for metric in parsed.metrics if metric.unit == "ns"]
    if parsed.elapsed and parsed.elapsed not in times:
        what = f"elapsed: no [[metric]] in ns is called {parsed.elapsed!r}"
        raise toml.error(what, "elapsed", hint=suggestion(parsed.elapsed, times))


def _check_files(toml: TomlFile, parsed: _File) -> None:
    """Refuse files outside the workload's folder, which would bring others of the user's files into a guest."""
    folder = toml.path.parent.resolve()
    files: list[tuple[str, Key]] = [(name, ("files",)) for name in parsed.files]
    files += [(case.file, ("case", index, "file")) for index, case in enumerate(parsed.cases) if case.file]
    for name, key in files:
        path = _resolved(folder / name)
        if path is None:
            raise toml.error(f"{name[:80]!r} is too long, or no name of a file", *key)
        if name.startswith("/") or not path.is_relative_to(folder):
            raise toml.error(f"{name!r} is not inside the workload's folder", *key)
        if not path.is_file():
            raise toml.error(f"{name!r}: no such file in the workload's folder", *key)


def _resolved(path: Path) -> Path | None:
    """A path without links; None if the system refuses it."""
    try:
        found = path.resolve()
        found.exists()
    except (OSError, ValueError):
        return None
    return found


def _check_guest(toml: TomlFile, parsed: _File) -> None:
    if parsed.hugepages * HUGE_PAGE_MIB >= parsed.memory_mb:
        raise toml.error(
            f"hugepages = {parsed.hugepages} is {parsed.hugepages * HUGE_PAGE_MIB} MiB, "
            f"and the guest has {parsed.memory_mb} MiB in all",
            "hugepages",
        )
    for index, case in enumerate(parsed.cases):
        if case.memory_mb and case.memory_mb > parsed.memory_mb:
            raise toml.error(
                f"the case {case.name} needs {case.memory_mb} MiB, and the guest has {parsed.memory_mb} MiB",
                *("case", index, "memory_mb"),
                hint="raise memory_mb at the top",
            )
    for name in parsed.case_kconfig:
        if not any(case.is_called(name) for case in parsed.cases):
            known = [case.name for case in parsed.cases] + [case.group for case in parsed.cases if case.group]
            what = f"case_kconfig: no case and no group is called {name!r}"
            raise toml.error(what, "case_kconfig", name, hint=suggestion(name, known))
    for name, value in parsed.env.items():
        _check_setting(toml, f"env.{name}", value, "env", name)


def _check_unseen(toml: TomlFile, parsed: _File) -> None:
    """Refuse a limit of exact mode that is not among the known ones."""
    named: list[tuple[tuple[str, ...], Key]] = [(parsed.unseen, ("unseen",))]
    named += [(case.unseen, ("case", index, "unseen")) for index, case in enumerate(parsed.cases)]
    for names, key in named:
        for name in names:
            if name not in limits():
                hint = suggestion(name, limits()) or f"known: {', '.join(limits())}"
                raise toml.error(f"unseen: exact mode has no limit called {name!r}", *key, hint=hint)


def _settings(toml: TomlFile, parsed: _File) -> dict[str, str]:
    """The settings, checked like those of a kernel spec. Huge pages come first, before memory is fragmented."""
    settings = {"hugepages": str(parsed.hugepages)} if parsed.hugepages else {}
    for key, value in _flat(parsed.settings, ("settings",)):
        name = ".".join(key[1:])
        if name in ("hugepages", "lsm", "mitigations") or name.startswith(("cmdline.", "env.")):
            hint = "use hugepages = N, cmdline = [...], or the table [env]"
            raise toml.error(f"{name} is not set here", *key, hint=hint)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise toml.error(f"{name}: a setting is a string or a whole number", *key)
        _check_setting(toml, name, str(value), *key)
        settings[name] = str(value)
    return settings


def _check_setting(toml: TomlFile, name: str, value: str, *key: str) -> None:
    try:
        check_setting(name, value)
    except UserError as error:
        raise toml.error(error.message, *key, hint=error.hint) from error


def _flat(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """`sysctl.vm.swappiness = 1` without quotes is three tables in TOML, and one setting here."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, (*path, name))
        else:
            yield (*path, name), value
