"""Compilers: who they are, and for whom they are too new."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.core import paths
from lab.core.errors import HostFailed, UserError
from lab.kernels import compilers
from lab.kernels.compilers import Compiler

from ..fakes.compiler import write_compiler


def test_clang_is_told_from_gcc_though_it_defines_gnuc_too(tmp_path: Path) -> None:
    macros = "#define __GNUC__ 4\\n#define __clang_major__ 17\\n"
    found = compilers.identify(str(write_compiler(tmp_path, "cc17", "clang version 17.0.1", macros=macros)))
    assert (found.family, found.major, found.version) == ("clang", 17, "clang version 17.0.1")


@pytest.mark.parametrize("evil", ["gcc;touch pwned", "$(touch pwned)", "gcc -B.", "--help", "", "a\nb", "`x`", "gcc\n"])
def test_a_compiler_is_one_plain_word(evil: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="is no compiler command"):
        compilers.identify(evil)
    assert not list(tmp_path.iterdir())


def test_one_that_is_missing_is_misuse_when_it_was_named_and_the_hosts_lack_when_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError, match="gcc-99 is not installed") as caught:
        compilers.identify("gcc-99")
    assert "apt-get install gcc-99" in str(caught.value.hint)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostFailed, match="gcc is not installed"):
        compilers.identify()


@pytest.mark.skipif(not shutil.which("ccache"), reason="needs ccache")
@pytest.mark.usefixtures("own_home")
def test_folders_share_objects_that_are_compiled_once_and_not_preprocessed() -> None:
    env = {**os.environ, **compilers.ccache_environment()}
    for name in ("one", "other"):
        folder = paths.cache_dir("work", name)
        (folder / "main.c").write_text("int main(void) { return 0; }\n")
        words = ["ccache", "gcc", "-g", "-MD", "-c", "-o", "main.o", str(folder / "main.c")]
        subprocess.run(words, cwd=folder, env=env, check=True)
    said = subprocess.run(["ccache", "--print-stats"], env=env, check=True, capture_output=True, text=True).stdout
    found = dict(line.split("\t") for line in said.splitlines())
    assert list(paths.cache_dir("ccache").iterdir()), "the lab's own, not the user's"
    assert (found["cache_miss"], found["direct_cache_hit"], found["preprocessed_cache_miss"]) == ("1", "1", "0")


@pytest.mark.parametrize(("family", "major", "kernel", "reason"), [
    ("gcc", 12, (5, 16), "use-after-free"),
    ("gcc", 12, (5, 17), None),
    ("gcc", 15, (6, 13), "C23"),
    ("gcc", 11, (5, 5), "fno-common"),
    ("gcc", 11, (5, 10), None),
    ("clang", 17, (4, 4), None),
])  # fmt: skip
def test_compilers_too_new_for_a_kernel(family: str, major: int, kernel: tuple[int, int], reason: str | None) -> None:
    compiler = Compiler(command=f"{family}-{major}", family=family, major=major, version="v", linker="ld")
    hint = compilers.age_hint(compiler, kernel)
    if reason is None:
        assert hint is None
    else:
        assert reason in str(hint) and f"v{kernel[0]}.{kernel[1]}" in str(hint) and "--cc" in str(hint)


def test_a_cross_compiler_that_is_not_there_names_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostFailed, match="aarch64-linux-gnu-gcc is not installed") as raised:
        compilers.of_guests("arm64")
    assert raised.value.hint == "install it: apt-get install gcc-aarch64-linux-gnu"
    with pytest.raises(HostFailed) as raised:
        compilers.of_guests("arm64", "gcc-11")
    assert raised.value.hint == "install it: apt-get install gcc-11-aarch64-linux-gnu"
