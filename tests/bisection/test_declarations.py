"""Declarations of headers, and sources that get some of them."""

import subprocess
from pathlib import Path

import pytest

from lab.bisection import declarations

HEADER = """\
/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_AREA_H
#define _LINUX_AREA_H
#include <linux/types.h>

struct area { int (*fault)(struct area *); };
typedef int (*walk_t)(struct area *);
enum { AREA_SMALL, AREA_LARGE };
extern struct area first_area;

#define AREA_SIZE 4096	/* bytes */
#define for_each_area(area)	\\
	for (area = next_area(0); area; \\
		area = next_area(area))

extern struct area *next_area(struct area *);
int __printf(2, 3) report(struct area *, const char *, ...);

#ifdef CONFIG_AREAS
// one line
static inline bool is_cow(int flags)
{
#ifdef CONFIG_SMP
	if (flags)
		return false;
#endif
	return AREA_SIZE & flags;
}
#elif defined(CONFIG_FEW)
static inline bool is_cow(int flags) { return "/* no comment */"[flags]; }
#else
static inline bool is_cow(int flags)
{
	return false;
}
#endif

int defined_elsewhere(void)
{
	return 1;
}
#endif /* _LINUX_AREA_H */
"""


@pytest.fixture
def known() -> dict[str, str]:
    return declarations.declared(HEADER)


def test_the_functions_and_macros_of_a_header(known: dict[str, str]) -> None:
    assert sorted(known) == ["AREA_SIZE", "for_each_area", "is_cow", "next_area", "report"]
    assert known["AREA_SIZE"] == "#define AREA_SIZE 4096\t \n"
    assert known["for_each_area"].count("\n") == 3
    assert known["next_area"] == "extern struct area *next_area(struct area *);\n"


def test_conditions_around_a_declaration_go_with_it(known: dict[str, str]) -> None:
    conditions = [line for line in known["is_cow"].splitlines() if line.startswith("#if")]
    assert conditions == [
        "#if defined(CONFIG_AREAS)",
        "#ifdef CONFIG_SMP",
        "#if !(defined(CONFIG_AREAS)) && (defined(CONFIG_FEW))",
        "#if !(defined(CONFIG_AREAS)) && !((defined(CONFIG_FEW))) && 1",
    ]
    assert known["is_cow"].count("#endif") == 4 and "_LINUX_AREA_H" not in "".join(known.values())


def test_what_a_declaration_needs_comes_before_it(known: dict[str, str]) -> None:
    assert list(declarations.lent({"is_cow", "is_odd"}, known)) == ["AREA_SIZE", "is_cow"]
    assert list(declarations.lent({"for_each_area"}, known)) == ["next_area", "for_each_area"]
    assert list(declarations.lent({"one"}, {"one": "two", "two": "one"})) == ["two", "one"]
    assert declarations.lent({"area"}, known) == {}


SOURCE = b"""\
// a
#ifdef CONFIG_A
#include <stdbool.h>
#endif
#include <stdbool.h>
static int one;
int two(void)
{
#include "three.h"
	return is_cow(two);
}
"""


def test_a_source_gets_them_behind_its_includes(known: dict[str, str]) -> None:
    lines = declarations.with_lent("mm/a.c", SOURCE, [known["AREA_SIZE"]]).decode().splitlines()
    at = lines.index("static int one;")
    assert lines[at - 4 : at] == [
        "#include <stdbool.h>", '#line 1 "lent.h"', "#define AREA_SIZE 4096\t ", '#line 6 "mm/a.c"',
    ]  # fmt: skip


def test_a_compiler_names_the_lines_of_the_source(known: dict[str, str], tmp_path: Path) -> None:
    source = SOURCE.replace(b'#include "three.h"', b"\tmissing();").replace(b"is_cow(two)", b"is_cow(1)")
    lent = declarations.lent({"is_cow"}, known)
    (tmp_path / "a.c").write_bytes(declarations.with_lent("mm/a.c", source, lent.values()))
    argv = ["gcc", "-DCONFIG_AREAS", "-Werror=implicit-function-declaration", "-fsyntax-only", "a.c"]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in ended.stderr.splitlines() if ": error: " in line]
    assert len(errors) == 1 and errors[0].startswith("mm/a.c:9:") and "missing" in errors[0], ended.stderr
