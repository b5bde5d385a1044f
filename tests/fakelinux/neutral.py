"""Neutral changes: code and data at the end of a C file that nothing uses, and the linker keeps.

The object differs, and everything linked after it moves; what the kernel does stays the same.
"""

import random
from collections.abc import Callable
from pathlib import PurePosixPath


def symbol_of(number: int) -> str:
    """The name by which the change of a commit is found in System.map."""
    return f"history_{number:04d}"


def change(number: int, path: str, content: bytes, pick: random.Random) -> tuple[bytes, str]:
    """A file's content with the change of a commit in it, and the commit's subject."""
    what, make = pick.choice(_FLAVOURS)
    text = make(symbol_of(number), pick)
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


def _table(name: str, pick: random.Random) -> str:
    return f"\nstatic const unsigned int {name}[] __used = {{\n{_numbers(pick)}}};\n"


def _counters(name: str, pick: random.Random) -> str:
    return f"\nstatic unsigned int {name}[] __used = {{\n{_numbers(pick)}}};\n"


def _lookup(name: str, pick: random.Random) -> str:
    return f"""{_table(f"{name}_table", pick)}
static noinline __used unsigned int {name}(unsigned long index)
{{
	return {name}_table[index % (sizeof({name}_table) / sizeof({name}_table[0]))];
}}
"""


def _numbers(pick: random.Random) -> str:
    rows = [[f"{pick.getrandbits(32):#010x}" for _ in range(6)] for _ in range(pick.randint(1, 24))]
    return "".join(f"\t{', '.join(row)},\n" for row in rows)


_FLAVOURS: list[tuple[str, Callable[[str, random.Random], str]]] = [
    ("helper", _helper), ("table", _table), ("set of counters", _counters), ("lookup", _lookup),
]  # fmt: skip
