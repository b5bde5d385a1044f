"""A kernel tree that the real Ansible role builds in a moment, with real gcc, and that fails or waits on demand.

Its files are in `buildable`. Its makefile knows what the role asks of kbuild: `O=`, `allnoconfig` and `alldefconfig`
with KCONFIG_ALLCONFIG, `bzImage vmlinux`, and arm64's `Image`. A syntax error in a source file fails like a real one.
Two variables of the environment reach it: FAKE_MADE is a file that gets a line per object that is compiled; while the
file FAKE_HOLD exists, linking waits, and says so in FAKE_HOLD.reached.
"""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.core import records
from lab.core.progress import Progress
from lab.kernels import architecture, compilers, kconfig, store
from lab.kernels.compilers import Compiler
from lab.kernels.kernel import KernelSpec, resolve
from lab.kernels.store import Build, BuildInputs

from .kernel import change, commit_all, git, write_kernel


def make_buildable(top: Path, *, version: tuple[int, int] = (6, 99)) -> Path:
    """A repository with one commit."""
    write_kernel(top)
    shutil.copytree(Path(__file__).with_name("buildable"), top, dirs_exist_ok=True)
    makefile = (top / "Makefile").read_text()
    for name, before, now in zip(("VERSION", "PATCHLEVEL"), (6, 99), version, strict=True):
        makefile = makefile.replace(f"{name} = {before}", f"{name} = {now}", 1)
    (top / "Makefile").write_text(makefile)
    names = [name for guests in architecture.names() for part in kconfig.guest_options(guests) for name in part]
    options = dict.fromkeys([*(name.removeprefix("CONFIG_") for name in names), "SLUB_DEBUG", "NEEDY"])
    text = "\n".join(f"config {name}\n\tbool\n" for name in options)
    (top / "Kconfig").write_text(f"{text}\tdepends on NEVER_ASKED_FOR\n")
    git(top, "init", "-q", "-b", "main")
    commit_all(top, "start")
    return top


def commit_change(top: Path, number: int, message: str = "change") -> str:
    """A commit that differs in one source file."""
    change(top, number)
    return commit_all(top, message)


def spec_of(top: Path, text: str = "HEAD") -> KernelSpec:
    return resolve(text, str(top))


def compiler() -> Compiler:
    return compilers.identify("gcc")


def quiet() -> Progress:
    return Progress(quiet=True)


def own_folders(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Keep everything that the lab makes below a folder of the test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.delenv("LAB_HOME", raising=False)


def start_build(top: Path, text: str) -> subprocess.Popen[str]:
    """A build in a process of its own, which prints the key."""
    program = (
        "import sys; from lab.kernels.kernel import resolve; from lab.core.executor import Work\n"
        "from lab.core.progress import Progress\n"
        "spec = resolve(sys.argv[2], sys.argv[1])\n"
        "print(spec.obtain(Work(jobs=1, progress=Progress(quiet=True))).key)\n"
    )
    words, pipe = [sys.executable, "-c", program, str(top), text], subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def staged(files: Mapping[str, bytes], *, subject: str = "one", **inputs: Any) -> tuple[Path, Build]:
    """A kernel of these files in a folder like that of `store.staging`, which stays. inputs: the ones that differ."""
    values = {"tree_id": "t", "kconfig_sha256": "k", "compiler": "gcc 12", "linker": "ld 2", "make": ["A=1"]}
    made = BuildInputs(**{**values, **inputs})
    folder = store.kernels_dir() / f".staging-{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    build = Build(
        schema=1, key=store.key_of(made), inputs=made, spec="HEAD", commit="c" * 40, tree="linux", subject=subject,
        compiler_command="gcc", release="6.99.0", files={name: records.file_digest(folder / name) for name in files},
    )  # fmt: skip
    records.save(folder / "build.json", build)
    return folder, build


def stored(files: Mapping[str, bytes], **more: Any) -> Build:
    folder, build = staged(files, **more)
    return store.adopt(folder, build.key)
