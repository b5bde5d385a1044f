"""The symbol table that a kernel carries for itself (CONFIG_KALLSYMS), read out of its file without booting it.

The tables lie one behind the other in .rodata, without any name in the file (scripts/kallsyms.c writes them,
kernel/kallsyms.c reads them; each begins at a multiple of 8):

    up to 6.3   offsets, relative_base, num_syms, names, markers, [seqs_of_names,] token_table, token_index
    from 6.4    num_syms, names, markers, token_table, token_index, offsets, relative_base, seqs_of_names

A name is a length and as many tokens; a token is one of 256 strings. In the token table every character that
occurs in a name stands for itself at its own place, and digits always occur: by "0", "1", .. "9" in a row the
table is found, its index behind it proves it, and all others are found and proved from there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

_DIGITS = b"".join(b"%d\0" % digit for digit in range(10))
_TOKENS = 256
_MARKED = 256  # one marker for so many names
_LONGEST = 0x3FFF  # of a name, in tokens: two bytes of length
_LOWEST = 0xFFFF_8000_0000_0000  # of a kernel address


class Listed(NamedTuple):
    """A symbol as /proc/kallsyms shows it: where, nm's letter for what, and its name."""

    address: int
    kind: str
    name: str


class _Tokens(NamedTuple):
    start: int
    end: int
    texts: list[bytes]


class _Names(NamedTuple):
    start: int  # of num_syms
    symbols: list[bytes]


def read(image: bytes) -> list[Listed] | None:
    """All symbols of an uncompressed x86-64 kernel, by address; None when it has no such tables."""
    for tokens in _token_tables(image):
        names = _names(image, tokens)
        if names is None:
            continue
        addresses = _addresses(image, names, tokens)
        if addresses is not None:
            texts = [name.decode("utf-8", errors="replace") for name in names.symbols]
            return [Listed(at, text[0], text[1:]) for at, text in zip(addresses, texts, strict=True)]
    return None


def _aligned(offset: int) -> int:
    return offset + 7 & ~7


# --- tokens


def _token_tables(image: bytes) -> Iterator[_Tokens]:
    for match in re.finditer(re.escape(_DIGITS), image):
        if tokens := _tokens_around(image, match.start()):
            yield tokens


def _tokens_around(image: bytes, zero: int) -> _Tokens | None:
    """The token table whose "0" is at an offset, if its index agrees."""
    end = zero
    for _ in range(ord("0"), _TOKENS):
        end = image.find(b"\0", end) + 1
        if not end:
            return None
    index_at = _aligned(end)
    if index_at + 2 * _TOKENS > len(image):
        return None
    index = struct.unpack_from(f"<{_TOKENS}H", image, index_at)
    start = zero - index[ord("0")]
    if start < 0:
        return None
    texts = image[start : end - 1].split(b"\0")
    if len(texts) != _TOKENS:
        return None
    place = 0
    for text, said in zip(texts, index, strict=True):
        if place != said:
            return None
        place += len(text) + 1
    return _Tokens(start, index_at + 2 * _TOKENS, texts)


# --- names


def _names(image: bytes, tokens: _Tokens) -> _Names | None:
    """Number and names of the symbols, looked for backwards from the token table.

    num_syms is one of the words below the table with four zeros behind it; the right one has so many names
    behind it, and behind these the markers that fit.
    """
    at = (tokens.start & ~7) - 8
    zeros = bytes(4)
    while at >= 0:
        # A zero is rare among compressed names, so most of the way is gone by this comparison alone.
        if image[at + 4 : at + 8] == zeros and (found := _names_at(image, at, tokens)):
            return found
        at -= 8
    return None


def _names_at(image: bytes, at: int, tokens: _Tokens) -> _Names | None:
    (count,) = struct.unpack_from("<I", image, at)
    start = at + 8
    # The shortest name is its length and one token.
    if not 0 < count <= (tokens.start - start) // 2:
        return None
    places: list[tuple[int, int]] = []
    markers: list[int] = []
    place = start
    for number in range(count):
        if number % _MARKED == 0:
            markers.append(place - start)
        length, place = _length(image, place)
        if not length or place + length > tokens.start:
            return None
        places.append((place, place + length))
        place += length
    size = 4 * len(markers)
    if image[_aligned(place) : _aligned(place) + size] != struct.pack(f"<{len(markers)}I", *markers):
        return None
    texts = tokens.texts
    symbols = [b"".join([texts[token] for token in image[first:last]]) for first, last in places]
    return _Names(at, symbols) if all(symbols) else None


def _length(image: bytes, place: int) -> tuple[int, int]:
    """How many tokens a name has (0 if that cannot be), and where they begin. A second byte is known from 6.1 on."""
    length = image[place]
    if not length & 0x80:
        return length, place + 1
    length = length & 0x7F | image[place + 1] << 7
    return length if 0x7F < length <= _LONGEST else 0, place + 2


# --- addresses


def _addresses(image: bytes, names: _Names, tokens: _Tokens) -> list[int] | None:
    """The address of each name: offsets and base lie behind the tokens, or before the names."""
    size = 4 * len(names.symbols)
    before = names.start - 8 - _aligned(size)
    for offsets, base in ((tokens.end, tokens.end + _aligned(size)), (before, names.start - 8)):
        if offsets >= 0 and base + 8 <= len(image) and (found := _decoded(image, offsets, base, len(names.symbols))):
            return found
    return None


def _decoded(image: bytes, offsets_at: int, base_at: int, count: int) -> list[int] | None:
    (base,) = struct.unpack_from("<Q", image, base_at)
    if base < _LOWEST:
        return None
    offsets = struct.unpack_from(f"<{count}i", image, offsets_at)
    if min(offsets) < 0:
        # CONFIG_KALLSYMS_ABSOLUTE_PERCPU: what is negative is base - 1 - address, the rest is the address itself.
        addresses = [offset if offset >= 0 else base - 1 - offset for offset in offsets]
    else:
        addresses = [base + offset for offset in offsets]
    # scripts/kallsyms.c sorts by address; anything else was no table of offsets.
    return addresses if addresses == sorted(addresses) else None
