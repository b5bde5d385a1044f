"""Kernel images, made by hand to the boot protocol's offsets."""

import gzip
import struct

CONFIG = "CONFIG_FOO=y\n"


def elf(*, pvh: bool = True, config: bool = True) -> bytes:
    """An ELF file with a note segment, a banner, and a .config."""
    notes = b"".join(
        struct.pack("<III", len(owner), 4, kind) + owner.ljust((len(owner) + 3) & ~3, b"\0") + b"\1\0\0\0"
        for owner, kind in ((b"Linux\0", 18), (b"Xen\0", 18 if pvh else 6))
    )
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    )
    segment = struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(notes), len(notes), 4)
    banner = b"Linux version %s\0Linux version 6.12.1-test (me@here) (gcc) #1 SMP\0"
    packed = b"IKCFG_ST" + gzip.compress(CONFIG.encode(), mtime=0) + b"IKCFG_ED" if config else b""
    return header + segment + notes + banner + packed


def damaged_elf() -> bytes:
    """An ELF file with names of sections where no file reaches."""
    start, names = elf(), struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, 1 << 63, 16, 0, 0, 1, 0)
    return start[:40] + struct.pack("<Q10xHHH", len(start), 64, 2, 1) + start[64:] + bytes(64) + names


def bzimage(payload: bytes) -> bytes:
    image = bytearray(0x700)
    image[0x1F1] = 1
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x20E, 0x100)
    image[0x300:0x31C] = b"6.12.1-test (me@here) #1 SMP"
    struct.pack_into("<II", image, 0x248, 0x300, len(payload))
    return bytes(image) + payload + b"trailing"


def empty() -> bytes:
    """An image that names its release and has no kernel in it: enough where no guest boots."""
    return bzimage(b"")
