"""Members of a kernel's types: a BTF of two structs, made by hand."""

import struct
from pathlib import Path

import pytest

from lab.kernels import places
from lab.kernels.symbols import Label

INT, PTR, ARRAY, STRUCT, UNION, TYPEDEF = 1, 2, 3, 4, 5, 8


def made() -> places.Types:
    """`struct file { atomic_t f_count; union { long u; struct path f_path; }; char tail[4]; }`."""
    text = b"\0"
    at: dict[str, int] = {"": 0}

    def word(name: str) -> int:
        nonlocal text
        if name not in at:
            at[name] = len(text)
            text += name.encode() + b"\0"
        return at[name]

    def kind(name: str, which: int, size: int, members: list[tuple[str, int, int]] | None = None) -> bytes:
        head = struct.pack("<III", word(name), which << 24 | len(members or []), size)
        return head + b"".join(struct.pack("<III", word(n), of, 8 * offset) for n, of, offset in members or [])

    types = [
        kind("int", INT, 4) + struct.pack("<I", 32),  # 1
        kind("atomic_t", TYPEDEF, 3),  # 2
        kind("", STRUCT, 4, [("counter", 1, 0)]),  # 3
        kind("", PTR, 1),  # 4
        kind("path", STRUCT, 16, [("mnt", 4, 0), ("dentry", 4, 8)]),  # 5
        kind("", UNION, 16, [("u", 4, 0), ("f_path", 5, 0)]),  # 6
        kind("", ARRAY, 0) + struct.pack("<III", 1, 1, 4),  # 7
        kind("file", STRUCT, 48, [("f_count", 2, 0), ("", 6, 8), ("tail", 7, 32)]),  # 8
        kind("slab", STRUCT, 64, [("slab_cache", 4, 8)]),  # 9
        kind("kmem_cache", STRUCT, 64, [("name", 4, 0), ("size", 1, 8), ("list", 4, 16)]),  # 10
        kind("mem_section", STRUCT, 16, [("section_mem_map", 4, 0), ("usage", 4, 8)]),  # 11
    ]
    body = b"".join(types)
    return places.Types(struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(body), len(body), len(text)) + body + text)


def test_where_members_are() -> None:
    types = made()
    assert types.offset("file", "f_path") == 8, "in a union without a name"
    assert types.offset("file", "f_pos") is None and types.offset("inode", "i_lock") is None
    assert [types.path("file", offset) for offset in (0, 8, 16, 24, 40)] == [
        "f_count.counter", "u", "f_path.dentry", "+0x18", "tail[2]",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no BTF"):
        places.Types(bytes(24))


BASE = 0xFFFF888007A00000
SYMBOLS = [
    Label(0xFFFFFFFF82000100, "D", "vm_zone_stat"),
    Label(0xFFFFFFFF82000200, "D", "slab_caches"),
    Label(0xFFFFFFFF82000300, "D", "__per_cpu_offset"),
    Label(0xFFFFFFFF82000310, "B", "mem_section"),
    Label(0xFFFFFFFF81000000, "T", "vmemmap_populate"),
    Label(0, "A", "__per_cpu_start"),
    Label(0x100, "d", "runqueues"),
    Label(0x1000, "A", "__per_cpu_end"),
]


def test_names_of_places() -> None:
    found = places.Places(SYMBOLS, made())
    assert found.of_object("filp", 16) == "file.f_path.dentry"
    assert found.of_object("kmalloc-64", 16) == "kmalloc-64+0x10"
    assert found.of_address(0xFFFFFFFF82000108, []) == "vm_zone_stat+0x8"
    told = [
        *SYMBOLS,
        Label(0xFFFFFFFF82001000, "T", "_sdata"),
        Label(0xFFFFFFFF82001040, "T", "root_user"),
    ]
    assert places.Places(told, None).of_address(0xFFFFFFFF82001048, []) == "root_user+0x8"
    assert found.of_address(BASE + 0x104, [BASE]) == "percpu runqueues+0x4"
    assert found.of_address(BASE + 0x104, []) == "pages"
    assert found.of_address(0x7FFF00000000, []) == "user memory"
    assert found.of_address(0xFFFFC90000001000, []) == "a stack"
    arguments = dict(word.split("=") for word in found.arguments())
    assert arguments == {
        "percpu": str(0xFFFFFFFF82000300), "slab_caches": str(0xFFFFFFFF82000200), "slab_cache": "8",
        "cache_name": "0", "cache_size": "8", "cache_list": "16",
    }  # fmt: skip
    found = places.Places(SYMBOLS, None)
    assert found.of_object("filp", 16) == "filp+0x10", "without types"
    assert found.arguments() == [f"percpu={0xFFFFFFFF82000300}"]


def test_a_kernel_without_one_array_of_pages_has_them_by_section() -> None:
    scattered = [symbol for symbol in SYMBOLS if symbol.name != "vmemmap_populate"]
    arguments = dict(word.split("=") for word in places.Places(scattered, made()).arguments())
    assert arguments.items() >= {
        "sections": str(0xFFFFFFFF82000310), "section_size": "16", "section_map": "0", "slab_cache": "8",
    }.items()  # fmt: skip


def test_a_kernel_that_lists_functions_alone_has_its_variables_from_its_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places.files, "extract_vmlinux", lambda path: path)
    monkeypatch.setattr(places.symbols, "read_kallsyms", lambda _: [Label(0xFFFFFFFF81000000, "T", "fput")])
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(b"no ELF file")
    system_map = tmp_path / "System.map"
    system_map.write_text("ffffffffffffffff B The real System.map is in the linux-image-<version>-dbg package\n")
    for without in (None, system_map):
        assert places.of_kernel(kernel, without).of_address(0xFFFFFFFF82000108, []) == "0xffffffff82000108"
    places.of_kernel.cache_clear()
    system_map.write_text("ffffffff81000000 T fput\nffffffff82000100 D vm_zone_stat\n")
    assert places.of_kernel(kernel, system_map).of_address(0xFFFFFFFF82000108, []) == "vm_zone_stat+0x8"


def test_functions_of_locks_and_of_objects_are_known_by_their_names() -> None:
    text = [
        (0, "_raw_spin_lock"), (64, "up_write"), (128, "mutex_lock.constprop.0"), (192, "mutex_is_locked"),
        (256, "__kmalloc_cache_node_noprof"), (320, "kmalloc_reserve"),
    ]  # fmt: skip
    symbols = [Label(0xFFFFFFFF81000000 + at, "t", name) for at, name in text]
    words = places.Places(symbols, None).arguments()
    start = 0xFFFFFFFF81000000
    assert words == [
        f"takes={start}:{start + 64}", f"releases={start + 64}:{start + 128}", f"takes={start + 128}:{start + 192}",
        f"allocates={start + 256}",
    ]  # fmt: skip
