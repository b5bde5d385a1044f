"""The search among files and hunks, on differences with planted hunks: what is asked, and what is found."""

import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from lab.bisection import difference_search, suspects
from lab.bisection.difference_search import Found, Mix, Outcome, Part, Pending, Result, Search, minimal, mix_name
from lab.bisection.hunks import Difference, Hunk


def hunk(path: str, at: int, old: str, new: str, function: str = "") -> Hunk:
    """A hunk that replaces one line."""
    context = f"int {function}(void)" if function else ""
    return Hunk(
        path=path, old_start=at, old_count=1, new_start=at, new_count=1, function=context, lines=[f"-{old}", f"+{new}"]
    )


def neutral(path: str, at: int) -> Hunk:
    return hunk(path, at, f"/* before {path} {at} */", f"/* after {path} {at} */")


@dataclass
class Kernels:
    """Kernels that build, and cost, as planted.

    effects: the share of each set of hunks that is taken back together. needs: hunks without which one does not build,
    and the name that the compiler then misses. refuses: hunks that never build in a mix. breaks: hunks that break
    another file. helpers: hunks that take a name away which a line of both ends has. panics: hunks that no guest
    survives.
    """

    difference: Difference
    effects: Mapping[Mix, float]
    needs: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    refuses: Set[int] = frozenset()
    breaks: Set[int] = frozenset()
    helpers: Mapping[int, str] = field(default_factory=dict)
    panics: Set[int] = frozenset()
    builds: int = 0
    failed: int = 0

    def result(self, mix: Mix) -> Result:
        self.builds += 1
        if errors := [error for number in sorted(mix) if (error := self.error(number, mix))]:
            self.failed += 1
            return Result(None, (f"../src/{errors[0]}",))
        if self.panics & mix:
            self.failed += 1
            return Result(None)
        return Result(sum(share for hunks, share in self.effects.items() if hunks <= mix))

    def error(self, number: int, mix: Mix) -> str:
        """What the compiler says of a hunk in a mix, or nothing."""
        at = self.difference.hunks[number]
        place = f"{at.path}:{at.new_start}:3: error:"
        if number in self.breaks:
            return "kernel/other.c:7:3: error: 'broken' undeclared"
        if number in self.helpers:
            return f"{at.path}:190:3: error: implicit declaration of function \u2018{self.helpers[number]}\u2019"
        if number in self.refuses:
            return f"{place} passing argument 2 of 'elsewhere' from incompatible pointer type"
        other, name = self.needs.get(number, (number, ""))
        return f"{place} \u2018struct pipe\u2019 has no member named \u2018{name}\u2019" if other not in mix else ""

    def search(self, *, hunks: bool = True) -> Found:
        known: dict[str, Result] = {}
        while True:
            try:
                return Search(self.difference, known, tolerance=0.1, hunks=hunks).run()
            except Pending as pending:
                assert mix_name(pending.mix) not in known and pending.left >= 1
                known[mix_name(pending.mix)] = self.result(pending.mix)


def plain(files: int, each: int) -> list[Hunk]:
    return [neutral(f"mm/file{number}.c", 10 * at) for number in range(files) for at in range(1, each + 1)]


def difference(hunks: list[Hunk], functions: dict[str, float] | None = None) -> Difference:
    return Difference(old_tree="o", new_tree="n", hunks=hunks, functions=functions or {})


def test_one_hunk_of_a_commit_of_forty_in_at_most_twelve_builds() -> None:
    for guilty in range(40):
        kernels = Kernels(difference(plain(5, 8)), {frozenset([guilty]): 1.0})
        found = kernels.search()
        assert [part.mix for part in found.parts] == [{guilty}] and found.share == 1.0
        assert kernels.builds <= 12


def test_the_hunk_in_a_function_that_is_named_is_found_at_once() -> None:
    hunks = plain(5, 12)
    hunks[37] = hunk("mm/file3.c", 20, "a = 1;", "a = 2;", function="slow_path")
    kernels = Kernels(difference(hunks, {"slow_path": 0.9}), {frozenset([37]): 1.0})
    assert [part.mix for part in kernels.search().parts] == [{37}]
    assert kernels.builds == 1, "the hunks of that function"


def test_a_function_is_tried_without_the_rest_of_a_file_that_does_not_build() -> None:
    """As between distant releases: the function needs a helper of its file, and the rest needs other files."""
    hunks = plain(100, 2)
    hunks += [neutral("fs/namei.c", 10 * at) for at in range(1, 30)]
    first = len(hunks)
    hunks += [
        hunk("fs/namei.c", 400, "return may(path);", "return inlined;", function="step_into"),
        hunk("fs/namei.c", 500, "int may(int path) { }", ""),
    ]
    kernels = Kernels(
        difference(hunks, {"step_into": 0.9}),
        {frozenset([first]): 1.0},
        needs={first: (first + 1, "may")},
        breaks=frozenset(range(200, first)),
    )
    assert [part.mix for part in kernels.search().parts] == [{first, first + 1}]
    assert kernels.failed <= 3


def test_a_function_is_tried_without_another_one_of_its_file_that_does_not_build() -> None:
    hunks = [*plain(100, 2), hunk("mm/filemap.c", 1900, "int find(void)", "int find_by(int how)", function="find")]
    first = len(hunks)
    hunks.append(hunk("mm/filemap.c", 4300, "fault_in();", "", function="write"))
    hunks.append(hunk("mm/filemap.c", 4400, "", "copied();", function="inlined"))
    named = {"find": 0.01, "write": 0.9, "inlined": 0.9}
    carries = {frozenset([first, first + 1]): 1.0}
    kernels = Kernels(difference(hunks, named), carries, breaks=frozenset([first - 1]))
    assert [part.mix for part in kernels.search().parts] == [{first, first + 1}]
    assert kernels.failed == 0


@pytest.mark.parametrize("files", [100, 20])
def test_a_hunk_that_needs_the_whole_of_a_release_is_left_as_it_is(files: int) -> None:
    """One of the hunks of a function uses a member whose hunk breaks all other users: the rest of them builds."""
    hunks = [*plain(files, 2), hunk("include/file.h", 20, "long count;", "long references;")]
    first = len(hunks)
    hunks.append(hunk("fs/poll.c", 300, "get(f->count);", "get(f->references);", function="send_events"))
    hunks.append(hunk("fs/poll.c", 310, "walk_all();", "walk_ready();", function="send_events"))
    kernels = Kernels(
        difference(hunks, {"send_events": 0.9}),
        {frozenset([first + 1]): 1.0},
        needs={first: (first - 1, "count")},
        breaks=frozenset([first - 1]),
    )
    assert [part.mix for part in kernels.search().parts] == [{first + 1}]
    assert kernels.failed <= (2 if files == 100 else 4)


def test_a_function_comes_again_without_the_hunk_whose_helper_breaks_another_file() -> None:
    hunks = [*plain(100, 2), hunk("fs/poll.c", 500, "int helper(void) { }", "")]
    first = len(hunks)
    hunks.append(hunk("fs/poll.c", 300, "helper();", "inlined();", function="send_events"))
    hunks.append(hunk("fs/poll.c", 310, "walk_all();", "walk_ready();", function="send_events"))
    kernels = Kernels(
        difference(hunks, {"send_events": 0.9}),
        {frozenset([first + 1]): 1.0},
        needs={first: (first - 1, "helper")},
        breaks=frozenset([first - 1]),
    )
    assert [part.mix for part in kernels.search().parts] == [{first + 1}]
    assert kernels.failed == 2


def test_a_search_that_gives_up_keeps_its_best_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two functions that are named the first has a part of the change, and the other one does not build."""
    hunks = [*plain(100, 2), hunk("fs/poll.c", 300, "walk_all();", "walk_ready();", function="send_events")]
    guilty = len(hunks) - 1
    hunks.append(hunk("fs/file.c", 300, "get(file);", "get_ref(file);", function="get_file"))
    named = {"send_events": 0.8, "get_file": 0.2}
    kernels = Kernels(difference(hunks, named), {frozenset([guilty]): 0.4}, refuses={guilty + 1})
    monkeypatch.setattr(difference_search, "MOST_BUILDS", 1)
    assert kernels.search() == Found([Part(frozenset([guilty]), 0.4)], 0.4, smallest=False)


def test_no_more_than_half_of_a_function_is_left_out_for_what_does_not_build() -> None:
    """Each of eight hunks of a function needs a helper of its file that breaks another file."""
    hunks = [*plain(100, 2), hunk("fs/poll.c", 500, "int helper(void) { }", "")]
    first = len(hunks)
    hunks += [hunk("fs/poll.c", 10 * at, "helper();", "inlined();", "send") for at in range(1, 9)]
    kernels = Kernels(
        difference(hunks, {"send": 0.9}),
        {},
        needs=dict.fromkeys(range(first, len(hunks)), (first - 1, "helper")),
        breaks=frozenset([first - 1]),
    )
    kernels.search()
    assert kernels.failed <= 19, "22 if all eight are left out one by one"


def test_inline_code_of_a_header_is_found_by_the_function_that_it_calls() -> None:
    """The profile names the caller that has the inline code; a hunk in that function carries nothing."""
    hunks = [*plain(100, 2), hunk("lib/usercopy.c", 10, "check(n);", "check_size(n);", function="copy_from_user")]
    first = len(hunks)
    hunks.append(hunk("arch/x86/include/asm/uaccess.h", 20, "return copy_string(to, n);", 'asm("rep movsb");'))
    hunks.append(hunk("arch/x86/lib/copy_user.S", 30, "SYM_FUNC_START(copy_string)", ""))
    made = replace(difference(hunks, {"copy_from_user": 0.9}), one_end=["copy_string"])
    kernels = Kernels(made, {frozenset([first, first + 1]): 1.0}, needs={first: (first + 1, "copy_string")})
    assert [part.mix for part in kernels.search().parts] == [{first, first + 1}]
    assert kernels.failed <= 2 and kernels.builds <= 6


def test_a_commit_that_renames_functions_and_has_one_guilty_hunk() -> None:
    """Each function is defined once and called five times, also where the guilty hunk is; no call builds alone."""
    hunks = plain(5, 4)
    needs: dict[int, tuple[int, str]] = {}
    for number in range(6):
        old, new = f"lock_{number}", f"locks_{number}"
        first = len(hunks)
        hunks.append(hunk("fs/locks.c", 100 + number, f"static int {old}(int a)", f"static int {new}(int a)"))
        calls = range(first + 1, first + 6)
        hunks += [hunk("fs/locks.c", 9 * at, f"if ({old}(b))", f"if ({new}(b))", function="apply") for at in calls]
        needs |= dict.fromkeys(calls, (first, old)) | {first: (first + 1, old)}
    guilty = len(hunks)
    hunks.append(hunk("fs/locks.c", 600, "", "/* which a lock needs */ copy();", function="apply"))
    names = [f"{name}_{number}" for name in ("lock", "locks") for number in range(6)]
    made = replace(difference(hunks, {"apply": 0.9}), one_sided=names)
    kernels = Kernels(made, {frozenset([guilty]): 1.0}, needs=needs)
    assert [part.mix for part in kernels.search().parts] == [{guilty}]
    assert kernels.builds <= 12 and kernels.failed == 0


def test_half_of_the_change_is_enough_between_distant_releases_once_the_functions_were_tried() -> None:
    hunks = [*plain(100, 2), hunk("kernel/futex.c", 10, "hash();", "hash(mm);", function="futex_wake")]
    kernels = Kernels(difference(hunks, {"futex_wake": 0.6}), {frozenset([200]): 0.6, frozenset([41]): 0.4})
    found = kernels.search()
    assert [(set(part.mix), part.share) for part in found.parts] == [({200}, 0.6)]
    assert kernels.builds == 1


@pytest.mark.parametrize(("share", "groups"), [(0.3, False), (0.2, True)])
def test_a_quarter_is_enough_once_single_files_were_tried(share: float, groups: bool) -> None:
    """The other files of the function's folder do not build."""
    hunks = [*plain(100, 1), hunk("fs/namei.c", 400, "a = 1;", "a = 2;", function="step_into")]
    hunks += [neutral(f"fs/file{number}.c", 10) for number in range(9)]
    kernels = Kernels(
        difference(hunks, {"step_into": 1.0}), {frozenset([100]): share}, breaks=frozenset(range(101, 110))
    )
    assert [part.mix for part in kernels.search().parts] == [{100}]
    assert (kernels.failed > 0) == groups


def test_the_share_is_that_of_the_hunks_that_are_named() -> None:
    kernels = Kernels(difference(plain(30, 2)), {frozenset([8]): 0.96, frozenset([41]): 0.04})
    found = kernels.search()
    assert [(set(part.mix), part.share) for part in found.parts] == [({8}, 0.96)] and found.share == 0.96


def test_the_largest_changes_of_the_kernel_are_named() -> None:
    changes = {
        ("kernel", "caller"): -90.0,
        ("user", "main"): 500.0,
        ("kernel", "noise"): 0.1,
        ("kernel", "callee"): 9.0,
    }
    assert suspects.named(changes) == {"caller": -90.0, "callee": 9.0}
    assert suspects.named({}) == {}


def test_a_cost_that_goes_to_another_label_of_a_source_is_no_change() -> None:
    changes = {"sysret": -80.0, "return_via_sysret": 81.0, "memset": -70.0, "memset_orig": 10.0, "caller": -5.0}
    sources = [{"sysret", "return_via_sysret", "not_run"}, {"memset", "memset_orig"}, {"other"}]
    found = suspects.netted(changes, sources)
    assert list(found) == ["memset", "memset_orig", "caller", "return_via_sysret", "sysret"]
    assert found["memset"] + found["memset_orig"] == pytest.approx(-60 * 60 / 80)
    assert abs(found["sysret"]) < 1 and found["caller"] == -5
    assert suspects.netted(changes, [{"memset", "memset_orig"}, {"caller", "sysret"}])["memset"] == found["memset"]
    assert suspects.netted({"one": 0.0, "two": 0.0}, [{"one", "two"}]) == {"one": 0.0, "two": 0.0}


def test_without_named_functions_all_remarks_are_left_out_at_once() -> None:
    hunks = plain(4, 20)
    guilty = 33
    hunks[guilty] = hunk("mm/file1.c", 140, "char name[8];", "char name[800];")
    hunks[5] = hunk("mm/file0.c", 60, "if (!pages)", "if (pages == NULL)")
    kernels = Kernels(difference(hunks), {frozenset([guilty]): 1.0})
    assert [part.mix for part in kernels.search().parts] == [{guilty}]
    assert kernels.builds <= 4


def test_an_assembler_names_its_place_and_symbol() -> None:
    said = suspects.complaint(["../src/lib/memset.S:70: Error: symbol `__export_memset' is already defined"])
    assert (said.places, said.names) == ([("../src/lib/memset.S", 70)], ["__export_memset"])


def test_a_header_that_is_not_there_is_brought_with_its_line_of_kbuild() -> None:
    hunks = [
        hunk("lib/copy_64.S", 17, "#include <asm/export.h>", "#include <linux/export.h>"),
        hunk("arch/x86/include/asm/Kbuild", 12, "generic-y += export.h", "generic-y += early_ioremap.h"),
        hunk("arch/x86/include/asm/Kbuild", 20, "generic-y += mcs.h", "generic-y += export.h"),
        Hunk(path="include/asm-generic/export.h", whole=True, lines=["-#define EXPORT_SYMBOL(name)"]),
        Hunk(path="include/new/export.h", whole=True, lines=["+#define EXPORT_SYMBOL(name)"]),
        hunk("include/linux/export.h", 9, "a", "b"),
    ]
    said = suspects.complaint(["../src/lib/copy_64.S:17:10: fatal error: asm/export.h: No such file or directory"])
    assert suspects.additions(difference(hunks), {0}, said) == [1, 3]


def test_the_hunk_that_defines_a_missing_function_comes_without_its_other_users() -> None:
    used = [hunk("lib/tree.c", 20 * number, "set_height(mas);", "") for number in range(1, 20)]
    defined = hunk("lib/tree.c", 500, "static void set_height(struct state *mas)", "")
    said = suspects.complaint(
        ["../src/lib/tree.c:20:9: error: implicit declaration of function \u2018set_height\u2019"]
    )
    assert suspects.additions(difference([*used, defined]), {0}, said) == [19]


USED = [hunk("include/a.h", 10, "char *buffer;", "int count;"), hunk("fs/a.c", 203, "a->buffer", "a->count")]
"""A member that a header gets, and its use."""
MACRO = "include/linux/compiler.h:200:82: error: expression in static assertion is not an integer"


@pytest.mark.parametrize(
    "error",
    [
        "../src/fs/a.c:203:44: error: \u2018struct able\u2019 has no member named \u2018count\u2019",
        "../src/fs/a.c:203:44: error: no member named 'count' in 'struct able'",
        "fs/a.c:203:44: error: \u2018able\u2019 has no member named \u2018count\u2019; did you mean \u2018mount\u2019?",
    ],
)
def test_a_use_of_a_member_that_no_hunk_brings_is_taken_away(error: str) -> None:
    """A macro fails at its own place, too, when the member in it is not there."""
    said = suspects.complaint([error, MACRO])
    others = [hunk(f"net/b{number}.c", 9, "struct able *a;", "") for number in range(3)]
    assert said.names == said.missing == ["count"]
    assert suspects.additions(difference(USED + others), {0}, said) == [1]


def test_conditions_of_a_file_that_do_not_fit_together_are_taken_together() -> None:
    hunks = [
        neutral("mm/a.c", 10),
        hunk("include/a.h", 20, "#ifdef CONFIG_A", "#if defined(CONFIG_A)"),
        neutral("include/a.h", 40),
        hunk("include/a.h", 60, "#endif", "#endif /* CONFIG_A */"),
        hunk("include/b.h", 60, "#endif", ""),
    ]
    said = suspects.complaint(["../src/include/a.h:2: error: unterminated #ifndef"])
    assert suspects.additions(difference(hunks), {0, 1}, said) == [3]


def test_if_nothing_else_helps_the_next_hunk_of_the_failing_file_is_taken() -> None:
    beside = hunk("include/a.h", 30, "struct b { int x; };", "")
    said = suspects.complaint(["include/a.h:10:9: error: field \u2018far\u2019 has incomplete type"])
    assert suspects.additions(difference([*USED, beside]), {0}, said) == [2]


def test_a_hunk_in_which_a_build_fails_comes_before_the_next_one() -> None:
    """The second error is beside a hunk of another file, and the third one beside that of the first."""
    places = ("fs/a.c:203", "fs/b.c:30", "fs/a.c:210")
    said = suspects.complaint([MACRO, *(f"{place}:9: error: \u2018nowhere\u2019 undeclared" for place in places)])
    assert suspects.additions(difference([*USED, hunk("fs/b.c", 9, "a", "b")]), {0}, said) == [1]


HELPER = [
    hunk("fs/a.c", 10, "", "int helper(void) { return 0; }"),
    hunk("fs/a.c", 400, "int near;", "int nearer;"),
    hunk("fs/a.c", 500, "old_name();", "new_name();"),
]
"""A function that only the new end has, and hunks far from its head."""


@pytest.mark.parametrize(("errors", "left_out"), [
    (["fs/a.c:401:9: error: implicit declaration of function 'helper'"], [0]),
    (["a.c:(.text+0x1bf): undefined reference to `helper'"], [0]),
    (["fs/a.c:500:9: error: implicit declaration of function 'old_name'"], [2]),
    (["fs/a.c:401:9: error: 'helper' undeclared", "fs/a.c:500:9: error: 'old_name' undeclared"], [0, 2]),
    (["fs/a.c:401:9: error: 'nowhere' undeclared"], [1]),
])  # fmt: skip
def test_a_hunk_that_takes_a_missing_name_away_is_left_out(errors: list[str], left_out: list[int]) -> None:
    assert suspects.omissions(difference(HELPER), {0, 1, 2}, suspects.complaint(errors)) == left_out


def test_all_uses_of_a_name_that_a_hunk_takes_away_are_taken_at_once() -> None:
    """A compiler names those of one file. A name that another hunk brings is not such a name."""
    used = [hunk(f"fs/{name}.c", 20, "old();", "helper();") for name in "bcd"]
    said = suspects.complaint(["fs/b.c:20:9: error: implicit declaration of function 'helper'"])
    assert suspects.additions(difference([*HELPER, *used]), {0}, said) == [3, 4, 5]
    assert suspects.additions(difference([*HELPER, *used]), {1}, said) == [3], "it is missing for another reason"
    member = suspects.complaint(["fs/b.c:20:9: error: 'struct file' has no member named 'helper'"])
    assert suspects.additions(difference([*HELPER, *used]), {0}, member) == [3], "others may have one of that name"
    elsewhere = [hunk("fs/d.c", 9, "helper();", ""), hunk("include/c.h", 9, "#define helper() 1", "")]
    assert suspects.additions(difference([*HELPER, *elsewhere]), {1}, said) == [4], "a header has it, if one does"
    brings = hunk("include/b.h", 9, "#define helper() 0", "")
    assert suspects.additions(difference([*HELPER, *used, brings]), {0}, said) == [6, 3]


@pytest.mark.parametrize("error", [
    "lib/copy.c:8:5: error: redefinition of \u2018helper\u2019",
    "ld: lib/lib.a(copy_64.o): in function `helper': (.text+0x0): multiple definition of `helper'; lib/lib.a(copy.o):"
    "(.text+0x2f0): first defined here",
])  # fmt: skip
def test_the_hunk_that_brings_what_is_there_twice_is_taken_back(error: str) -> None:
    moved = hunk("lib/copy_64.c", 10, "", "int helper(void) { return 1; }")
    said = suspects.complaint([error])
    assert said.twice == ["helper"] and not said.missing
    assert suspects.additions(difference([neutral("lib/copy.c", 10), neutral("fs/e.c", 10), moved]), {0}, said) == [2]


def test_hunks_in_a_function_stay_when_one_of_them_takes_a_helper_away() -> None:
    """The helper has another use, in a line that both ends have. Hunks between that and its head cost something."""
    hunks = [*plain(100, 2), hunk("fs/a.c", 100, "", "int helper(void) { return 0; }", function="slow_path")]
    first = len(hunks)
    hunks += [hunk("fs/a.c", 100 + 10 * at, f"a = {at};", f"b = {at};", function="slow_path") for at in range(1, 9)]
    carries = {frozenset(range(first, first + 8)): 1.0}
    kernels = Kernels(difference(hunks, {"slow_path": 0.9}), carries, helpers={first - 1: "helper"})
    assert [part.mix for part in kernels.search().parts] == [set(range(first, first + 8))]
    assert kernels.failed == 1


def test_two_files_that_are_independent_each_have_their_share() -> None:
    kernels = Kernels(difference(plain(30, 2)), {frozenset([8]): 0.7, frozenset([41]): 0.3})
    found = kernels.search()
    assert [(set(part.mix), round(part.share, 6)) for part in found.parts] == [({8}, 0.7), ({41}, 0.3)]
    by_files = kernels.search(hunks=False)
    assert [set(part.mix) for part in by_files.parts] == [{8, 9}, {40, 41}]


def test_two_files_that_need_each_other_are_one_part() -> None:
    kernels = Kernels(difference(plain(30, 2)), {frozenset([8, 41]): 1.0})
    assert [set(part.mix) for part in kernels.search().parts] == [{8, 41}]


@pytest.mark.parametrize(
    ("share", "refuses", "breaks", "most"),
    [(1.0, set(), set(), 12), (0.8, {201}, set(), 96), (0.8, {201}, {60}, 96)],
    ids=["all of it builds", "a hunk of its file never builds", "a hunk elsewhere breaks another file"],
)
def test_a_hunk_behind_a_header_is_found_with_it(share: float, refuses: Set[int], breaks: Set[int], most: int) -> None:
    """Types that changed elsewhere: what never builds is left out, what breaks others taken back, the header stays."""
    hunks = [
        *plain(100, 2),
        hunk("fs/pipe.c", 5, "page = pipe->spare_page;", "page = alloc();", function="pipe_write"),
        neutral("fs/pipe.c", 40),
        hunk("include/linux/pipe.h", 9, "struct page *spare_page;", "struct page *pool;"),
        neutral("include/linux/pipe.h", 20),
    ]
    hunks[60] = hunk("kernel/sysctl.c", 5, "int elsewhere(long *value)", "int elsewhere(int *value)")
    made = difference(hunks, {"pipe_write": 0.8})
    kernels = Kernels(made, {frozenset([200]): share}, needs={200: (202, "spare_page")}, refuses=refuses, breaks=breaks)
    (part,) = kernels.search().parts
    assert set(part.mix) == {200, 202} and part.share == pytest.approx(share)
    assert kernels.builds <= most


def test_functions_that_no_guest_survives_together_are_tried_one_by_one() -> None:
    """The compiler put them into one function. A build that fails names hunks, and a guest that panics does not."""
    hunks = [*plain(100, 2), *(hunk("fs/a.c", 10 * at, "a = 1;", "a = 2;", function=f"part{at}") for at in range(1, 7))]
    functions = {"whole": 0.9, **{f"part{at}": 0.9 for at in range(1, 7)}}
    kernels = Kernels(difference(hunks, functions), {frozenset([203]): 0.9}, panics={201, 205})
    assert [(part.mix, part.share) for part in kernels.search().parts] == [({203}, 0.9)]
    assert kernels.builds < 20


@pytest.mark.parametrize("count", [4, 12])
def test_hunks_that_were_never_left_out_alone_are_said(count: int) -> None:
    """None builds without the others, so the search gives up after a few."""
    hunks = [*plain(100, 2), *(hunk("fs/pipe.c", 10 * at, f"old{at}", f"new{at}") for at in range(1, count + 1))]
    mine = frozenset(range(200, 200 + count))
    needs = {number: (200 + (number - 199) % count, f"name{number}") for number in mine}
    found = Kernels(difference(hunks, {}), {mine: 1.0}, needs=needs).search()
    assert [part.mix for part in found.parts] == [mine] and found.smallest
    assert found.tried == (count == 4)


@pytest.mark.parametrize("seed", range(20))
def test_planted_hunks_are_found_among_neutral_ones(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311
    hunks = plain(draw.randint(2, 40), draw.randint(1, 5))
    guilty = draw.sample(range(len(hunks)), draw.randint(1, 2))
    effects = {frozenset([number]): 1 / len(guilty) for number in guilty}
    found = Kernels(difference(hunks), effects).search()
    assert sorted(number for part in found.parts for number in part.mix) == sorted(guilty)
    assert sum(part.share for part in found.parts) == pytest.approx(1)


# ---- delta debugging: what is left is minimal, whatever is undecided on the way


@pytest.mark.parametrize("wanted", [{0}, {63}, {17}, {3, 40}, {5, 6, 7, 60}])
def test_what_carries_is_found_among_many(wanted: set[int]) -> None:
    asked: list[set[int]] = []

    def test(part: Sequence[int], left: int) -> Outcome:
        assert left >= 1
        asked.append(set(part))
        return Outcome.CARRIES if wanted <= set(part) else Outcome.LACKS

    assert set(minimal(range(64), test)) == wanted
    assert len(asked) <= (12 if len(wanted) == 1 else 60)
    asked.clear()
    assert set(minimal(range(64), test, likely=wanted)) == wanted and asked[0] == wanted


@pytest.mark.parametrize("seed", range(30))
def test_no_element_can_be_left_out_though_much_is_undecided(seed: int) -> None:
    """Some elements build only with another one."""
    draw = random.Random(seed)  # noqa: S311
    wanted = set(draw.sample(range(24), draw.randint(1, 4)))
    needs = {element: draw.randrange(24) for element in draw.sample(range(24), 5)}

    def decide(part: set[int]) -> Outcome:
        if any(element in part and other not in part for element, other in needs.items()):
            return Outcome.UNDECIDED
        return Outcome.CARRIES if wanted <= part else Outcome.LACKS

    found = set(minimal(range(24), lambda part, left: decide(set(part))))
    assert decide(found) is Outcome.CARRIES
    for element in found:
        assert len(found) == 1 or decide(found - {element}) is not Outcome.CARRIES
