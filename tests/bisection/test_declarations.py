"""Declarations of headers, and sources that get some of them."""

import re
import subprocess
from pathlib import Path

import pytest

from lab.bisection import declarations

HEADER = """\
/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_AREA_H
#define _LINUX_AREA_H
#ifndef __ASSEMBLY__
#include <linux/types.h>

struct area { int (*fault)(struct area *); };
typedef int (*walk_t)(struct area *);
enum { AREA_SMALL, AREA_LARGE = 2 };
extern struct area first_area;

#define AREA_SIZE 4096	/* bytes */
#define for_each_area(area)	\\
	for (area = next_area(0); area; \\
		area = next_area(area))

extern struct area *next_area(struct area *);
int __printf(2, 3) report(struct area *, const char *, ...);

#ifdef CONFIG_AREAS
AREA_FLAG(one)
#ifdef CONFIG_FEW
AREA_FLAG(few)
#endif
AREA_FLAG(two)

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
#endif /* __ASSEMBLY__ */
#endif /* _LINUX_AREA_H */
"""


@pytest.fixture
def known() -> dict[str, str]:
    return declarations.lacking(declarations.declared(HEADER), {}, set())


def test_the_functions_and_macros_of_a_header(known: dict[str, str]) -> None:
    assert sorted(known) == [
        "AREA_LARGE", "AREA_SIZE", "AREA_SMALL", "area", "for_each_area", "is_cow", "next_area", "report", "walk_t",
    ]  # fmt: skip
    assert known["AREA_LARGE"] == known["AREA_SMALL"] == "enum { AREA_SMALL, AREA_LARGE = 2 };\n"
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


OLD = """\
#define WARN_FLAGS 1
#define FIRST 1
#define SECOND 2
int made(void);
int both(void);
int some(int);
enum kinds { KIND_A, KIND_B };
enum { GONE_A = 1, GONE_B };
struct gone { int member; };
"""

NEW = """\
#ifndef WARN_FLAGS
#define WARN_FLAGS 2
#endif
#define FIRST 2
int both(void);
enum kinds { KIND_A };
#ifdef CONFIG_A
#ifdef CONFIG_B
int some(long);
#endif
#endif
"""


def test_a_name_that_the_other_end_has_is_not_lent() -> None:
    old, new = declarations.declared(OLD), declarations.declared(NEW)
    found = declarations.lacking(old, new, {"made", "some", "kinds", "KIND_A"})
    assert found == {
        "SECOND": "#define SECOND 2\n",
        "GONE_A": "enum { GONE_A = 1, GONE_B };\n",
        "GONE_B": "enum { GONE_A = 1, GONE_B };\n",
        "gone": "struct gone { int member; };\n",
        "some": "#if !((defined(CONFIG_A)) && (defined(CONFIG_B)))\nint some(int);\n#endif\n",
    }


def test_a_file_that_is_no_c_declares_nothing() -> None:
    assert declarations.declared("one {\n two(\n", "\x00\xff", "") == {}


def test_what_a_declaration_needs_comes_before_it(known: dict[str, str]) -> None:
    assert list(declarations.lent({"is_cow", "is_odd"}, known)) == ["AREA_SIZE", "is_cow"]
    assert list(declarations.lent({"for_each_area"}, known)) == ["area", "next_area", "for_each_area"]
    assert list(declarations.lent({"first"}, {"first": "second", "second": "first"})) == ["second", "first"]
    assert declarations.lent({"land"}, known) == {}
    assert list(declarations.lent({"is_cow"}, known, {"AREA_SIZE"})) == ["is_cow"], "the other end has a size"


SOURCE = """\
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


@pytest.mark.parametrize(("path", "text", "before"), [
    ("mm/a.c", SOURCE, "static int one;"),
    ("include/linux/area.h", HEADER, "\nstruct area {"),
    ("mm/plain.c", "int one;\n", "int one;"),
    ("mm/late.c", "#ifdef A\n#include <a.h>\n#endif\n#include <b.h>\nint one;\n", "int one;"),
])  # fmt: skip
def test_a_file_gets_them_behind_its_includes(known: dict[str, str], path: str, text: str, before: str) -> None:
    made = declarations.with_lent(path, text.encode(), {"AREA_SIZE": known["AREA_SIZE"]}).decode()
    first, _, rest = re.sub("lent_[0-9a-f]{8}", "lent", made).partition(
        '#line 1 "lent.h"\n#ifndef lent\n#define lent\n'
    )
    assert rest.startswith(f'{known["AREA_SIZE"]}#endif\n#line {first.count(chr(10)) + 1} "{path}"\n{before}')


def test_a_source_includes_what_it_did_if_that_is_there() -> None:
    includes = declarations.included(["#include <linux/a.h>", '# include "b.h"', "include <c.h>", "int one;"])
    assert includes == ["<linux/a.h>", '"b.h"']
    made = declarations.with_lent("mm/a.c", b"#include <c.h>\n", {}, includes[:1]).decode()
    assert "#if __has_include(<linux/a.h>)\n#include <linux/a.h>\n#endif\n" in made


def test_a_compiler_names_the_lines_of_the_source(known: dict[str, str], tmp_path: Path) -> None:
    source = SOURCE.replace('#include "three.h"', "\tmissing();").replace("is_cow(two)", "is_cow(1)").encode()
    lent = declarations.lent({"is_cow"}, known)
    (tmp_path / "a.c").write_bytes(
        declarations.with_lent("mm/a.c", declarations.with_lent("mm/a.c", source, lent), lent)
    )
    argv = ["gcc", "-DCONFIG_AREAS", "-Werror=implicit-function-declaration", "-fsyntax-only", "a.c"]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in ended.stderr.splitlines() if ": error: " in line]
    assert len(errors) == 1 and errors[0].startswith("mm/a.c:9:") and "missing" in errors[0], ended.stderr
