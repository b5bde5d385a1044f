"""Names of functions: System.map, a kernel's own kallsyms, ELF programs."""

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.core import paths
from lab.core.errors import UserError
from lab.kernels import symbols
from lab.kernels.symbols import Label, Symbol, SymbolTable

from ..fakes.kernel_image import damaged_elf

TEXT = 0xFFFFFFFF81000000

MAP = f"""\
0000000000000000 A fixed_percpu_data
0000000000001000 A cpu_tss_rw
0000000001000000 A phys_startup_64
{TEXT:016x} T _stext
{TEXT:016x} T _text
{TEXT:016x} T startup_64
{TEXT + 0x40:016x} T __memset
{TEXT + 0x40:016x} W memset
{TEXT + 0x80:016x} t do_fault
{TEXT + 0xC0:016x} t do_fault.part.0
{TEXT + 0x100:016x} t do_fault.cold
{TEXT + 0x110:016x} T __sched_text_end
{TEXT + 0x120:016x} T last_function
{TEXT + 0x200:016x} T _etext
{TEXT + 0x1000:016x} D data
"""


def test_of_loaded_modules() -> None:
    lines = [
        f"{TEXT:016x} T of_the_kernel", f"{TEXT + 0x1000000:016x} t ext4_create\t[ext4]",
        f"{TEXT + 0x1000040:016x} d a_table\t[ext4]", f"{TEXT + 0x1000080:016x} T jbd2_start\t[jbd2]",
        "0000000000000000 t hidden\t[ext4]", "no line at all [x]", f"{TEXT + 0x10000c0:016x} T {'long' * 999}\t[ext4]",
    ]  # fmt: skip
    table = symbols.of_modules(lines)
    assert [(one.name, one.start - TEXT) for one in table] == [("ext4_create", 0x1000000), ("jbd2_start", 0x1000080)]
    assert table.entry(TEXT + 0x1000000) and table.find(TEXT + 0x1000041) is None
    assert len(symbols.of_modules([])) == 0


# --- tables


def test_find_and_entry(tmp_path: Path) -> None:
    path = tmp_path / "System.map"
    path.write_text(MAP)
    table = symbols.from_system_map(path)
    names = "startup_64 memset do_fault do_fault.part.0 do_fault.cold last_function"
    assert [symbol.name for symbol in table] == names.split() and len(table) == 6
    assert table.find(TEXT) == Symbol("startup_64", TEXT, 0x40)
    assert table.find(TEXT + 0x5F) == Symbol("memset", TEXT + 0x40, 0x40)
    assert table.find(TEXT + 0x11F) is None  # where a section ended
    assert table.find(TEXT + 0x200) is None
    assert table.find(TEXT + 0x1000) is None  # data
    assert table.find(0x1000) is None  # an offset into per-CPU data
    assert table.find(0xFFFFFFFFC0000000) is None  # a module
    assert table.entry(TEXT + 0x80)
    assert not any(map(table.entry, (TEXT + 0x81, TEXT + 0xC0, TEXT + 0x100, 0)))


def test_levels_of_initcalls(tmp_path: Path) -> None:
    names = (
        "__initcall__kmod_core__765_2227_init_hw_perf_eventsearly", "__initcall__kmod_hvc_console__1_9_hvc_initcon",
        "__initcall__kmod_initramfs__330_764_populate_rootfsrootfs", "__initcall__kmod_af_inet__9_2080_inet_init5",
        "__initcall__kmod_x__2_1_of_reserved_mem3s", "__initcall_start", "str__initcall__trace_system_name",
        "__initcall__kmod_mod6__3_2_init6_77",
    )  # fmt: skip
    path = tmp_path / "System.map"
    path.write_text("".join(f"{TEXT:016x} d {name}\n" for name in names))
    assert symbols.initcall_levels(None, path) == {
        "init_hw_perf_events": "early", "hvc_init": "console", "populate_rootfs": "rootfs", "inet_init": "fs",
        "of_reserved_mem": "arch", "init6_7": "late",
    }  # fmt: skip
    path.write_text(MAP)
    assert symbols.initcall_levels(None, path) == {}


@pytest.mark.parametrize(("name", "base"), [
    ("do_fault", "do_fault"),
    ("do_fault.cold", "do_fault"),
    ("do_fault.part.0.isra.0", "do_fault"),
    ("do_fault.llvm.1234567890", "do_fault"),
    ("__key.3", "__key"),
    (".slowpath", ".slowpath"),
    (".cold", ".cold"),
])  # fmt: skip
def test_base_name(name: str, base: str) -> None:
    assert symbols.base_name(name) == base


@pytest.mark.parametrize(("read", "content", "said"), [
    (symbols.from_system_map, None, "cannot read {}: No such file"),
    (symbols.from_elf, None, "cannot read {}: No such file"),
    (symbols.from_kallsyms_image, None, "cannot read {}: No such file"),
    (symbols.from_system_map, b"0 T a\nno map\n", "{}, line 2: not a line of a System.map: 'no map'"),
    (symbols.from_kallsyms_image, b"no kernel", "{} is not a Linux kernel"),
    (symbols.from_elf, b"", "{} is not a readable ELF file: "),
    (symbols.from_elf, damaged_elf()[:27], "{} is not a readable ELF file: "),
    (symbols.from_elf, damaged_elf(), "{} is not a readable ELF file: "),
])  # fmt: skip
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, read: Callable[[Path], SymbolTable], content: bytes | None, said: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(path)
    assert caught.value.message.startswith(said.format(path))


# --- kallsyms


LOADED = TEXT + 0x100_0000


def _pad(content: bytes, to: int = 8) -> bytes:
    return content + bytes(-len(content) % to)


def compress(names: list[tuple[int, str]]) -> tuple[bytes, bytes, bytes, bytes]:
    """Names, markers, token table and its index, with few tokens: every character for itself, and `do_` as byte 1."""
    used = set("".join(name for _, name in names)) | set("0123456789")
    tokens = [chr(i) if chr(i) in used else "" for i in range(256)]
    tokens[1] = "do_"
    table, index = b"", []
    for token in tokens:
        index.append(len(table))
        table += token.encode() + b"\0"
    stream, markers = b"", []
    for number, (_, name) in enumerate(names):
        if number % 256 == 0:
            markers.append(len(stream))
        packed = name.replace("do_", "\1").encode()
        size = len(packed)
        stream += bytes([size] if size < 0x80 else [size & 0x7F | 0x80, size >> 7]) + packed
    return stream, struct.pack(f"<{len(markers)}I", *markers), table, struct.pack("<256H", *index)


def encode_kallsyms(names: list[tuple[int, str]], *, new: bool, percpu: bool, seqs: bool = False) -> bytes:
    """What scripts/kallsyms.c writes up to 6.19."""
    stream, markers, table, index = compress(names)
    base = TEXT
    offsets = [(at if percpu and at < TEXT else base - 1 - at if percpu else at - base) & 0xFFFFFFFF for at, _ in names]
    where = _pad(struct.pack(f"<{len(names)}I", *offsets)) + struct.pack("<Q", base)
    order = bytes(3 * len(names))
    body = struct.pack("<II", len(names), 0) + _pad(stream) + _pad(markers)
    body += _pad(order) if seqs and not new else b""
    body += _pad(table) + index
    return body + where + _pad(order) if new else where + body


def encode_kernel_7(names: list[tuple[int, str]], shift: int) -> bytes:
    """An ELF kernel from 7.0 on, the tables after some content that shifts them, loaded at LOADED."""
    stream, markers, table, index = compress(names)
    content = NOISE + bytes(-len(NOISE) % 4 + shift)
    content += struct.pack("<I", len(names)) + _pad(stream, 4) + markers + _pad(table, 4) + index
    at = LOADED + len(content)
    content += b"".join(struct.pack("<i", address - at - 4 * i) for i, (address, _) in enumerate(names))
    content += bytes(3 * len(names)) + NOISE
    header = b"\x7fELF\x02\x01" + bytes(26) + struct.pack("<Q14xHH6x", 64, 56, 2)
    note = struct.pack("<IIQQQQQQ", 4, 0, 0, 0, 0, 16, 16, 0)
    load = struct.pack("<IIQQQQQQ", 1, 0, 176, LOADED, 0, len(content), len(content), 0)
    return header + note + load + content


def names_of_a_kernel(count: int, *, percpu: bool) -> list[tuple[int, str]]:
    names = [(0, "Afixed_percpu_data"), (0x40, "Acpu_number")] if percpu else []
    names += [(TEXT + 16 * i, f"{'Tt'[i % 2]}do_thing_{i}") for i in range(count)]
    return [*names, (TEXT + 16 * count, "t" + "long_" * 40), (TEXT + 16 * count + 16, "Dsome_data")]


NOISE = (
    bytes(range(1, 256)) * 40 + b"0\0001\0002\0003\0004\0005\0006\0007\0008\0009\0 these are no tokens" + bytes(4000)
)


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("percpu", [False, True])
@pytest.mark.parametrize("seqs", [False, True])
@pytest.mark.parametrize("count", [3, 256, 1000])
def test_kallsyms_of_any_layout(new: bool, percpu: bool, seqs: bool, count: int) -> None:
    names = names_of_a_kernel(count, percpu=percpu)
    image = _pad(b"\x7fELF" + NOISE) + encode_kallsyms(names, new=new, percpu=percpu, seqs=seqs) + NOISE
    assert symbols.read_kallsyms(image) == [Label(at, name[0], name[1:]) for at, name in names]


@pytest.mark.parametrize("shift", [0, 4])
@pytest.mark.parametrize("count", [3, 253, 254, 511, 1000])
def test_kallsyms_of_7_0(shift: int, count: int) -> None:
    names = names_of_a_kernel(count, percpu=False)
    image = encode_kernel_7(names, shift)
    assert symbols.read_kallsyms(image) == [Label(at, name[0], name[1:]) for at, name in names]
    assert symbols.read_kallsyms(image[64:]) is None  # offsets say nothing without the address of the table
    unsorted = [*names[:2], names[-1], *names[2:]]
    assert symbols.read_kallsyms(encode_kernel_7(unsorted, shift)) is None


def test_no_kallsyms() -> None:
    names = names_of_a_kernel(300, percpu=True)
    image = encode_kallsyms(names, new=True, percpu=True)
    assert symbols.read_kallsyms(b"") is None
    assert symbols.read_kallsyms(NOISE) is None
    for end in range(0, len(image) - 1000, 97):
        assert symbols.read_kallsyms(image[:end]) is None, end
    unsorted = [*names[:50], names[60], *names[50:]]
    assert symbols.read_kallsyms(encode_kallsyms(unsorted, new=True, percpu=True)) is None
    for damage in range(0, 3000, 101):
        broken = bytearray(image)
        broken[damage] ^= 0xFF
        symbols.read_kallsyms(bytes(broken))  # whatever it says, it ends


@pytest.mark.usefixtures("own_home")
def test_kernel_symbols_takes_the_best(tmp_path: Path) -> None:
    vmlinux, real, stub = tmp_path / "vmlinux", tmp_path / "System.map", tmp_path / "System.map-deb"
    vmlinux.write_bytes(
        b"\x7fELF\x02\x01" + bytes(58) + encode_kallsyms(names_of_a_kernel(9, percpu=True), new=True, percpu=True)
    )
    real.write_text(MAP)
    stub.write_text("ffffffffffffffff B The real System.map is in the linux-image-<version>-dbg package\n")
    assert len(symbols.kernel_symbols(vmlinux, real)) == 6
    assert len(symbols.kernel_symbols(vmlinux, stub)) == 10
    assert len(symbols.kernel_symbols(vmlinux, None)) == 10
    for without in (stub, None):
        with pytest.raises(UserError, match="no names of the kernel's functions"):
            symbols.kernel_symbols(None, without)


@pytest.mark.usefixtures("own_home")
def test_functions_of_an_image_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vmlinux, other = tmp_path / "vmlinux", tmp_path / "other"
    for path, count in (vmlinux, 9), (other, 12):
        names = names_of_a_kernel(count, percpu=True)
        path.write_bytes(b"\x7fELF\x02\x01" + bytes(58) + encode_kallsyms(names, new=True, percpu=True))
    first = list(symbols.from_kallsyms_image(vmlinux))
    (kept,) = paths.cache_dir("symbols").glob("*.json")
    kept.write_text(kept.read_text().replace("do_thing_3", "do_thing_x"))
    assert list(symbols.from_kallsyms_image(vmlinux)) == first  # a damaged file is made anew
    monkeypatch.setattr(symbols, "read_kallsyms", lambda _: None)
    again = symbols.from_kallsyms_image(vmlinux)
    assert list(again) == first and again.find(TEXT + 17) == first[1]
    assert len(symbols.from_kallsyms_image(other)) == 0
    assert list(paths.cache_dir("symbols").glob("*.json")) == [kept]


# --- ELF

PROGRAM = """
__attribute__((noinline)) static int helper(int x) { return x * 3 + 1; }
__attribute__((noinline)) int twice(int x) { return helper(x) + helper(x + 1); }
int data = 7;
int main(void) { return twice(data); }
"""


def _compiled(folder: Path, *options: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    source, program = folder / "program.c", folder / "program"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", *options, "-o", program, source], check=True)
    return program


def test_elf(tmp_path: Path) -> None:
    program = _compiled(tmp_path, "-no-pie", "-fno-pie")
    table = symbols.from_elf(program)
    found = {symbol.name: symbol for symbol in table}
    assert {"main", "twice", "helper", "_start"} <= found.keys()
    assert "data" not in found
    for name in ("main", "twice", "helper"):
        symbol = found[name]
        assert table.entry(symbol.start)
        assert table.find(symbol.start + symbol.size - 1) == symbol
        assert not table.entry(symbol.start + 1)
    moved = symbols.from_elf(program, bias=0x1000)
    assert moved.find(found["twice"].start + 0x1000) == found["twice"]._replace(start=found["twice"].start + 0x1000)


def test_stripped_elf(tmp_path: Path) -> None:
    program = _compiled(tmp_path, "-s", "-rdynamic")
    assert "twice" in {symbol.name for symbol in symbols.from_elf(program)}
    program = _compiled(tmp_path, "-s", "-static")
    assert len(symbols.from_elf(program)) == 0
