"""Commands of this host as workloads: a program or a script, with the host's files that it needs in a guest.

A program comes with its loader and its libraries. A script comes with its interpreter, and with the interpreter's
library if it is python or perl. All of it is below /workload, beside the image's own libraries, which may be of another
version.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from lab.core import paths, process, records
from lab.core.errors import UserError
from lab.core.locks import make_once
from lab.core.process import CommandFailed
from lab.guests.initrd import LOADERS, MissingFile, closure
from lab.workloads import selection
from lab.workloads.spec import GUEST_FOLDER

_COMMAND = """\
schema = 1
name = {name}
story = {story}
memory_mb = {memory_mb}
vcpus = 1
program = "/bin/reaper"
argv = {argv}
files = {files}
setup = ["/bin/busybox", "sh", "-c", {setup}]
open_metrics = true
isolate = true
{clocked}
[env]
LC_ALL = "C"
{env}
[[metric]]
name = "elapsed"
unit = "ns"
better = "lower"
primary = true
parse = "guest"
field = "elapsed_ns"
description = "guest time from its start to its end"

[[metric]]
name = "page_faults"
unit = "faults"
better = "lower"
parse = "guest"
description = "minor page faults of the program and those that it started"

[[case]]
name = {name}
note = {story}
"""
_COMMAND_MIB = 640
"""Memory of a command's guest, beside twice the size of its files."""

_MOST_MIB = 256
"""The most that a command's files may have: a guest unpacks them all before it starts."""

_REAPER = ("Makefile", "reaper.c")
"""The sources of the program that runs the command, ends the processes that it leaves behind, and counts them."""

_SETUP = "/bin/busybox mkdir -p /sbin /usr/bin /usr/sbin && /bin/busybox --install -s"

PROGRAM_OF = "env.PROGRAM_OF"
"""The setting of the arm whose build of the program a guest runs, if there are two: `base` or `head`."""

_OPERATORS = {"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"}
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*")

# Shells that busybox is, which each guest of a command has under its usual names.
_SHELLS = ("sh", "ash")


class _Started(NamedTuple):
    """The start of a program in the guest: words, files by their paths below /workload, and variables."""

    words: list[str]
    files: dict[str, Path]
    env: dict[str, str]


def command_workload(
    command: str, files: Sequence[Path] = (), *, base_program: Path | None = None, clocked: bool = False
) -> Path:
    """The folder of a workload that runs one command of this host, with its needs and the files brought along.

    The command runs in /workload. A file or folder with a relative path has the same path there, another one its name.

    base_program: another build of the program, for guests with the setting `PROGRAM_OF` of `base`; guests of `head` run
    the command's own. A link made before the measurement leads to either, so both are started by the same words.
    clocked: the program works for a time.
    """
    argv = _words(command)
    program = _found(argv[0])
    started = _start(program)
    brought, setup = {**started.files, **_brought(files)}, _SETUP
    if base_program:
        brought = _brought(files)
        for arm, path in {"base": base_program, "head": program}.items():
            build = _start(path, program.name)
            if build.words != started.words:
                raise UserError(f"{base_program} and {program} are linked differently", hint="build both alike")
            brought |= {f"{arm}/{name}": file for name, file in build.files.items()}
        variable = PROGRAM_OF.removeprefix("env.")
        setup += f" && /bin/busybox ln -s ${variable}/bin ${variable}/lib {GUEST_FOLDER}/"
    if taken := next((name for name in _REAPER if name in brought), None):
        raise UserError(
            f"a command cannot have a file called {taken} in its folder: the lab's own is there",
            hint="bring it in a folder of its own, --file FOLDER",
        )
    packed = brought | {name: paths.data_folder("images") / "command" / name for name in _REAPER}
    digests = {name: records.file_digest(path) for name, path in packed.items()}
    size_mib = sum(path.stat().st_size for path in brought.values()) >> 20
    if size_mib > _MOST_MIB:
        raise UserError(f"{command!r} needs {size_mib} MiB of files, and a guest takes {_MOST_MIB} MiB at most")
    words = [str(GUEST_FOLDER), *started.words, *argv[1:]]
    name = re.sub(r"[^a-z0-9._-]+", "-", program.name.lower()).strip("._-")[:48] or "command"
    text = _COMMAND.format(
        name=json.dumps(name),
        story=json.dumps(f"the command {command}"),
        memory_mb=_COMMAND_MIB + 2 * size_mib,
        argv=json.dumps(words),
        files=json.dumps(sorted(brought)),
        setup=json.dumps(setup),
        clocked="clocked = true\n" if clocked else "",
        env="".join(f"{key} = {json.dumps(value)}\n" for key, value in started.env.items()),
    )
    target = paths.data_dir("commands") / f"{name}-{records.digest([text, digests])[:12]}"

    def fill(partial: Path) -> None:
        for inside, path in packed.items():
            (partial / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, partial / inside)
            (partial / inside).chmod(0o755 if os.access(path, os.X_OK) else 0o644)
        (partial / selection.FILE_NAME).write_text(text)

    make_once(target, fill)
    return target


def left_here(command: str, files: Sequence[Path]) -> list[str]:
    """The words of a command that name files below the current folder which the guest does not have."""
    brought = _brought(files)
    named = {word: Path(os.path.normpath(word)) for word in _words(command)[1:]}
    below = (word for word, path in named.items() if not path.is_absolute() and path.parts[:1] != ("..",))
    return [word for word in below if named[word].is_file() and str(named[word]) not in brought]


def _words(command: str) -> list[str]:
    """The program of a command and its arguments. No shell reads them, so what only a shell understands is refused."""
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise UserError(f"{command!r} is no command: {error}", hint="quote it as a shell would have it") from error
    if not argv:
        raise UserError("the command is empty", hint="e.g. --exec 'sort -n data.txt' --file data.txt")
    operator = next((word for word in _QUOTED.sub("_", command).split() if word in _OPERATORS), None)
    if operator:
        raise UserError(
            f"{command!r} runs without a shell, and {operator} needs one",
            hint="write it into a script and run that, with --file for each program and file in it",
        )
    words = argv[1:] if PurePosixPath(argv[0]).name == "env" else argv
    if words and (variable := _VARIABLE.match(words[0])):
        raise UserError(
            f"{command!r} sets a variable for a program",
            hint=f"set it for the guest of a kernel, e.g. deb:6.12@env.{variable[0]}",
        )
    return argv


def _found(name: str, script: str = "") -> Path:
    """A program by its path or by PATH, as the loader sees it: `$ORIGIN` is the folder of its real file.

    script: the name of the script that it interprets, if it does.
    """
    found = shutil.which(name)
    if found is None and Path(name).is_file():
        raise UserError(f"{name} is not executable", hint=f"chmod +x {shlex.quote(name)}")
    if found is None:
        needed = f", the interpreter of {script}" if script else ""
        raise UserError(f"there is no program {name!r} on this host{needed}", hint="give its path, or install it")
    return Path(found).absolute()


def _brought(files: Sequence[Path]) -> dict[str, Path]:
    """The files, and those of the folders, by their paths below /workload."""
    brought = {}
    for path in files:
        if not path.exists():
            raise UserError(f"{path}: no such file or folder to bring along")
        relative = not path.is_absolute() and ".." not in path.parts
        for file in [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file()):
            brought[str(file if relative else file.relative_to(path.parent))] = file
    return brought


# ---- programs and scripts


def _start(program: Path, name: str = "") -> _Started:
    """The start of a program or a script. name: of its file in the guest, if it is not its own name."""
    inside = f"bin/{name or program.name}"
    own = {inside: program}
    with program.open("rb") as stream:
        start = stream.read(256)
    if not start.startswith(b"#!"):
        return _with_libraries(program, inside, own)
    if _is_python(program):
        return _start(_interpreter(program), name or program.name)
    argv = start[2:].partition(b"\n")[0].decode(errors="replace").split(maxsplit=1)
    word, rest = (argv[0], argv[1:]) if argv else ("sh", [])
    if PurePosixPath(word).name == "env":
        words = (rest or [""])[0].removeprefix("-S").split()
        word, rest = (words[0], words[1:]) if words else ("sh", [])
    if PurePosixPath(word).name in _SHELLS:
        return _Started([f"{GUEST_FOLDER}/{inside}"], own, {})
    runs = _start(_interpreter(_found(word, program.name)))
    return _Started([*runs.words, *rest, f"{GUEST_FOLDER}/{inside}"], {**runs.files, **own}, runs.env)


def _with_libraries(program: Path, inside: str, own: dict[str, Path]) -> _Started:
    """A program that is not a script, with the host's loader and libraries, and its interpreter's own library."""
    env, library = _library(program)
    needing = [program, *(path for path in library.values() if ".so" in path.name)]
    try:
        needed = closure(Path("/"), {str(path.resolve()): path for path in needing}, _search_path())
    except MissingFile as error:
        raise UserError(
            f"{error.needed_by} needs {error.name}, which this host does not have",
            hint="install its package, or set LD_LIBRARY_PATH to the library's folder",
        ) from error
    libraries = {path for name in needed if (path := Path("/") / name).is_file()} - {path.resolve() for path in needing}
    loaders = [path for path in libraries if path.name.startswith(LOADERS)]
    files = {**own, **library, **{f"lib/{path.name}": path for path in libraries}}
    words = [f"{GUEST_FOLDER}/{inside}"]
    if loaders:
        words = [f"{GUEST_FOLDER}/lib/{loaders[0].name}", "--library-path", f"{GUEST_FOLDER}/lib", *words]
    return _Started(words, files, env)


def _search_path() -> list[str]:
    """The folders of LD_LIBRARY_PATH; an empty one is the current folder, as it is for ld.so."""
    given = os.environ.get("LD_LIBRARY_PATH")
    return [str(Path(folder).absolute()) for folder in re.split("[:;]", given)] if given else []


# ---- interpreters

_NOT_IN_A_GUEST = {"__pycache__", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "dist-packages",
                   "test", "tests", "tkinter", "turtledemo"}  # fmt: skip
_OF_PYTHON = (
    "import json, os, sys, sysconfig as s; print(json.dumps([os.path.realpath(sys.executable), sys.base_prefix, "
    "s.get_path('stdlib'), s.get_config_var('DESTSHARED'), sys.version]))"
)
_OF_PERL = (
    "use Config; print join qq(\\n), grep { -d } (grep { /perl-base/ } @INC), $Config{archlibexp}, $Config{privlibexp}"
)


class _Python(msgspec.Struct, array_like=True, frozen=True):
    """A python as it describes itself: its file, prefix, library, folder of extensions, and version."""

    executable: str
    prefix: str
    library: str
    extensions: str
    version: str


def _is_python(program: Path) -> bool:
    return re.fullmatch(r"python[0-9.]*", program.name) is not None


def _interpreter(program: Path) -> Path:
    """The program behind a name, which may be a script that chooses among several versions, as pyenv's is."""
    return Path(_python(program).executable) if _is_python(program) else program.resolve()


def _library(program: Path) -> tuple[dict[str, str], dict[str, Path]]:
    """The variables and the library of an interpreter; nothing for any other program."""
    if _is_python(program):
        python = _python(program)
        inside = PurePosixPath(os.path.relpath(python.library, python.prefix))
        return {"PYTHONHOME": str(GUEST_FOLDER), "PYTHONDONTWRITEBYTECODE": "1"}, {
            str(inside / name): path for name, path in _standard_library(python).items()
        }
    if program.name == "perl":
        files = {
            f"lib/perl/{path.relative_to(folder)}": path
            for folder in reversed(_asked([str(program), "-e", _OF_PERL]).split("\n"))
            for path in sorted(Path(folder).rglob("*"))
            if path.suffix in (".pm", ".pl", ".so") and path.is_file()
        }
        return {"PERL5LIB": f"{GUEST_FOLDER}/lib/perl"}, files
    return {}, {}


def _python(program: Path) -> _Python:
    return msgspec.json.decode(_asked([str(program), "-I", "-c", _OF_PYTHON]), type=_Python)


def _asked(argv: Sequence[str]) -> str:
    try:
        return process.run(argv, timeout_s=60).decode()
    except CommandFailed as error:
        raise UserError(f"{argv[0]} does not say where its library is: {error.message}") from error


def _standard_library(python: _Python) -> dict[str, Path]:
    """The modules of a python, compiled once: a guest would compile them at each start, as its files have no times."""
    target = paths.cache_dir("pythons") / records.digest([python, sorted(_NOT_IN_A_GUEST)])[:24]

    def fill(partial: Path) -> None:
        ignored = shutil.ignore_patterns(*_NOT_IN_A_GUEST, "config-*", "lib-dynload", "*.exe", "*.a")
        shutil.copytree(python.library, partial / "library", ignore=ignored, dirs_exist_ok=True)
        shutil.copytree(
            python.extensions, partial / "library" / "lib-dynload", ignore=shutil.ignore_patterns("*test*", "_tkinter*")
        )
        compiled = [python.executable, "-I", "-m", "compileall", "-q", "-b", "--invalidation-mode", "unchecked-hash"]
        process.run([*compiled, "-s", str(partial / "library"), "-p", str(GUEST_FOLDER / "lib"), partial / "library"])

    make_once(target, fill)
    found = (path for path in sorted((target / "library").rglob("*")) if path.suffix in (".pyc", ".so"))
    return {str(path.relative_to(target / "library")): path for path in found}
