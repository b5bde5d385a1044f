"""The cost plugin's arm64 parts without QEMU: instructions by class, and address spaces that come back."""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lab.core.paths import data_folder
from lab.guests import hardware
from lab.kernels import architecture

HERE = Path(__file__).parent
ARM64 = architecture.load("arm64")

LINES = (HERE / "a64_classes.txt").read_text().splitlines()
TABLE = [line.split(maxsplit=2) for line in LINES if not line.startswith("#")]
"""Each instruction: its word in hex, the class, and its text."""

Parts = Callable[[Sequence[str]], list[list[str]]]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """Ask the plugin's parts, line by line."""
    program, plugin = tmp_path_factory.mktemp("parts") / "parts", data_folder("machines") / "plugin"
    sources = [plugin / f"{name}.c" for name in ("a64", "a64_class", "class", "space", "memory")]
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-no-pie", "-Wl,--unresolved-symbols=ignore-all"]
    subprocess.run(["gcc", *flags, f"-I{plugin}", "-o", program, HERE / "plugin_parts.c", *sources], check=True)

    def ask(lines: Sequence[str]) -> list[list[str]]:
        done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
        return [line.split() for line in done.stdout.splitlines()]

    return ask


def decoded(parts: Parts, words: Sequence[str]) -> list[list[str]]:
    return parts([f"decode 0 {word}" for word in words])


def test_every_instruction_is_of_its_class(parts: Parts) -> None:
    found = decoded(parts, [word for word, _, _ in TABLE])
    assert len(found) == len(TABLE) > 100
    wrong = [(text, kind, got[0]) for (_, kind, text), got in zip(TABLE, found, strict=True) if got[0] != kind]
    assert wrong == []


def test_every_class_of_the_table_has_a_cost() -> None:
    costs = hardware.load(ARM64.experimental).cost.given()
    assert {kind for _, kind, _ in TABLE} - {"-"} <= set(costs)


@pytest.mark.skipif(shutil.which(ARM64.compiler) is None, reason=f"needs {ARM64.compiler}")
def test_the_words_of_the_table_are_those_of_the_assembler(tmp_path: Path) -> None:
    texts = [text for _, _, text in TABLE]
    made = tmp_path / "all.o"
    source = "\n".join([".arch armv8.6-a+sve+crypto+sb+rcpc", *texts, ""])
    subprocess.run([f"{ARM64.cross_prefix}as", "-o", made, "-"], input=source, text=True, check=True)
    code = tmp_path / "all.bin"
    subprocess.run([f"{ARM64.cross_prefix}objcopy", "-O", "binary", "-j", ".text", made, code], check=True)
    content = code.read_bytes()
    words = [f"{int.from_bytes(content[at : at + 4], 'little'):08x}" for at in range(0, len(content), 4)]
    assert words == [word for word, _, _ in TABLE]


KINDS = {
    "msr ttbr1_el1, x2": "enter", "msr ttbr0_el1, x0": "plain", "tlbi aside1is, x3": "space",
    "tlbi vmalle1is": "spaces", "tlbi vmalle1": "spaces", "tlbi vale1is, x0": "page", "tlbi vae1is, x1": "page",
    "tlbi vaale1is, x2": "page", "tlbi rvale1is, x4": "page", "dc zva, x0": "plain",
}  # fmt: skip


def test_what_changes_the_address_space_and_what_flushes(parts: Parts) -> None:
    words = {text: word for word, _, text in TABLE}
    found = decoded(parts, [words[text] for text in KINDS])
    assert dict(zip(KINDS, (kind for _, kind in found), strict=True)) == KINDS


def epochs(parts: Parts, *lines: str) -> list[tuple[int, ...]]:
    """The epochs after each line: user and kernel of the first vCPU, user and kernel of the second."""
    return [tuple(map(int, words)) for words in parts(lines)]


def test_an_address_space_comes_back_as_it_was_left(parts: Parts) -> None:
    a, b, back, c = (found[0] for found in epochs(parts, "enter 0 a0", "enter 0 b0", "enter 0 a0", "enter 0 c0"))
    assert a == back and len({a, b, c}) == 3


def test_a_flush_of_one_leaves_the_others(parts: Parts) -> None:
    before, other, flushed, again, there = epochs(
        parts, "enter 0 a0", "enter 1 b0", "flush 1 a0", "enter 0 a0", "enter 1 b0"
    )
    assert flushed[0] != before[0] and again[0] == flushed[0]
    assert flushed[2] == other[2] == there[2]
    assert {found[1] for found in (before, other, flushed, again, there)} == {0}  # the kernel's


def test_a_flush_of_one_that_is_not_known_takes_all_but_the_kernels(parts: Parts) -> None:
    a, b, flushed, back = epochs(parts, "enter 0 a0", "enter 1 b0", "flush 0 0", "enter 0 a0")
    assert flushed[0] != a[0] and flushed[2] != b[2] and flushed[1] == 0
    assert back[0] == flushed[0]


def test_a_flush_of_all_reaches_the_kernels_pages_and_those_that_do_not_run(parts: Parts) -> None:
    a, b, flushed, back = epochs(parts, "enter 0 a0", "enter 0 b0", "all 1 0", "enter 0 a0")
    assert flushed[0] not in (a[0], b[0]) and (flushed[1], flushed[3]) == (1, 1)
    assert back[0] not in (a[0], b[0], flushed[0])


def test_one_without_a_name_does_not_come_back(parts: Parts) -> None:
    first, second = (found[0] for found in epochs(parts, "enter 0 0", "enter 0 0"))
    assert first != second
