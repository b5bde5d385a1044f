"""Ways to damage a file: five of a table, and many by chance with a seed."""

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

SEED = int(os.environ.get("LAB_FUZZ_SEED", "1"))

Damage = Callable[[bytes, random.Random], bytes]


def rng(*parts: object) -> random.Random:
    """Chance that is the same for each seed of the run."""
    return random.Random(f"{SEED} {parts}")  # noqa: S311 - not a secret


def cut(content: bytes, rng: random.Random) -> bytes:
    """The beginning alone."""
    return content[: rng.randrange(len(content))]


def turned(content: bytes, rng: random.Random) -> bytes:
    """One bit that turned."""
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def _no_text(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + b"\xff\xfe" + content[at:]


def noise(content: bytes, rng: random.Random) -> bytes:
    """Random bytes over some of a file's."""
    at, size = rng.randrange(len(content)), rng.choice((1, 2, 4, 8, 64, 512))
    return content[:at] + rng.randbytes(size) + content[at + size :]


def moved(content: bytes, rng: random.Random) -> bytes:
    """A piece of a file once more, at another place."""
    at, to, size = rng.randrange(len(content)), rng.randrange(len(content)), rng.choice((1, 8, 64, 512, 4096))
    return content[:to] + content[at : at + size] + content[to:]


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


BYTES: dict[str, Damage] = {"emptied": lambda *_: b"", "cut": cut, "bit": turned, "noise": noise, "moved": moved}
"""Of any file."""

TEXTS: dict[str, Damage] = {
    **BYTES,
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
"""Of JSON and TOML."""


# ---- five of a table


def _turn(path: Path) -> None:
    """Another number: the lowest bit of the last digit that there is, or of the byte in the middle."""
    content = bytearray(path.read_bytes())
    digits = [at for at, byte in enumerate(content) if byte in b"0123456789"]
    content[digits[-1] if digits else len(content) // 2] ^= 1
    path.write_bytes(content)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


FILES: dict[str, Callable[[Path], None]] = {
    "emptied": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "turned": _turn,
    "folder": _folder,
    "unreadable": lambda path: path.chmod(0),
}
"""Of a file in its place."""
