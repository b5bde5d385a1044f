"""Stores with one damaged file: every command names it, does without it or makes it anew, and never breaks."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.cli import main
from lab.compare import result_folders
from lab.core import paths

from ..fakes import bundle
from ..fakes.build import own_folders

FUZZ_S = float(os.environ.get("LAB_FUZZ_S", "15"))
"""The seconds for which each test goes on: `make fuzz` gives an hour to all."""

SEED = int(os.environ.get("LAB_FUZZ_SEED", "1"))

COMMANDS = (
    ["report"],
    ["report", "latest"],
    ["report", "latest", "--format", "md"],
    ["report", "latest", "--format", "json"],
    ["report", "latest", "--format", "junit"],
    ["history", "show"],
    ["history", "rebuild"],
    ["kernel", "list"],
    ["image", "list"],
    ["gc", "--dry-run"],
    ["ab", "--resume", "latest"],
)
FINE = {0, 2, 3, 4, 5}
"""Statuses of commands that met something: never 1, which says that --fail-on matched."""

Damage = Callable[[bytes, random.Random], bytes]


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def _turned(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def _no_text(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + b"\xff\xfe" + content[at:]


def _number(replacement: bytes) -> Damage:
    """Another number in place of one of the file's."""

    def damage(content: bytes, rng: random.Random) -> bytes:
        found = [*re.finditer(rb"(?<=[\s:,\[])-?\d+(\.\d+)?", content)]
        if not found:
            return content + replacement
        one = rng.choice(found)
        return content[: one.start()] + replacement + content[one.end() :]

    return damage


def _word(content: bytes, rng: random.Random) -> bytes:
    """Another word in place of one in quotes: a path that leads elsewhere, or an escape sequence."""
    found = [*re.finditer(rb'"[^"\n]*"', content)]
    if not found:
        return content
    one = rng.choice(found)
    word = rng.choice((b'""', b'"../../../etc/passwd"', b'"\\u001b[31m"', b'"\\ud800"', b'"' + b"x" * 100_000 + b'"'))
    return content[: one.start()] + word + content[one.end() :]


DAMAGES: dict[str, Damage] = {
    "emptied": lambda *_: b"",
    "cut": _cut,
    "bit": _turned,
    "no-text": _no_text,
    "deep": lambda content, _: b"[" * 100_000,
    "null": lambda content, _: b"null",
    "list": lambda content, _: b"[1, 2]",
    "digits": _number(b"1" * 5000),
    "large": _number(b"9" * 400),
    "negative": _number(b"-1"),
    "fraction": _number(b"1e308"),
    "word": _word,
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files of a home with a measured comparison in it."""
    own_folders(monkeypatch, tmp_path / "home")
    stored = bundle.measured(monkeypatch, tmp_path)
    folder = result_folders.new_folder(None)
    shutil.copytree(stored.folder, folder, dirs_exist_ok=True)
    assert main.run(["history", "rebuild"]) == 0
    assert paths.data_dir().is_relative_to(tmp_path)
    return sorted(path for path in paths.data_dir().rglob("*") if path.is_file() and path.stat().st_size)


def _damaged(files: list[Path]) -> Iterator[tuple[str, Path, bytes, bytes]]:
    """Damage after damage, each of another kind and file than the one before, until the time is over."""
    end = time.monotonic() + FUZZ_S
    rng = random.Random(SEED)  # noqa: S311 - not a secret
    while True:
        for path in rng.sample(files, len(files)):
            name = rng.choice([*DAMAGES])
            before = path.read_bytes()
            if time.monotonic() > end:
                return
            yield name, path, before, DAMAGES[name](before, rng)


def test_no_damaged_file_breaks_a_command(store: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(-SEED)  # noqa: S311 - not a secret
    tried = 0
    for name, path, before, after in _damaged(store):
        path.write_bytes(after)
        for command in rng.sample(COMMANDS, 4):
            status = main.run([*command])
            said = capsys.readouterr()
            words = f"seed {SEED}: lab {' '.join(command)} with {path.name} {name} ({after[:60]!r})"
            where = f"{words}: status {status}\n{said.err}"
            assert status in FINE, where
            assert "Traceback" not in said.err and "mistake of the lab's own" not in said.err, where
            assert "\x1b" not in said.out, where
            tried += 1
        if path.exists() or path.parent.is_dir():
            path.write_bytes(before)
    assert tried > 10
