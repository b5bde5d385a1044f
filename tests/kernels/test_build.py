"""Builds through the real Ansible role, of a tree that is small enough to build in a moment.

One home and one tree for the whole file: what is known of a kernel's configuration is shared, so that most builds are
one run of Ansible. Every test makes commits of its own.
"""

import contextlib
import dataclasses
import gzip
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.core import ansible, paths, records
from lab.core.errors import BuildFailed, HostFailed, UserError
from lab.core.executor import Work
from lab.core.git import Repo
from lab.core.progress import QUIET
from lab.kernels import build, debs, store
from lab.kernels.architecture import MachineType
from lab.kernels.build import BuildRequest, make_variables
from lab.kernels.debs import DebSource
from lab.kernels.files import KernelFiles
from lab.kernels.kconfig import Needs
from lab.kernels.kernel import KernelSpec
from lab.kernels.store import Build
from lab.report.bundle.write import make_command

from ..fakes.build import commit_change, compiler, make_buildable, own_folders, quiet, spec_of, start_build
from ..fakes.compiler import write_compiler
from ..fakes.kernel import MMAP_C, commit_all, git
from ..fakes.processes import program, until

WORK = Work(jobs=2, progress=QUIET)
_NUMBER = itertools.count(100)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        own_folders(patch, home)
        patch.setenv("FAKE_MADE", str(home / "made"))
        patch.setenv("FAKE_HOLD", str(home / "hold"))
        # A caller's own variables must not reach make.
        patch.setenv("MAKEFLAGS", "n")
        patch.setenv("KCFLAGS", "-include /no/such/file")
        yield home


@pytest.fixture(scope="module")
def linux(home: Path) -> Path:
    return make_buildable(home / "linux")


@pytest.fixture
def head(linux: Path) -> str:
    """A commit that no other test has built."""
    return commit_change(linux, next(_NUMBER))


@pytest.fixture(scope="module")
def built(linux: Path) -> Build:
    return _obtain(spec_of(linux, "HEAD"))


@pytest.fixture
def made(home: Path) -> Callable[[], list[str]]:
    """What was compiled since the test began."""
    before = len(_lines(home / "made"))
    return lambda: _lines(home / "made")[before:]


@pytest.fixture
def hold(home: Path) -> Iterator[Path]:
    """While it is there, linking waits."""
    path = home / "hold"
    path.touch()
    yield path
    path.unlink(missing_ok=True)
    (home / "hold.reached").unlink(missing_ok=True)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _obtain(spec: KernelSpec) -> Build:
    source = spec.tree_source
    assert source is not None
    request = BuildRequest(text=spec.text, source=source, kconfig=spec.kconfig, compiler=compiler())
    return build.obtain(request, WORK)


def _refuse(*_: object, **__: object) -> None:
    raise AssertionError("nothing may be run")


def _break(linux: Path, text: str) -> str:
    (linux / "mm" / "mmap.c").write_text(text)
    return commit_all(linux, f"break {next(_NUMBER)}")


def _unfinished() -> list[Path]:
    """Build folders (not worktrees) that are marked as being worked in."""
    folders = [path.with_suffix("") for path in paths.cache_dir().rglob("*.unfinished")]
    return [folder for folder in folders if not (folder / ".git").exists()]


def _running_in(folder: Path) -> list[str]:
    """Processes with a build folder on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder) in (text := path.read_text(errors="replace")):
                found.append(text)
    return found


def test_a_build_is_whole(built: Build, linux: Path) -> None:
    folder = store.folder_of(built.key)
    assert {path.name for path in folder.iterdir()} == {
        "bzImage", "vmlinux", "System.map", "config", "build.log", "build.json",
    }  # fmt: skip
    assert built.files == {name: records.file_digest(folder / name) for name in built.files}
    assert built.files.keys() == {"bzImage", "vmlinux", "System.map", "config"}
    assert (folder / "vmlinux").read_bytes().startswith(b"\x7fELF")
    assert b".symtab" not in (folder / "vmlinux").read_bytes()
    assert "T main" in (folder / "System.map").read_text()
    assert (built.release, built.spec, built.subject) == ("6.99.0", "HEAD", "start")
    assert built.commit == git(linux, "rev-list", "--max-parents=0", "HEAD")
    assert built.key == store.key_of(built.inputs)
    assert "  CC      mm/mmap.o\n" in (folder / "build.log").read_text()
    config = (folder / "config").read_text()
    assert "CONFIG_PVH=y" in config and "# CONFIG_SLUB_DEBUG is not set" in config
    assert built.inputs.kconfig_sha256 == records.digest(config)


def test_a_hit_runs_nothing(built: Build, linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(linux, built.commit)
    record = store.folder_of(built.key) / "build.json"
    os.utime(record, (1, 1))
    monkeypatch.setattr(ansible, "play", _refuse)
    monkeypatch.setattr(Repo, "git_bytes", _refuse)
    assert _obtain(spec) == built
    assert record.stat().st_mtime > time.time() - 60, "a hit is a use"


def test_a_build_folder_is_warmed_once_though_the_store_has_the_kernel(
    built: Build, linux: Path, made: Callable[[], list[str]]
) -> None:
    # Other words for the same kernel, which have a build folder of their own.
    words = "%CONFIG_KASAN=n"
    spec = spec_of(linux, built.commit + words)
    assert _obtain(spec).key == built.key
    assert made() == []
    for _ in range(2):
        spec.warm(WORK)
    objects = made()
    assert "mm/mmap" in objects and len(objects) == len(set(objects)) > 1
    _obtain(spec_of(linux, commit_change(linux, next(_NUMBER)) + words))
    assert made()[len(objects) :] == ["mm/mmap"]


def test_other_content_is_another_kernel_only_that_is_compiled_and_the_subject_is_only_text(
    built: Build, linux: Path, home: Path, made: Callable[[], list[str]]
) -> None:
    subject = f"mm: {{{{ lookup('pipe', 'touch {home}/canary') }}}} {{% if %}} $(touch {home}/canary) 'é"
    other = _obtain(spec_of(linux, commit_change(linux, next(_NUMBER), subject)))
    assert other.key != built.key and other.inputs.tree_id != built.inputs.tree_id
    assert other.inputs.kconfig_sha256 == built.inputs.kconfig_sha256
    assert other.files["vmlinux"] != built.files["vmlinux"]
    assert made() == ["mm/mmap"]
    assert other.subject == subject
    assert not (home / "canary").exists()


@pytest.mark.long
def test_each_commit_is_built_by_its_own_configuration(built: Build, linux: Path) -> None:
    """They share a build folder, which has the configuration of the commit before."""
    before = (linux / "Kconfig").read_text()
    (linux / "Kconfig").write_text(f"{before}config ONE_MORE\n\tbool\n")
    other = _obtain(spec_of(linux, commit_all(linux, "an option more")))
    (linux / "Kconfig").write_text(before)
    again = _obtain(spec_of(linux, commit_change(linux, next(_NUMBER))))
    assert again.inputs.kconfig_sha256 == built.inputs.kconfig_sha256 != other.inputs.kconfig_sha256
    for one in (other, again):
        assert records.digest((store.folder_of(one.key) / "config").read_text()) == one.inputs.kconfig_sha256


def test_a_revision_is_built_for_another_architecture(
    built: Build, linux: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("gcc", "ld"):
        write_compiler(home / "cross", f"aarch64-linux-gnu-{tool}", f"cross {tool} 12.2")
    monkeypatch.setenv("PATH", str(home / "cross"), prepend=os.pathsep)
    kernel = spec_of(linux, f"{built.commit}%arch=arm64").obtain(WORK)
    assert kernel.architecture == "arm64" and kernel.machines() == [MachineType.VIRT]
    assert kernel.vmlinux is None and kernel.bzimage == store.folder_of(kernel.key) / "Image"
    other = store.find(kernel.key)
    assert other is not None and other.inputs.tree_id == built.inputs.tree_id
    assert other.inputs.make[:2] == ["ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-"]
    assert other.inputs.make[2:] == built.inputs.make[1:] and built.inputs.make[0] == "ARCH=x86_64"
    assert (other.inputs.compiler, other.inputs.linker) == ("cross gcc 12.2", "cross ld 12.2")
    assert make_command(other, ["Image"]).endswith(" CC=aarch64-linux-gnu-gcc HOSTCC=gcc Image")


@pytest.mark.parametrize(("symbol", "message", "hint"), [
    ("SLUB_DEBUGG", "CONFIG_SLUB_DEBUGG: no such kconfig symbol in this tree", "did you mean CONFIG_SLUB_DEBUG"),
    ("NEEDY", "kconfig dropped CONFIG_NEEDY=y became n", "depends on"),
])  # fmt: skip
def test_an_option_that_is_not_kept_is_named(linux: Path, head: str, symbol: str, message: str, hint: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        _obtain(spec_of(linux, f"{head}%CONFIG_{symbol}=y"))
    assert hint in str(caught.value.hint)
    assert not _unfinished()


@pytest.mark.long
def test_what_cases_need_is_built_in_where_the_tree_has_it_and_the_spec_lets_it(
    built: Build, linux: Path, home: Path
) -> None:
    needs = Needs(optional=frozenset({"CONFIG_SLUB_DEBUG", "CONFIG_NEEDY", "CONFIG_NOT_OF_THIS_TREE"}))
    kernel = spec_of(linux, built.commit).obtain(WORK, needs=needs)
    assert kernel.key == _obtain(spec_of(linux, f"{built.commit}%CONFIG_SLUB_DEBUG=y")).key != built.key
    assert "CONFIG_SLUB_DEBUG=y" in (store.folder_of(kernel.key) / "config").read_text()
    assert spec_of(linux, f"{built.commit}%CONFIG_SLUB_DEBUG=n").obtain(WORK, needs=needs).key == built.key
    assert spec_of(linux, built.commit).obtain(WORK, needs=Needs(frozenset({"CONFIG_AIO"}))).key == built.key
    with pytest.raises(UserError, match="CONFIG_NOT_OF_THIS_TREE: no such kconfig symbol"):
        spec_of(linux, built.commit).obtain(WORK, needs=Needs(required=needs.optional))


def test_the_configuration_of_a_package_takes_the_place_of_the_lab_s(
    built: Build, linux: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = home / "config-6.12.5-cloud-amd64"
    package.write_text("CONFIG_SMP=y\nCONFIG_AIO=m\nCONFIG_SLUB_DEBUG=y\nCONFIG_NEEDY=y\n# CONFIG_NUMA is not set\n")
    files = KernelFiles(
        key="k", release="6.12.5", commit=None, bzimage=None, vmlinux=None, symbols=None, config=package
    )
    monkeypatch.setattr(debs, "resolve", lambda body, *_: DebSource(package=f"linux-image-{body}", version="6.12.5-1"))
    monkeypatch.setattr(DebSource, "obtain", lambda *_, **__: files)
    said: list[str] = []
    progress = quiet()
    monkeypatch.setattr(progress, "log", said.append)
    spec = spec_of(linux, f"{built.commit}%config=deb:6.12,SLUB_DEBUG=n")
    assert dict(spec.kconfig) == {"config": "linux-image-6.12=6.12.5-1", "CONFIG_SLUB_DEBUG": "n"}
    kernel = spec.obtain(Work(jobs=2, progress=progress), needs=Needs(optional=frozenset({"CONFIG_HUGETLBFS"})))
    found = kernel.configuration() or {}
    chosen = {name for name, value in found.items() if value != "n"}
    assert chosen == {"CONFIG_DEBUG_INFO_NONE", "CONFIG_HUGETLBFS", "CONFIG_SMP"}, "no module, and nothing of the lab's"
    (line,) = (line for line in said if "of the configuration without its modules" in line)
    assert Path(line.rpartition(": ")[2]).read_text().startswith("CONFIG_NEEDY=y became n\n")
    monkeypatch.setattr(DebSource, "obtain", lambda *_, **__: dataclasses.replace(files, config=None))
    with pytest.raises(UserError, match=r"linux-image-6\.12 6\.12\.5-1 does not contain the configuration"):
        spec.obtain(WORK)
    with pytest.raises(UserError, match="the package that a src: tree is the source of"):
        spec_of(linux, f"{built.commit}@config:distro")


def test_the_configuration_of_a_reporter_does_not_need_the_file_any_more(built: Build, linux: Path, home: Path) -> None:
    file = home / "my.config.gz"
    text = "# Linux/x86 6.12.5 Kernel Configuration\nCONFIG_SMP=y\nCONFIG_AIO=m\nCONFIG_SLUB_DEBUG=y\n"
    file.write_bytes(gzip.compress(text.encode()))
    spec = spec_of(linux, f"{built.commit}%config={file},SLUB_DEBUG=n")
    file.write_text(text.replace("Linux/x86 ", "Linux/x86_64 "))
    assert spec_of(linux, f"{built.commit}%config={file}").kconfig, "as `make ARCH=x86_64` heads it"
    file.unlink()
    found = spec.obtain(WORK).configuration() or {}
    chosen = {name for name, value in found.items() if value != "n"}
    assert {"CONFIG_SMP", "CONFIG_SERIAL_8250"} <= chosen, "what the reporter has, and what a guest needs"
    assert not {"CONFIG_AIO", "CONFIG_SLUB_DEBUG", "CONFIG_NUMA"} & chosen, "no module, and nothing of the lab's"
    for content, said in (
        ("CONFIG_SMP", "so it is no .config"),
        (text.replace("x86", "arm64"), "for arm64, and the guest is x86_64"),
        (None, "no such file"),
    ):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_text(content)
        with pytest.raises(UserError, match=said) as caught:
            spec_of(linux, f"{built.commit}%config={file}")
        assert caught.value.hint
    with pytest.raises(UserError, match="not a file"):
        spec_of(linux, f"{built.commit}%config={home}")


def test_a_compile_error_names_the_first_one_and_the_log(built: Build, linux: Path) -> None:
    bad = _break(linux, "int place(void) { return undeclared_name; }\n")
    with pytest.raises(BuildFailed, match=r"does not build with gcc: .*mmap\.c.* error: 'undeclared_name'") as caught:
        _obtain(spec_of(linux, bad))
    assert caught.value.message.count(bad[:12]) == 1, "it has no tag before it, so it is described by its id"
    assert caught.value.hint is None, "gcc is not too new for a kernel of today"
    assert caught.value.log is not None and "  CC      mm/mmap.o" in caught.value.log.read_text()
    assert not list(store.kernels_dir().glob(".staging-*"))
    assert not _unfinished(), "make's own failure leaves whole objects behind"


@pytest.mark.long
def test_sources_that_change_with_a_header_are_compiled_before_all_others(
    built: Build, linux: Path, home: Path, made: Callable[[], list[str]]
) -> None:
    def patched(name: str, source: str, header: str | None) -> KernelSpec:
        git(linux, "checkout", "-q", built.commit)
        (linux / "mm" / "mmap.c").write_text(source)
        if header is not None:
            (linux / "include" / "one.h").write_text(header)
        (linux / "scripts" / "link.c").write_text(f"{name}\n")  # no object of the build
        git(linux, "add", "-A")
        (home / name).write_text(git(linux, "diff", "--cached", "HEAD") + "\n")
        git(linux, "reset", "-q", "--hard")
        git(linux, "checkout", "-q", "main")
        return spec_of(linux, f"{built.commit}+{home / name}")

    broken = "int place(void) { return first + second; }\n"
    with pytest.raises(BuildFailed, match="'first' undeclared"):
        _obtain(patched("broken.patch", broken, "#define ONE\n"))
    assert made() == ["mm/mmap"], "init/main.o depends on the header, and is the first object of a whole build"
    _obtain(patched("whole.patch", MMAP_C.replace("1", "77"), "#define TWO\n"))
    assert made() == ["mm/mmap", "mm/mmap", "init/main"]
    alone = patched("source.patch", MMAP_C.replace("1", "78"), None)
    _obtain(alone)
    assert alone.tree_source and sorted(made()[3:]) == ["init/main", "mm/mmap"]
    (log,) = paths.cache_dir("logs").glob(f"*{alone.tree_source.tree_id[:12]}*")
    assert log.read_text().count("Entering directory") == 1, "without a header, make alone decides"


def test_a_changed_source_that_is_no_target_of_its_own_is_left_to_the_whole_build(
    built: Build, linux: Path, home: Path
) -> None:
    for steps in paths.cache_dir("work").rglob("lab.steps"):
        steps.with_name("boot.o").touch()
    patch = home / "boot.patch"
    added = "--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+/* {0} */\n"
    patch.write_text(added.format("boot.c") + added.format("include/boot.h"))
    assert _obtain(spec_of(linux, f"{built.commit}+{patch}")).key != built.key
    (log,) = (path for path in paths.cache_dir("logs").iterdir() if "boot.o" in path.read_text())
    assert "No rule to make target 'boot.o'" in log.read_text()


def test_a_compiler_that_was_killed_is_not_the_commits_fault(built: Build, linux: Path) -> None:
    bad = _break(linux, '#error "gcc: fatal error: Killed signal terminated program cc1"\n')
    with pytest.raises(HostFailed, match="the compiler was killed while building") as caught:
        _obtain(spec_of(linux, bad))
    assert "smaller -j" in str(caught.value.hint) and caught.value.exit_status == 4


def test_a_tree_too_old_for_the_compiler_says_so(home: Path, linux: Path) -> None:
    old = make_buildable(home / "old", version=(5, 2))
    (old / "scripts" / "allnoconfig").write_text("echo 'dtc.c:1: error: multiple definition of yylloc'; exit 1\n")
    commit_all(old, "a host tool that does not compile")
    with pytest.raises(BuildFailed, match=r"dtc\.c:1: error: multiple definition") as caught:
        _obtain(spec_of(old))
    if compiler().major >= 10:
        assert "newer than v5.2 can be built with" in str(caught.value.hint)


def test_a_build_that_was_killed_leaves_nothing_that_looks_finished(
    built: Build, linux: Path, head: str, hold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {build.key for build, _, _ in store.builds()}
    process = start_build(linux, head)
    until(Path(f"{hold}.reached").exists)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert {build.key for build, _, _ in store.builds()} == before
    (out,) = _unfinished()
    until(lambda: not _running_in(out))
    until(lambda: not list(store.kernels_dir().glob(f".staging-{process.pid}-*")))
    (out / "mm" / "mmap.o").write_bytes(b"half an object, newer than its source")
    monkeypatch.setenv("FAKE_HOLD", "")
    build = _obtain(spec_of(linux, head))
    assert build.commit == head
    assert (store.folder_of(build.key) / "vmlinux").read_bytes().startswith(b"\x7fELF")
    assert not _unfinished()


def test_two_labs_that_want_the_same_kernel_build_it_once(
    built: Build, linux: Path, head: str, hold: Path, made: Callable[[], list[str]]
) -> None:
    first = start_build(linux, head)
    until(Path(f"{hold}.reached").exists)
    second = start_build(linux, head)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(timeout=1)
    hold.unlink()
    keys = [process.communicate(timeout=30) for process in (first, second)]
    assert keys[0][0] == keys[1][0] != "", keys
    assert made().count("mm/mmap") == 1


@pytest.mark.usefixtures("interruptible")
def test_interrupting_a_build_stops_make(built: Build, linux: Path, head: str, hold: Path) -> None:
    process = start_build(linux, head)
    until(Path(f"{hold}.reached").exists)
    (out,) = _unfinished()
    assert _running_in(out)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in stderr
    until(lambda: not _running_in(out))
    assert not list(store.kernels_dir().glob(f".staging-{process.pid}-*")), "nothing to clean up"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (
            "  CC      mm/a.o\nmm/a.c: In function 'f':\nmm/a.c:3:9: error: 'x' undeclared\n"
            "mm/a.c:4:1: error: later\nmake[3]: *** [scripts/Makefile.build:229: mm/a.o] Error 1\n",
            "mm/a.c:3:9: error: 'x' undeclared",
        ),
        (
            "  AS      lib/m.o\nlib/m.S: Assembler messages:\nlib/m.S:7: Error: symbol `m' is already defined\n"
            "make[3]: *** [scripts/Makefile.build:357: lib/m.o] Error 1\n",
            "lib/m.S:7: Error: symbol `m' is already defined",
        ),
        ("ld: in `f':\na.c:(.text): undefined reference to `g'\n", "a.c:(.text): undefined reference to `g'"),
        ("ld: b.o: in `f':\nb.c: multiple definition of `f'; a.o\n", "b.c: multiple definition of `f'; a.o"),
        (
            "make[1]: *** No rule to make target 'b.o', needed by 'a'.  Stop.\nmake: *** [all] Error 2\n",
            "make[1]: *** No rule to make target 'b.o', needed by 'a'.  Stop.",
        ),
        ("  CC      a.o\nmake: *** [Makefile:1: a.o] Error 2\n", "make: *** [Makefile:1: a.o] Error 2"),
        ("  CC      arch/x86/kernel/error.o\n", None),
    ],
)
def test_the_first_error_of_a_log(log: str, line: str | None) -> None:
    assert build.first_error(log) == line


def test_only_a_kernel_with_btf_has_pahole_and_follows_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_btf, found = [("CONFIG_DEBUG_INFO_BTF", "y")], []
    assert "PAHOLE=none" in make_variables() and "PAHOLE=none" in make_variables(options=[("CONFIG_BPF", "y")])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostFailed, match="pahole is not installed"):
        make_variables(options=with_btf)
    for version in ("v1.24", "v1.27"):
        program(tmp_path / "pahole", f"echo {version}")
        found.append(make_variables(options=with_btf))
        assert "PAHOLE=none" not in found[-1] and f"LAB_PAHOLE_VERSION={version}" in found[-1]
    assert found[0] != found[1]
