"""The alternatives of kernels: their tables in each form, and which features two kernels look for."""

import struct

import pytest

from lab.guests import hardware
from lab.kernels import alternatives
from lab.kernels.alternatives import Alternative, KernelTable
from lab.kernels.symbols import Label, SymbolTable

AT = 0xFFFF_FFFF_8300_0000
TEXT = 0xFFFF_FFFF_8100_0000
FSRM, ERMS, SMAP, PCID = (18, 4), (9, 9), (9, 20), (4, 17)
ALWAYS = (3, 21)


def table(form: str, *entries: tuple[int, tuple[int, int], bool]) -> bytes:
    """A table of places at offsets in the text."""
    rows = b""
    size = struct.calcsize(form)
    for number, (offset, (word, bit), inverted) in enumerate(entries):
        at = AT + number * size
        feature = word * 32 + bit
        if form == "<iiHHBB":
            middle = (feature, int(inverted), 5, 3)
        else:
            middle = (feature | (0x8000 if inverted else 0), 5, 3, *((0,) if form == "<iiHBBB" else ()))
        rows += struct.pack(form, TEXT + offset - at, 0x1000, *middle)
    return rows


@pytest.mark.parametrize("form", ["<iiHBB", "<iiHHBB", "<iiHBBB"])
@pytest.mark.parametrize("count", [1, 84, 91])
def test_tables_of_every_form_are_read(form: str, count: int) -> None:
    inverted = form != "<iiHBBB"
    entries = [(16 * number, (FSRM, SMAP)[number % 2], inverted and number % 3 == 0) for number in range(count)]
    found = alternatives.parse(table(form, *entries), AT)
    assert found == [Alternative(TEXT + offset, *feature, inverted=not_there) for offset, feature, not_there in entries]


def elf(section: bytes, name: bytes = b".altinstructions") -> bytes:
    """An ELF file with one section, and that of their names."""
    names = b"\0" + name + b"\0.shstrtab\0"
    body = section + names
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, 64 + len(body), 0, 64, 56, 0, 64, 3, 2)
    rows = [
        (0, 0, 0, 0, 0, 0),
        (1, 1, 2, AT, 64, len(section)),
        (len(name) + 2, 3, 0, 0, 64 + len(section), len(names)),
    ]
    return header + body + b"".join(struct.pack("<IIQQQQ", *row).ljust(64, b"\0") for row in rows)


def test_the_table_is_found_in_the_image() -> None:
    rows = table("<iiHHBB", (0, FSRM, True))
    assert alternatives.read(elf(rows)) == [Alternative(TEXT, *FSRM, inverted=True)]
    assert alternatives.read(elf(rows, b".altinstr_aux")) == []
    assert alternatives.read(elf(rows)[:100]) == [] and alternatives.read(b"MZ") == []


def test_features_of_a_cpu() -> None:
    words = {(7, 0, "EBX"): 1 << 20 | 1 << 9, (1, 0, "ECX"): 1 << 26, (7, 0, "ECX"): 1 << 3}
    assert alternatives.features(words) == {"smap", "erms", "xsave", "osxsave", "pku", "ospke"}


@pytest.mark.parametrize("name", hardware.names())
def test_machine_files_use_these_names(name: str) -> None:
    guest = hardware.load(name).guest
    assert guest is not None
    assert {*guest.lacks, *guest.off} <= alternatives.names()


def kernel(*places: tuple[str, tuple[int, int]]) -> KernelTable:
    functions = list(dict.fromkeys(name for name, _ in places))
    starts = {name: TEXT + 0x100 * number for number, name in enumerate(functions)}
    symbols = SymbolTable(Label(start, "T", name, 0x100) for name, start in starts.items())
    return KernelTable([Alternative(starts[name] + 8, *feature) for name, feature in places], symbols)


def test_what_only_one_kernel_looks_for_comes_first() -> None:
    base = kernel(("clear_page", ERMS), ("switch_mm", PCID), ("get_user", SMAP), ("get_user", ALWAYS))
    test = kernel(
        ("clear_page", ERMS), ("clear_user", ERMS), ("copy.constprop.0", FSRM), ("switch_mm", PCID), ("get_user", SMAP)
    )
    found = alternatives.choices([base, test], {"smap"}, {"smap", "erms", "fsrm"})
    assert [(one.feature, one.base, one.test, one.modelled, one.guest) for one in found] == [
        ("fsrm", 0, 1, True, False), ("erms", 1, 2, True, False), ("smap", 1, 1, True, True),
        ("pcid", 1, 1, False, False),
    ]  # fmt: skip
    fsrm, erms, smap, _ = found
    assert fsrm.only_test == ["copy"] and fsrm.differs
    assert (erms.functions, erms.only_base, erms.only_test) == (["clear_page"], [], ["clear_user"])
    assert not smap.differs
