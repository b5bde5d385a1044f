"""The symbol table inside a kernel (CONFIG_KALLSYMS), read from its file without booting it.

The tables follow each other in .rodata and have no names in the file. scripts/kallsyms.c writes them and
kernel/kallsyms.c reads them; each begins at a multiple of 8, from 7.0 on of 4:

    up to 6.3   offsets, relative_base, num_syms, names, markers, [seqs_of_names,] token_table, token_index
    from 6.4    num_syms, names, markers, token_table, token_index, offsets, relative_base, seqs_of_names
    from 7.0    num_syms, names, markers, token_table, token_index, offsets, seqs_of_names

Offsets are relative to relative_base; from 7.0 on, each to its own address.

A name is a length and that many tokens; a token is one of 256 strings. In the token table, every character that
occurs in a name is a token at its own index, and digits always occur. So "0", "1", .. "9" in a row lead to the
table, its index behind it confirms it, and the other tables are found and checked from there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from lab.kernels import architecture, files
from lab.kernels.files import Buffer

_DIGITS = b"".join(b"%d\0" % digit for digit in range(10))
_TOKENS = 256
_MARKED = 256  # one marker for so many names
_LONGEST = 0x3FFF  # of a name, in tokens: two bytes of length
_LOWEST = 0xFFFF_8000_0000_0000  # of a kernel address


class ListedSymbol(NamedTuple):
    """A symbol as /proc/kallsyms shows it. kind: nm's letter."""

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


def read(image: Buffer) -> list[ListedSymbol] | None:
    """All symbols of an uncompressed kernel, by address; None if it has no such tables."""
    for tokens in _token_tables(image):
        # Words of one layout can pass for a table of a single name in the other, so the longer table is the real one.
        listed = max(_listed(image, tokens), key=len, default=None)
        if listed:
            return listed
    return None


def _listed(image: Buffer, tokens: _Tokens) -> Iterator[list[ListedSymbol]]:
    """The symbols as each of the layouts gives them."""
    for find_names, find_addresses in ((_names, _addresses), (_names_before, _own_addresses)):
        names = find_names(image, tokens)
        addresses = find_addresses(image, names, tokens) if names else None
        if names and addresses:
            texts = [name.decode("utf-8", errors="replace") for name in names.symbols]
            yield [ListedSymbol(at, text[0], text[1:]) for at, text in zip(addresses, texts, strict=True)]


def _aligned(offset: int, to: int = 8) -> int:
    return offset + to - 1 & -to


# --- tokens


def _token_tables(image: Buffer) -> Iterator[_Tokens]:
    for match in re.finditer(re.escape(_DIGITS), image):
        if tokens := _tokens_around(image, match.start()):
            yield tokens


def _tokens_around(image: Buffer, zero: int) -> _Tokens | None:
    """The token table that has its "0" at an offset, if its index agrees."""
    end = zero
    for _ in range(ord("0"), _TOKENS):
        end = image.find(b"\0", end) + 1
        if not end:
            return None
    for index_at in {_aligned(end), _aligned(end, 4)}:
        if index_at + 2 * _TOKENS > len(image):
            continue
        index = struct.unpack_from(f"<{_TOKENS}H", image, index_at)
        start = zero - index[ord("0")]
        texts = image[start : end - 1].split(b"\0") if start >= 0 else []
        if list(index) == list(accumulate((len(text) + 1 for text in texts[:-1]), initial=0)):
            return _Tokens(start, index_at + 2 * _TOKENS, texts)
    return None


# --- names


def _names(image: Buffer, tokens: _Tokens) -> _Names | None:
    """Number and names of the symbols, searched backwards from the token table.

    num_syms is a word before the table with four zeros behind it, then that many names, then markers that match.
    """
    at = (tokens.start & ~7) - 8
    zeros = bytes(4)
    while at >= 0:
        # A zero is rare among compressed names, so this comparison alone rules out most words.
        if image[at + 4 : at + 8] == zeros and (names := _names_at(image, at, tokens)):
            return names
        at -= 8
    return None


def _names_before(image: Buffer, tokens: _Tokens) -> _Names | None:
    """Number and names of the symbols of 7.0 and later, searched backwards from the markers before the token table."""
    markers_at, markers = _markers_before(image, tokens.start)
    if not markers:
        return None
    # Behind the last marker, there are at most so many more names.
    first = markers_at - 4 - markers[-1] & ~3
    most = len(markers) * _MARKED
    for at in range(first, max(first - _MARKED * (_LONGEST + 2), -1), -4):
        (count,) = struct.unpack_from("<I", image, at)
        if most - _MARKED < count <= most and (names := _names_at(image, at, tokens, alignment=4)):
            return names
    return None


def _markers_before(image: Buffer, end: int) -> tuple[int, list[int]]:
    """The rising words from zero on that end at an offset; and the offset of the first."""
    words: list[int] = []
    for at in range(end - 4, -1, -4):
        (word,) = struct.unpack_from("<I", image, at)
        if words and word >= words[-1]:
            break
        words.append(word)
        if word == 0:
            return at, words[::-1]
    return end, []


def _names_at(image: Buffer, at: int, tokens: _Tokens, alignment: int = 8) -> _Names | None:
    (count,) = struct.unpack_from("<I", image, at)
    start = at + alignment
    # The shortest name is a length and one token.
    if not 0 < count <= (tokens.start - start) // 2:
        return None
    spans: list[tuple[int, int]] = []
    markers: list[int] = []
    offset = start
    for number in range(count):
        if number % _MARKED == 0:
            markers.append(offset - start)
        length, offset = _length(image, offset)
        if not length or offset + length > tokens.start:
            return None
        spans.append((offset, offset + length))
        offset += length
    size = 4 * len(markers)
    markers_at = _aligned(offset, alignment)
    if image[markers_at : markers_at + size] != struct.pack(f"<{len(markers)}I", *markers):
        return None
    texts = tokens.texts
    symbols = [b"".join([texts[token] for token in image[first:last]]) for first, last in spans]
    return _Names(at, symbols) if all(symbols) else None


def _length(image: Buffer, offset: int) -> tuple[int, int]:
    """The number of a name's tokens (0 if it is impossible), and the offset of the first. From 6.1 on in two bytes."""
    length = image[offset]
    if not length & 0x80:
        return length, offset + 1
    length = length & 0x7F | image[offset + 1] << 7
    return length if 0x7F < length <= _LONGEST else 0, offset + 2


# --- addresses


def _addresses(image: Buffer, names: _Names, tokens: _Tokens) -> list[int] | None:
    """The address of each name; offsets and base are behind the tokens, or before the names."""
    count = len(names.symbols)
    size = _aligned(4 * count)
    for offsets, base in ((tokens.end, tokens.end + size), (names.start - 8 - size, names.start - 8)):
        if offsets >= 0 and base + 8 <= len(image) and (addresses := _decoded(image, offsets, base, count)):
            return addresses
    return None


def _own_addresses(image: Buffer, names: _Names, tokens: _Tokens) -> list[int] | None:
    """The address of each name, from offsets behind the tokens that are relative to themselves."""
    count = len(names.symbols)
    start = _address_at(image, tokens.end)
    if start is None or tokens.end + 4 * count > len(image):
        return None
    offsets = struct.unpack_from(f"<{count}i", image, tokens.end)
    addresses = [start + 4 * number + offset for number, offset in enumerate(offsets)]
    return addresses if addresses == sorted(addresses) else None


def _address_at(image: Buffer, offset: int) -> int | None:
    """The address at which a byte of the file is loaded."""
    for segment in files.segments(image):
        if segment.kind == files.PT_LOAD and segment.offset <= offset < segment.offset + segment.size:
            return segment.address + offset - segment.offset
    return None


def _relocated(image: Buffer, base_at: int) -> int:
    """The base that an Image writes there when it boots; 0 if no relocation says so.

    An entry of .rela.dyn has the address of a word, a kind (such as R_AARCH64_RELATIVE), and the word to write there.
    """
    guests = architecture.of_header(image)
    if guests is None or guests.image is None:
        return 0
    places = {image_at + base_at for image_at in guests.image.addresses}
    for match in re.finditer(re.escape(struct.pack("<Q", guests.image.relative)), image):
        if match.start() % 8 == 0 and 8 <= match.start() <= len(image) - 16:
            address, _, value = struct.unpack_from("<3Q", image, match.start() - 8)
            if value >= _LOWEST and address in places:
                return int(value)
    return 0


def _decoded(image: Buffer, offsets_at: int, base_at: int, count: int) -> list[int] | None:
    (base,) = struct.unpack_from("<Q", image, base_at)
    base = base or _relocated(image, base_at)
    if base < _LOWEST:
        return None
    offsets = struct.unpack_from(f"<{count}i", image, offsets_at)
    if min(offsets) < 0:
        # CONFIG_KALLSYMS_ABSOLUTE_PERCPU: a negative offset is base - 1 - address, any other is the address itself.
        addresses = [offset if offset >= 0 else base - 1 - offset for offset in offsets]
    else:
        addresses = [base + offset for offset in offsets]
    # scripts/kallsyms.c sorts by address; anything else is not a table of offsets.
    return addresses if addresses == sorted(addresses) else None
