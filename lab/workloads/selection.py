"""Workloads by name or folder, selections of their cases (`NAME:CASE,CASE`, `NAME:GROUP`), and suites of these."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from functools import reduce
from pathlib import Path

import msgspec

from lab.core import paths, records, toml
from lab.core.errors import UserError, suggestion
from lab.core.records import Record
from lab.kernels.kconfig import NOTHING, Needs
from lab.workloads.spec import Case, Name, Text, Workload, read

FILE_NAME = "workload.toml"


def list_workloads() -> list[Workload]:
    """The workloads that come with the lab, by name."""
    return [load(name) for name in shipped()]


def is_shipped(workload: Workload) -> bool:
    """True if it comes with the lab, and is not a folder of the user's."""
    return workload.folder.parent == paths.data_folder("workloads").resolve()


def init(folder: Path) -> list[Path]:
    """Write a workload of one small C program into a new folder, to begin with; returns its files."""
    try:
        msgspec.convert(folder.name, Name)
    except msgspec.ValidationError as error:
        raise UserError(
            f"{folder.name!r} is no name for a workload", hint="use small letters, digits, `.`, `_` and `-`"
        ) from error
    template = paths.data_folder("workloads") / "template"
    names = {"template.toml": FILE_NAME, "template.c": f"{folder.name}.c", "Makefile": "Makefile"}
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise UserError(f"{folder} is there already", hint="name a new folder; nothing is overwritten") from error
    for source, name in names.items():
        (folder / name).write_text((template / source).read_text().replace("template", folder.name))
    return [folder / name for name in names.values()]


def load(ref: str) -> Workload:
    """A workload by its name, or by the path of its folder (`./mine`, `/somewhere/mine`).

    `NAME@4` is the same in guests of 4 vCPUs that contend.
    """
    plain, cpus = _with_cpus(ref)
    if cpus:
        return load(plain).at(cpus)
    if _is_path(ref):
        file = Path(ref) / FILE_NAME
        if Path(ref).is_file():
            raise UserError(f"{ref} is a file, not a workload", hint=f"run it as it is with -w script:{ref}, or --exec")
        if not file.is_file():
            raise UserError(f"{ref} is not a workload: it has no {FILE_NAME}")
    elif ref in shipped():
        file = paths.data_folder("workloads") / ref / FILE_NAME
    else:
        names = shipped()
        raise UserError(
            f"no workload is called {ref!r}",
            hint=suggestion(ref, names) or f"there is {', '.join(names)}; a folder is given as ./{ref or 'name'}",
        )
    return read(file)


_CPUS = re.compile(r"(.+)@([1-9][0-9]{0,2})")


def _with_cpus(ref: str) -> tuple[str, int]:
    """A reference to a workload and the vCPUs behind it; 0 for the workload's own."""
    match = _CPUS.fullmatch(ref)
    if not match or (_is_path(ref) and Path(ref).exists()):
        return ref, 0
    return match[1], int(match[2])


def on_cpus(text: str, cpus: Iterable[int]) -> list[str]:
    """A selection in guests of each number of vCPUs: `NAME@1:CASES`, `NAME@4:CASES`."""
    ref, names = _split(text)
    if _with_cpus(ref)[1]:
        raise UserError(f"{text} names its vCPUs", hint="leave out --cpus, or the number behind @")
    select(text)
    return [f"{ref}@{count}" + (f":{names}" if names is not None else "") for count in cpus]


def select(text: str) -> tuple[Workload, list[Case]]:
    """The workload and cases of `NAME` (all cases) or `NAME:CASE[,CASE...]`, each case once.

    The name of a group stands for its cases, and so does a pattern such as `fault-*`.
    If a workload takes files of the user's, a case may be a path; the workload then has it as one more case.
    """
    ref, names = _split(text)
    workload = load(ref)
    if names is None:
        return workload, list(workload.cases)
    cases: dict[str, Case] = {}
    for name in _names(workload, text, names):
        if workload.case_files and "/" in name:
            workload, case = workload.with_file(_user_file(workload, name))
            cases[case.name] = case
        else:
            cases |= {case.name: case for case in _named(workload, name)}
    return workload, list(cases.values())


def _named(workload: Workload, name: str) -> list[Case]:
    """The cases of a group or a pattern, or the one case of that name."""
    if "*" not in name:
        return workload.groups.get(name) or [workload.case(name)]
    if found := [case for case in workload.cases if fnmatch(case.name, name)]:
        return found
    raise UserError(
        f"workload {workload.name} has no case like {name!r}", hint=f"`lab workload show {workload.name}` lists them"
    )


def _names(workload: Workload, text: str, names: str) -> list[str]:
    """The cases, groups and files that a selection names; a file's path may contain commas."""
    if workload.case_files and "/" in names and paths.expanded(names).is_file():
        return [names]
    found = [name.strip() for name in names.split(",")]
    if not all(found):
        example = f"for example {_split(text)[0]}:{workload.cases[0].name}"
        raise UserError(f"{text!r} names an empty case", hint=example)
    return list(dict.fromkeys(found))


def _split(text: str) -> tuple[str, str | None]:
    """The workload and the named cases, if any. A path may contain colons."""
    try:
        if Path(text).is_dir():
            return text, None
    except OSError:  # too many cases for the name of a file
        pass
    name, colon, cases = text.partition(":")
    if not (colon and _with_cpus(name)[0] in shipped()):
        name, colon, cases = text.rpartition(":")
    return (name, cases) if colon else (text, None)


def _user_file(workload: Workload, name: str) -> Path:
    path = paths.expanded(name)
    if not path.is_file():
        raise UserError(f"{workload.name}:{name}: no such file")
    if not fnmatch(path.name, workload.case_files):
        raise UserError(f"{workload.name}:{name}: this workload takes files called {workload.case_files}")
    return path


def select_all(texts: Iterable[str]) -> list[tuple[Workload, list[Case]]]:
    """Several selections as one: each workload with all its selected cases, each once."""
    chosen: dict[str, tuple[Workload, list[Case]]] = {}
    for text in texts:
        workload, cases = select(text)
        joined, before = chosen.get(workload.name, (workload, []))
        if joined.folder != workload.folder:
            raise UserError(
                f"two workloads are called {workload.name}: {joined.folder} and {workload.folder}",
                hint="measure one at a time, or rename one",
            )
        for case in workload.cases:
            if case not in joined.cases:  # a file of the user's
                joined, _ = joined.with_file(Path(case.file))
        chosen[workload.name] = joined, [*before, *(case for case in cases if case not in before)]
    return list(chosen.values())


def needs_of(texts: Iterable[str]) -> Needs:
    """The kernel options that the cases of several selections need built in."""
    return reduce(operator.or_, (workload.needs(cases) for workload, cases in select_all(texts)), NOTHING)


# --- suites ---


class Suite(Record, frozen=True, kw_only=True):
    """Cases of several workloads, to be measured together. groups: the selections of each group, as in `select`."""

    name: Name
    description: Text
    groups: dict[str, tuple[str, ...]]

    @property
    def selections(self) -> tuple[str, ...]:
        return tuple(text for texts in self.groups.values() for text in texts)

    def cases(self) -> dict[str, list[str]]:
        """The full names of the cases of each group."""
        return {
            group: [f"{workload.name}:{case.name}" for workload, cases in select_all(texts) for case in cases]
            for group, texts in self.groups.items()
        }


class _Suites(Record, frozen=True, kw_only=True):
    """`workloads/suites.toml`."""

    schema: int
    suites: tuple[Suite, ...] = msgspec.field(name="suite")


def suites() -> dict[str, Suite]:
    found = toml.load(paths.data_folder("workloads") / "suites.toml", _Suites)
    return {suite.name: suite for suite in found.suites}


def suite(name: str) -> Suite:
    known = suites()
    if name not in known:
        raise UserError(f"no suite is called {name!r}", hint=f"there is {', '.join(known)}")
    return known[name]


# --- a selection as it is written into a plan ---


def canonical(text: str) -> str:
    """A selection that has the same meaning in any folder: its paths are absolute."""
    ref, names = _split(text)
    workload, _ = select(text)
    where = str(Path(ref).resolve()) if _is_path(ref) else ref
    if names is None:
        return where
    found = _names(workload, text, names)
    return f"{where}:{','.join(str(paths.expanded(name).resolve()) if '/' in name else name for name in found)}"


def only(texts: Iterable[str], workload: str, case: str) -> str:
    """The selection of one case among those of a plan."""
    for text in texts:
        selected, cases = select(text)
        if selected.name == workload and case in [candidate.name for candidate in cases]:
            file = selected.case(case).file
            return f"{_split(text)[0]}:{file if file.startswith('/') else case}"
    raise UserError(f"{workload}:{case} is not among {', '.join(texts)}")


def user_files(texts: Iterable[str]) -> dict[str, str]:
    """The user's files that are cases, with their hashes."""
    files = [case.file for workload, _ in select_all(texts) for case in workload.cases if case.file.startswith("/")]
    return {file: records.file_digest(Path(file)) for file in files}


def require_unchanged(files: Mapping[str, str]) -> None:
    """Refuse files that have changed since a measurement began."""
    for file, before in files.items():
        if not Path(file).is_file():
            raise UserError(f"{file} was measured, and is gone", hint="put it back, or measure anew")
        if records.file_digest(Path(file)) != before:
            raise UserError(
                f"{file} has changed since it was measured (its sha256 was {before[:12]}...)",
                hint="put it back as it was, or measure anew",
            )


def shipped() -> list[str]:
    """The names of the workloads that come with the lab."""
    return sorted(file.parent.name for file in paths.data_folder("workloads").glob(f"*/{FILE_NAME}"))


def _is_path(ref: str) -> bool:
    return "/" in ref or ref in (".", "..")
