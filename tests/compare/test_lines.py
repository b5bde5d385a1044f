"""The lines at which vCPUs met, by place and function, in both arms."""

import msgspec

from lab.compare.lines import Access, differing, met, moved_for_nothing
from lab.compare.profiles import ArmProfile
from lab.guests.plugin import Line, Use, Window
from lab.kernels.places import Places
from lab.kernels.symbols import Label, SymbolTable

from ..guests import test_plugin
from ..kernels.test_places_btf import SYMBOLS, made

TEXT = 0xFFFFFFFF81000000
SLAB = 0x4000000


def use(at: int, offset: int, *, loads: int = 0, stores: int = 0) -> Use:
    return Use(address=at, loads=loads, stores=stores, essential=0, atomics=stores, vcpus=3, bytes=0xFF << offset)


def line(*uses: Use, essential: int, **more: object) -> Line:
    values = {
        "line": SLAB + 48 * 4, "address": 0xFFFF888004000000, "readers": 3, "writers": 1, "essential": essential,
        "moves": sum(one.loads + one.stores for one in uses), "queued": 4000, "waited": 0, "held": 9000, "holds": 3,
        "uses": list(uses), **more,
    }  # fmt: skip
    return msgspec.convert(values, Line)


def profile(*lines: Line, operations: int = 10) -> ArmProfile:
    (plain,) = test_plugin.parse(test_plugin.HEADER, test_plugin.WINDOW, test_plugin.PROFILE, test_plugin.END)
    window: Window = msgspec.structs.replace(plain, lines=list(lines))
    table = SymbolTable([Label(TEXT, "t", "fput", 64), Label(TEXT + 64, "t", "fdget.isra.0", 64)])
    return ArmProfile(
        blocks=[], operations=operations, kernel=[table], windows=[window], places=Places(SYMBOLS, made())
    )


def test_places_by_name_with_what_happened_per_operation() -> None:
    object_line = line(
        use(TEXT, 0, stores=20), use(TEXT + 70, 16, loads=10), essential=10, cache="filp", size=48, slab=SLAB
    )
    (found,) = met(profile(object_line), profile())
    assert found.place == "file.f_count.counter, f_path.dentry" and found.functions == ["fput", "fdget"]
    base = found.base
    assert (base.moved, base.false, base.atomics, base.lost, base.held) == (3.0, 2.0, 2.0, 0.4, 0.9)
    assert (base.readers, base.writers) == (2, 1)
    assert found.test.moved == 0 and differing([found, msgspec.structs.replace(found, test=base)]) == [found]


def test_false_sharing_by_member_with_who_reads_and_writes_it() -> None:
    near = line(use(TEXT, 0, stores=20), use(TEXT + 70, 16, loads=10), essential=10, cache="filp", size=48, slab=SLAB)
    wanted = line(use(TEXT, 0, stores=20), essential=20)
    (found,) = moved_for_nothing(profile(near, wanted))
    assert (found.place, found.moved, found.false) == ("file.f_count.counter, f_path.dentry", 3.0, 2.0)
    assert found.accesses == [
        Access(member="file.f_count.counter", readers=[], writers=["fput"]),
        Access(member="file.f_path.dentry", readers=["fdget"], writers=[]),
    ]


def test_objects_of_general_caches_by_the_functions_that_got_them() -> None:
    seen = line(
        use(TEXT, 0, stores=20), use(TEXT + 70, 16, loads=10), essential=10, cache="kmalloc-96", size=96, slab=SLAB,
        owners=[[96, TEXT + 64]],
    )  # fmt: skip
    (found,) = met(profile(seen), profile())
    assert found.place == "kmalloc-96+0x0, +0x10", "192 is another object of the slab"
    owned = msgspec.structs.replace(seen, line=SLAB + 96)
    (found,) = met(profile(owned), profile())
    assert found.place == "kmalloc-96(fput)+0x0, +0x10", "the call is in the function before the place it returned to"


def test_pages_without_a_name_go_by_the_functions_that_move_them_unless_they_hardly_move() -> None:
    (found,) = met(profile(line(use(TEXT, 0, stores=5), essential=5)), profile())
    assert found.place == "memory of fput"
    assert met(profile(line(use(TEXT, 0, stores=1), essential=1), operations=100), profile()) == []
