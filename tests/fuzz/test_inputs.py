"""Files that others made: bundles, kernel images, TOML files and what a plugin wrote are read or refused."""

import bz2
import gzip
import lzma
import random
import struct
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from lab.atlas import plan as atlas_plan
from lab.core import paths
from lab.core.errors import LabError
from lab.guests import costs, hardware, plugin
from lab.kernels import file_source, files, symbols
from lab.nightly import plan as nightly_plan
from lab.report.bundle import contents, write
from lab.report.bundle import replay as bundle_replay
from lab.report.inputs import StoredComparison
from lab.workloads import spec
from lab.workloads.spec import Center

from ..fakes.build import own_folders
from ..fakes.bundle import measured
from ..fakes.kernel_image import bzimage, elf
from ..fakes.work import quiet
from ..guests.test_plugin import END, HEADER, PROFILE, WINDOW
from .conftest import Tally
from .damages import BYTES, SEED, TEXTS, Damage, rng, turned

PLAN = """\
schema = 1
name = "mine"
workloads = ["alloc-burst:layout-4632k"]
budget = "6h"
seeds = 3
max_seeds = 10
modes = ["exact", "live"]

[live]
budget = "1h"

[[branch]]
tree = "linux"
branch = "main"
releases = 2

[[branch]]
packages = "deb:trixie-backports/*"
"""


def explore(
    tally: Tally, reader: str, read: Callable[[Path], object], bases: list[Path], damages: dict[str, Damage]
) -> None:
    """Damage the files and read them, until the time of the test is over. Only errors of the lab's own may come."""
    content = [(path, path.read_bytes()) for path in bases]
    for number in tally.goes_on():
        dice = rng(reader, number)
        path, before = dice.choice(content)
        name = dice.choice([*damages])
        after = damages[name](before, dice)
        path.write_bytes(after)
        tally.inputs[reader] += 1
        try:
            read(path)
        except LabError:
            pass
        except Exception:
            said = f"seed {SEED}, number {number}: {path.name} {name}: {traceback.format_exc()}"
            tally.found.append((reader, said))
        path.write_bytes(before)


# ---- TOML


def _texts(*found: Path) -> list[str]:
    return [path.read_text() for path in sorted(found)]


TOML: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "workload.toml": (spec.read, _texts(*paths.data_folder("workloads").glob("*/workload.toml"))),
    "machine file": (hardware.read, _texts(*map(hardware.path_of, hardware.names(None)))),
    "plan of nights": (nightly_plan.load, [PLAN]),
    "plan of an atlas": (atlas_plan.load, _texts(paths.data_folder("atlas") / "atlas.toml")),
}


@pytest.mark.parametrize("reader", TOML)
def test_a_file_is_read_or_refused(reader: str, tally: Tally, tmp_path: Path) -> None:
    read, texts = TOML[reader]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.toml").write_text(text)
    explore(tally, reader, read, sorted(tmp_path.iterdir()), TEXTS)


# ---- what a guest's plugin wrote


def test_costs_are_read_or_refused(tally: Tally, tmp_path: Path) -> None:
    path = tmp_path / "costs.jsonl"
    path.write_text("\n".join((HEADER, WINDOW, PROFILE, END)) + "\n")

    def read(path: Path) -> None:
        for windows in plugin.by_case(path).values():
            assert all(window.instructions >= 0 for window in windows)
            for center in get_args(Center):
                costs.summarize(windows, center=center)
                costs.events(windows, measures="all", center=center)

    explore(tally, "costs of a guest", read, [path], TEXTS)


# ---- kernel images


def _field(content: bytes, dice: random.Random) -> bytes:
    """Another number in a header: of the boot protocol, of ELF, or of its segments."""
    at = dice.choice((0x1F1, 0x20E, 0x248, 0x24C, *range(16, 64, 2), *range(64, 176, 4)))
    value = dice.choice((0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, dice.getrandbits(32)))
    packed = struct.pack("<Q", value)[: dice.choice((1, 2, 4, 8))]
    return content[:at] + packed + content[at + len(packed) :]


def test_a_kernel_is_read_or_refused(tally: Tally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_folders(monkeypatch, tmp_path / "own")
    arm64 = bytearray(4096)
    arm64[0x38:0x3C] = b"ARM\x64"
    banner = b"Linux version 6.12.1-test (me@here) (gcc) #1 SMP\0"
    images = {
        "vmlinux": elf(), "plain": bzimage(elf()), "gzip": bzimage(gzip.compress(elf())), "Image": arm64 + banner,
        "xz": bzimage(lzma.compress(elf()) + bytes(4)), "bzip2": bzimage(bz2.compress(elf()) + bytes(4)),
        "lzma": bzimage(lzma.compress(elf(), lzma.FORMAT_ALONE) + bytes(4)),
    }  # fmt: skip
    for name, content in images.items():
        (tmp_path / name).write_bytes(content)

    def read(path: Path) -> None:
        source = file_source.resolve(str(path))
        assert "/" not in source.release
        found = files.prebuilt(path, symbols=None)
        files.kconfig_of(path)
        files.compiler_of(path)
        files.built_on(path)
        symbols.kernel_symbols(found.vmlinux, None)

    explore(tally, "kernel image", read, [tmp_path / name for name in images], {**BYTES, "field": _field})


# ---- bundles


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredComparison:
    """A measured comparison. Scratch folders are in the test's own."""
    own_folders(monkeypatch, tmp_path / "own")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return measured(monkeypatch, tmp_path)


def _replay(path: Path) -> None:
    bundle_replay.replay(path, bundle_replay.ReplayOptions(qemu="qemu", guest_timeout_s=60), quiet(jobs=2))


def _header(content: bytes, dice: random.Random) -> bytes:
    """Another value in a field of a member's header, whose sum is right."""
    headers = [at for at in range(0, len(content) - 511, 512) if content[at + 257 : at + 262] == b"ustar"]
    at = dice.choice(headers)
    block = bytearray(content[at : at + 512])
    start, size = dice.choice(((0, 100), (100, 8), (108, 8), (124, 12), (136, 12), (156, 1), (157, 100), (345, 155)))
    value = dice.choice((
        b"../../evil", b"/tmp/evil", b"\xff" * 12, b"77777777777\0", b"\x80" + b"\x7f" * 11, b"x", b"g", b"L", b"K",
        b"S", b"1", b"2", b"3", b"5", b"6", dice.randbytes(12), b"",
    ))  # fmt: skip
    block[start : start + size] = value[:size].ljust(size, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return content[:at] + bytes(block) + content[at + 512 :]


def test_an_archive_is_replayed_or_refused_and_writes_nowhere_else(
    tally: Tally, report: StoredComparison, tmp_path: Path
) -> None:
    bases = [tmp_path / "b.tar", tmp_path / "b.tar.zst"]
    for path in bases:
        write.write(report, path, quiet())
    before = _outside(tmp_path)

    def read(path: Path) -> None:
        try:
            _replay(path)
        finally:
            assert _outside(tmp_path) == before

    tars = {**BYTES, "header": lambda content, dice: (_header if b"ustar" in content else turned)(content, dice)}
    explore(tally, "bundle, as an archive", read, bases, {**tars, "headers": tars["header"]})


def _outside(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "own" not in path.relative_to(folder).parts[:1]}


def test_records_of_a_bundle_are_read_or_refused(tally: Tally, report: StoredComparison, tmp_path: Path) -> None:
    """With sums that are right: what somebody does who changes a bundle."""
    folder = tmp_path / "bundle"
    write.write(report, folder, quiet())
    bases = [folder / name for name in (contents.DESCRIPTION, contents.EXPECTED, contents.RESULT, contents.MACHINE)]
    bases += sorted(folder.glob("guests/*"))[:1]

    def read(path: Path) -> None:
        contents.write(folder)
        _replay(folder)

    explore(tally, "bundle, its records", read, [path for path in bases if path.is_file()], TEXTS)


def test_sums_of_a_bundle_are_read_or_refused(tally: Tally, report: StoredComparison, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    write.write(report, folder, quiet())
    explore(tally, "bundle, its sums", lambda _: contents.check(folder), [folder / contents.NAME], TEXTS)
