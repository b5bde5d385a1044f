"""Neutral changes: code and data at the end of a C file that nothing uses, and the linker keeps.

The object differs, and everything linked after it moves; what the kernel does stays the same.
"""

import random
from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath


def change(number: int, path: str, content: bytes, pick: random.Random) -> tuple[bytes, str]:
    """A file's content with the change of a commit in it, and the commit's subject. System.map has the name."""
    what, make = pick.choice(_FLAVOURS)
    text = make(f"history_{number:04d}", pick)
    where = PurePosixPath(path)
    return content + text.encode(), f"{where.parent / where.stem}: add a {what} ({number})"


def _helper(name: str, pick: random.Random) -> str:
    left, right = pick.randint(3, 27), pick.randint(3, 27)
    return f"""
static noinline __used unsigned long {name}(unsigned long value)
{{
	unsigned int step;

	for (step = 0; step < {pick.randint(5, 60)}; step++)
		value = (value << {left}) ^ (value >> {right}) ^ {pick.getrandbits(31):#x}UL;
	return value;
}}
"""


def _array(kind: str, name: str, pick: random.Random) -> str:
    rows = [[f"{pick.getrandbits(32):#010x}" for _ in range(6)] for _ in range(pick.randint(1, 24))]
    numbers = "".join(f"\t{', '.join(row)},\n" for row in rows)
    return f"\nstatic {kind} {name}[] __used = {{\n{numbers}}};\n"


_table, _counters = partial(_array, "const unsigned int"), partial(_array, "unsigned int")


def _lookup(name: str, pick: random.Random) -> str:
    return f"""{_table(f"{name}_table", pick)}
static noinline __used unsigned int {name}(unsigned long index)
{{
	return {name}_table[index % (sizeof({name}_table) / sizeof({name}_table[0]))];
}}
"""


_FLAVOURS: list[tuple[str, Callable[[str, random.Random], str]]] = [
    ("helper", _helper), ("table", _table), ("set of counters", _counters), ("lookup", _lookup),
]  # fmt: skip
