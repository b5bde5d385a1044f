"""The plugin's buffers of translations, without QEMU: sets, ways, and the page that was unused longest goes first."""

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

from lab.core.paths import data_folder

Page = tuple[int, int, int]
"""Its number, whether it is a huge one, and the epoch."""


@pytest.fixture(scope="module")
def tlb(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library, plugin = tmp_path_factory.mktemp("tlb") / "parts.so", data_folder("machines") / "plugin"
    sources = [Path(__file__).with_name("tlb_parts.c"), plugin / "tlb.c"]
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{plugin}"]
    subprocess.run(["gcc", *flags, "-o", library, *sources], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.make.argtypes = (ctypes.c_uint32, ctypes.c_uint32)
    loaded.use.argtypes = (ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64)
    loaded.flushed.argtypes, loaded.flushed.restype = (ctypes.c_uint64, ctypes.c_int), ctypes.c_uint64
    return loaded


@pytest.mark.parametrize(("entries", "ways"), [(96, 6), (2048, 16), (72, 72), (12, 4), (8, 1)])
def test_each_set_has_the_pages_that_were_used_last(tlb: ctypes.CDLL, entries: int, ways: int) -> None:
    assert tlb.make(entries, ways)
    chance, sets = random.Random(entries), entries // ways  # noqa: S311
    held: dict[int, list[Page]] = {}
    found = 0
    for _ in range(20_000):
        page = (chance.randrange(3 * entries), chance.randrange(2), chance.choice((1, 1, 1, 2)))
        pages = held.setdefault(page[0] % sets, [])
        assert tlb.use(*page) == (page in pages), page
        found += page in pages
        pages[:] = [one for one in pages if one != page][-(ways - 1) :] if ways > 1 else []
        pages.append(page)
        last = next((one[2] for one in reversed(pages) if one[:2] == page[:2]), 0)
        assert tlb.flushed(*page[:2]) == last
    assert 1_000 < found < 19_000
