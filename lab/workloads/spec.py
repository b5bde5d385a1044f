"""A workload: its program, needs, cases and metrics, and the `workload.toml` that it is read from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import msgspec

from lab.core import paths, records
from lab.core.errors import UserError, suggestion
from lab.core.records import Record
from lab.core.text import NO_PATTERN, listed
from lab.core.toml import Key, TomlFile, together
from lab.kernels.kconfig import Needs
from lab.kernels.spec import READ_BACK, check_setting
from lab.stats.verdict import Better

_NAME = r"^[a-z0-9][a-z0-9._-]*\Z"
_NAMED = "a name of a-z, 0-9, '.', '_' and '-'"
Name = Annotated[str, msgspec.Meta(pattern=_NAME, max_length=64, description=_NAMED)]
Group = Annotated[str, msgspec.Meta(pattern=r"^([a-z0-9][a-z0-9._-]*)?\Z", max_length=64, description=_NAMED)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
GuestPath = Annotated[str, msgspec.Meta(pattern=r"^/[^\s]+\Z", description="an absolute path without spaces")]
Option = Annotated[str, msgspec.Meta(pattern=r"^CONFIG_[A-Za-z0-9_]+\Z", description="an option such as CONFIG_SWAP")]
Package = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9.+-]+\Z", description="the name of a package")]
Word = Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f]*\Z", description="a word without control characters")]
Parameter = Annotated[str, msgspec.Meta(pattern=r"^[^\s\"']+\Z", description="a parameter without spaces and quotes")]
MiB = Annotated[int, msgspec.Meta(ge=1)]
Parse = Literal["json", "regex", "fio", "stress-ng", "guest"]
CostModel = Literal["none", "tlb", "full"]
Measures = Literal["all", "kernel"]
Center = Literal["mean", "median"]

GUEST_FOLDER = PurePosixPath("/workload")
"""The folder of a workload's own files in its guest."""

HUGE_PAGE_MIB = 2

CPUS_MAX = 16
"""The most vCPUs that take turns by modelled clocks."""

WINDOWS_MAX = 12
"""The most windows in a guest of a program that marks none."""


class Metric(Record, frozen=True, kw_only=True):
    """A number that a case reports.

    parse: its output format, if it is not the workload's. field: its path there (default:
    its name). pattern: the regular expression whose one group is the number. optional: it may be missing.
    """

    name: Name
    unit: Text
    better: Better
    description: Text
    primary: bool = False
    optional: bool = False
    parse: Parse | None = None
    field: str = ""
    pattern: str = ""


class Case(Record, frozen=True, kw_only=True):
    """One variation of a workload. A control is expected not to change.

    group: a name that selects all cases of the group. args: arguments of the program for this case. file: value of
    `{file}`, one of the workload's own files, or of the user's if the path is absolute. memory_mb: memory that it needs
    in the guest. unseen: names of limits of exact mode that it is about. exact_only: why it says nothing in live mode.
    """

    name: Name
    group: Group = ""
    control: bool = False
    note: str = ""
    args: tuple[Word, ...] = ()
    file: str = ""
    memory_mb: MiB | None = None
    unseen: tuple[str, ...] = ()
    exact_only: str = ""

    @property
    def guest_file(self) -> str:
        """The path of its file in the guest."""
        return str(GUEST_FOLDER / ("user/" + self.name if self.file.startswith("/") else self.file))

    def is_called(self, pattern: str) -> bool:
        """True if a pattern is that of its name (`fault-*`), or is its group."""
        return pattern == self.group or fnmatch(self.name, pattern)


class Limit(Record, frozen=True, kw_only=True):
    """Something that exact mode cannot see, in a few words, and the reason. turns: because vCPUs take turns."""

    name: Name
    brief: Text
    turns: bool = False
    reason: Text


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program, its cases and its metrics. docs/own-workload.md describes each field."""

    name: Name
    story: Text
    memory_mb: Annotated[int, msgspec.Meta(ge=64)]
    vcpus: Annotated[int, msgspec.Meta(ge=1, le=64)]
    program: GuestPath
    argv: tuple[Word, ...] = ()
    metrics: tuple[Metric, ...]
    cases: tuple[Case, ...]
    case_pattern: str = ""
    case_args: tuple[Word, ...] = ()
    case_names: tuple[Word, ...] = ()
    case_files: str = ""
    packages: tuple[Package, ...] = ()
    extra_files: tuple[GuestPath, ...] = ()
    files: tuple[str, ...] = ()
    setup: tuple[Word, ...] = ()
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    cmdline: tuple[Parameter, ...] = ()
    env: dict[str, Word] = msgspec.field(default_factory=dict)
    kconfig: tuple[Option, ...] = ()
    case_kconfig: dict[str, tuple[Option, ...]] = msgspec.field(default_factory=dict)
    kconfig_if: dict[Option, Word] = msgspec.field(default_factory=dict)
    model: CostModel = "tlb"
    isolate: bool = False
    parse: Parse = "json"
    operations: str = ""
    elapsed: str = ""
    measures: Measures = "all"
    center: Center = "mean"
    clocked: bool = False
    windows: Annotated[int, msgspec.Meta(ge=1, le=WINDOWS_MAX)] = 3
    open_metrics: bool = False
    unseen: tuple[str, ...] = ()
    exact_only: str = ""


class Workload(Program, frozen=True, kw_only=True):
    """A program in a folder. brought: files from elsewhere on this machine, by their paths in the guest.

    contends: in exact mode the vCPUs of its guests take turns by their modelled clocks, so that they contend.
    """

    folder: Path
    brought: dict[str, Path] = msgspec.field(default_factory=dict)
    contends: bool = False

    def at(self, cpus: int) -> Workload:
        """The workload in guests of so many vCPUs, which take turns by modelled clocks; `NAME@CPUS` is its name."""
        if not 1 <= cpus <= CPUS_MAX:
            raise UserError(f"{self.name}@{cpus}: guests have 1 to {CPUS_MAX} vCPUs that take turns")
        return msgspec.structs.replace(self, name=f"{self.name}@{cpus}", vcpus=cpus, contends=True)

    @property
    def image_files(self) -> tuple[str, ...]:
        """The files of the guest image that a case needs, its program first."""
        return (self.program, *self.extra_files)

    @property
    def own_files(self) -> dict[str, Path]:
        """Files that are not in the guest image: their paths in the guest, and on this machine."""
        paths = {str(GUEST_FOLDER / name): self.folder / name for name in self.files}
        return paths | {case.guest_file: self.folder / case.file for case in self.cases if case.file} | self.brought

    @property
    def compiled(self) -> bool:
        """True if its folder's Makefile makes the program."""
        return (self.folder / "Makefile").is_file()

    @property
    def primary(self) -> Metric:
        """The metric that the verdict is about."""
        return next(metric for metric in self.metrics if metric.primary)

    def metric(self, name: str) -> Metric:
        """One metric by name; `KeyError` if the workload does not declare it."""
        return {metric.name: metric for metric in self.metrics}[name]

    @property
    def groups(self) -> dict[str, list[Case]]:
        """The cases of each group, in the order of the file."""
        found: dict[str, list[Case]] = {}
        for case in self.cases:
            if case.group:
                found.setdefault(case.group, []).append(case)
        return found

    def case(self, name: str) -> Case:
        """A case of the sweep, or another one that matches the workload's pattern."""
        for case in self.cases:
            if case.name == name:
                return case
        if self.case_pattern and (match := re.fullmatch(self.case_pattern, name)):
            case = Case(name=name, note="not in the default sweep", memory_mb=_memory_mb(match.groupdict()))
            self.require_memory(case)
            return case
        hint = f"`lab workload show {self.name}` lists them"
        if self.case_files and Path(name).is_file():
            hint = f"a file is given with its path: {self.name}:./{name}"
        close = suggestion(name, [*self.groups, *(case.name for case in self.cases)])
        raise UserError(f"workload {self.name} has no case {name!r}", hint=close or hint)

    def model_for(self, asked: str) -> str:
        """The cost model of a measurement: the requested one, or the workload's own (`auto`)."""
        return self.model if asked == "auto" else asked

    def kconfig_of(self, case: Case) -> tuple[str, ...]:
        """The kernel options of a case, beside those of the workload."""
        return tuple(option for name, found in self.case_kconfig.items() if case.is_called(name) for option in found)

    def is_used(self, option: str, cases: Sequence[Case]) -> bool:
        """True unless a kernel option is only for case files with a word that none of these cases' files has."""
        word = self.kconfig_if.get(option)
        return word is None or any(
            not case.file or word in (self.folder / case.file).read_text(errors="replace") for case in cases
        )

    def needs(self, cases: Sequence[Case]) -> Needs:
        """The kernel options that a kernel for some cases has built in."""
        return Needs(frozenset(self.kconfig), frozenset(option for case in cases for option in self.kconfig_of(case)))

    def unseen_in(self, case: Case) -> list[str]:
        """The names of the limits of exact mode that a case is about."""
        return list(dict.fromkeys([*self.unseen, *case.unseen]))

    def only_exact(self, case: Case) -> str:
        """The reason why a case says nothing in live mode; empty if it does."""
        return case.exact_only or self.exact_only

    def sweep_of(self, case: Case) -> tuple[str, int] | None:
        """The sweep that a case belongs to, and its size in it, by the groups `sweep` and `size` of the pattern."""
        match = re.fullmatch(self.case_pattern, case.name) if self.case_pattern else None
        groups = match.groupdict() if match else {}
        if not groups.get("sweep") or not groups.get("size"):
            return None
        return groups["sweep"], _bytes(groups["size"])

    def require_memory(self, case: Case) -> None:
        """Refuse a case that needs more memory than the guest has."""
        if case.memory_mb and case.memory_mb > self.memory_mb:
            raise UserError(
                f"{self.name}:{case.name} needs {case.memory_mb} MiB, and its guest has {self.memory_mb} MiB",
                hint="choose a smaller case, or raise memory_mb in its workload.toml",
            )

    def with_file(self, path: Path) -> tuple[Workload, Case]:
        """This workload with a file of the user's as one more case, named after the file."""
        name = re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("._-")[:64]
        if not name:
            raise UserError(f"{path}: its name has neither letters nor digits, and a case needs a name")
        case = Case(name=name, file=str(path.resolve()), note=f"the file {path.resolve()}")
        if any(other.name == name and other.file != case.file for other in self.cases):
            raise UserError(
                f"workload {self.name} already has a case called {name}, and {path} would be one, too",
                hint="rename the file",
            )
        return msgspec.structs.replace(self, cases=(*self.cases, case)), case

    def by_guest(self, cases: Sequence[Case]) -> list[list[Case]]:
        """The cases of each guest: all of them in one, or each alone."""
        return [[case] for case in cases] if self.isolate else [list(cases)]

    def command(self, case: Case) -> list[str]:
        """The argument list that runs a case inside the guest."""
        args = case.args or self.case_args
        argv = [self.program]
        for word in self.argv if "{args}" in self.argv else (*self.argv, "{args}"):
            argv += args if word == "{args}" else [word]
        return [word.replace("{case}", case.name).replace("{file}", case.guest_file) for word in argv]

    def arguments(self, arm: Mapping[str, str]) -> list[str]:
        """The workload's parameters of the kernel command line, then those of an arm's `cmdline.NAME` settings."""
        chosen = {k.removeprefix("cmdline."): v for k, v in arm.items() if k.startswith("cmdline.")}
        own = [parameter for parameter in self.cmdline if parameter.partition("=")[0] not in chosen]
        return [*own, *(f"{name}={value}" if value else name for name, value in chosen.items())]

    def guest_settings(self, machine: Mapping[str, str], arm: Mapping[str, str]) -> dict[str, str]:
        """The settings that init applies or reads back: the machine's, then the workload's, then the arm's."""
        own = {k: v for k, v in arm.items() if k in READ_BACK or not k.startswith(("cmdline.", "env.", "mount."))}
        return {**machine, **self.settings, **own}

    def environment(self, arm: Mapping[str, str]) -> dict[str, str]:
        """The program's environment: the workload's, then an arm's `env.NAME` settings."""
        return {**self.env, **{k.removeprefix("env."): v for k, v in arm.items() if k.startswith("env.")}}


_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _memory_mb(groups: Mapping[str, str | None]) -> int | None:
    """The memory that a case needs by the group `memory` of its pattern, as in `64m`."""
    text = groups.get("memory")
    return max(1, round(_bytes(text) / _UNITS["m"])) if text else None


def _bytes(text: str) -> int:
    """A size such as `64m`, or a plain number."""
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)


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
    names = {case.name for case in parsed.cases}
    for index, case in enumerate(parsed.cases):
        if case.group in names:
            raise toml.error(f"the group {case.group!r} is called like a case", "case", index, "group")
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
        try:
            path = (folder / name).resolve()
            is_file = path.is_file()
        except (OSError, ValueError) as error:
            raise toml.error(f"{name[:80]!r} is too long, or no name of a file", *key) from error
        if name.startswith("/") or not path.is_relative_to(folder):
            raise toml.error(f"{name!r} is not inside the workload's folder", *key)
        if not is_file:
            raise toml.error(f"{name!r}: no such file in the workload's folder", *key)


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
