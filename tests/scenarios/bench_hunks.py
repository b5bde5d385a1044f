"""`make bench-hunks`: how often `lab bisect --by hunks` names the hunks that were planted. Never a test.

make bench-hunks                                 forty sets of hunks, in Debian's source of 7.2; hours
make bench-hunks ARGS='--count 8 --minutes 90'   eight of them, none begun after 90 minutes
make bench-hunks ARGS=--table                    what was found so far, as the table of docs/bisect.md
make bench-hunks ARGS=--search-only              the same sets in a minute: shares by what was planted, and no kernels

A set is drawn by its number: a case, one or two hunks that cost something in functions which the case runs, or none,
and 20 to 150 lines, or 500, of hunks that cost nothing, in the same files and in others. The search gets both ends as
sources, and nothing else. What was searched is in the folder, a line each, with the digest of what was planted, so the
next call goes on; a search that was cut off is resumed. A set that would be planted otherwise now is searched anew. All
kernels are built in one folder, so that a mix costs its own files and the link.
"""

import argparse
import difflib
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from lab.bisection import hunks
from lab.bisection.answer import Answer
from lab.bisection.difference_search import Pending, Result, Search, mix_name
from lab.bisection.hunks import Difference
from lab.bisection.sources import DIFF
from lab.core import git, records
from lab.core.progress import Progress
from lab.kernels import trees
from lab.kernels.kernel import resolve

SOURCE = "src:trixie-backports/7.2"
FOLDER = Path("build") / "hunks"
COUNT = 40
_FUNCTION = re.compile(r"(?:\n\n| \*/\n)((?:static|int|long|void) [^\n;]*\([^;{]*\)\n{\n)")
MARK = "lab_turn"
"""A word of every hunk that costs something, and of no other."""


class Place(NamedTuple):
    """Functions that a case runs, by file, a header of the first one, and turns of a loop that the case can show.

    No case needs an option of its own: with another kconfig, all of the kernel is built anew.
    """

    case: str
    functions: Sequence[tuple[str, str]]
    header: str
    turns: int


PLACES = (
    Place("pipe-stream", [("fs/pipe.c", "anon_pipe_write"), ("fs/pipe.c", "anon_pipe_read")],
          "include/linux/pipe_fs_i.h", 6000),
    Place("eventfd", [("fs/eventfd.c", "eventfd_write"), ("fs/eventfd.c", "eventfd_read")],
          "include/linux/eventfd.h", 120),
    Place("sysv-sem", [("ipc/sem.c", "__do_semtimedop"), ("ipc/sem.c", "perform_atomic_semop")], "ipc/util.h", 200),
    Place("sysv-msg", [("ipc/msgutil.c", "load_msg"), ("ipc/msg.c", "do_msgrcv"), ("ipc/msg.c", "do_msgsnd"),
                       ("ipc/msgutil.c", "store_msg")], "ipc/util.h", 200),
    Place("posix-mq", [("ipc/mqueue.c", "do_mq_timedsend"), ("ipc/msgutil.c", "load_msg")], "ipc/util.h", 200),
    Place("futex-wake", [("kernel/futex/waitwake.c", "futex_wake"), ("kernel/futex/core.c", "get_futex_key")],
          "kernel/futex/futex.h", 80),
    Place("setpriority", [("kernel/sys.c", "set_one_prio"), ("kernel/sched/syscalls.c", "set_user_nice")], "", 400),
    Place("io-uring-nop", [("io_uring/nop.c", "io_nop"), ("io_uring/io_uring.c", "io_submit_sqes")],
          "io_uring/nop.h", 120),
    Place("unix", [("net/unix/af_unix.c", "unix_stream_sendmsg"),
                   ("net/unix/af_unix.c", "unix_stream_read_generic")], "net/unix/af_unix.h", 300),
    Place("mincore", [("mm/mincore.c", "do_mincore")], "", 250),
    Place("timerfd-settime", [("fs/timerfd.c", "do_timerfd_settime")], "", 250),
    Place("signalfd", [("fs/signalfd.c", "signalfd_dequeue")], "", 250),
    Place("epoll-wait-10", [("fs/eventpoll.c", "ep_poll")], "", 120),
    Place("process-vm-readv", [("mm/process_vm_access.c", "process_vm_rw_core")], "", 1500),
    Place("getdents-100", [("fs/readdir.c", "iterate_dir"), ("fs/libfs.c", "offset_readdir")], "", 2000),
)  # fmt: skip

KINDS = ("one hunk", "one of 500 lines", "two files", "behind a header", "neutral")
Texts = dict[str, str]
"""Files by path."""


class Planted(NamedTuple):
    """A drawn set: both ends of what it touches, and how many of its hunks cost something."""

    kind: str
    case: str
    old: Texts
    new: Texts
    guilty: int
    neutral: int

    @property
    def digest(self) -> str:
        return records.digest([self.case, self.old, self.new])[:12]


class Record(records.Record, frozen=True, kw_only=True):
    """One searched set.

    planted: the digest of both ends. found: the hunks that were named; minutes: of builds and guests, and by the clock.
    """

    number: int
    planted: str = ""
    kind: str
    case: str
    guilty: int
    neutral: int
    outcome: str
    found: int
    right: int
    ends: float | None
    builds: int
    undecided: int
    minutes: float
    clock_minutes: float
    result: str

    @property
    def verdict(self) -> str:
        """Right if every hunk that costs something was named, and no other."""
        if self.outcome in ("range", "undecided"):
            return "undecided"
        return "right" if self.guilty == self.right == self.found else "wrong"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=SOURCE, help="the kernel spec to plant hunks in (%(default)s)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="(%(default)s)")
    parser.add_argument("--count", type=int, default=COUNT, help="sets (%(default)s)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no set after so many")
    parser.add_argument("--table", action="store_true", help="print the table, and search nothing")
    parser.add_argument(
        "--search-only", action="store_true", help="let kernels always build, and show what was planted"
    )
    asked = parser.parse_args()
    if asked.search_only:
        read = Source(asked.source)
        _say(*_without_kernels([planted(number, read) for number in range(1, asked.count + 1)]))
        return 0
    asked.folder.mkdir(parents=True, exist_ok=True)
    known = _known(asked.folder)
    if not asked.table:
        read, started = Source(asked.source), time.monotonic()
        sets = {number: planted(number, read) for number in range(1, asked.count + 1)}
        for number in _by_turns(sets):
            wanted = sets[number]
            if number in known and known[number].planted == wanted.digest:
                continue
            known.pop(number, None)
            if time.monotonic() - started > 60 * asked.minutes:
                continue
            made = _searched(number, asked.source, wanted, read, asked.folder)
            with (asked.folder / "sets.jsonl").open("ab") as stream:
                stream.write(msgspec.json.encode(made) + b"\n")
            known[number] = made
            _say(f"{number}: {made.kind} in {made.case}: {made.verdict}, {made.builds} builds")
    _say(*_table([known[number] for number in sorted(known)]))
    return 0


def _by_turns(sets: Mapping[int, Planted]) -> list[int]:
    """The numbers of sets, a set of each kind by turns: the ones that were searched in part stand for all kinds."""
    kinds = [one.kind for one in sets.values()]
    turns = {number: kinds[:place].count(kinds[place]) for place, number in enumerate(sets)}
    return sorted(sets, key=lambda number: turns[number])


def _known(folder: Path) -> dict[int, Record]:
    path = folder / "sets.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    found = [msgspec.json.decode(line, type=Record) for line in lines if line.endswith(b"}")]
    return {one.number: one for one in found}


class Source(dict[str, str]):
    """The files of a source, read once."""

    def __init__(self, spec: str) -> None:
        super().__init__()
        source = resolve(spec, None, progress=Progress()).tree_source
        assert source is not None
        self._repo, self._tree = trees.open_tree(source.tree).repo, source.tree_id

    def __missing__(self, path: str) -> str:
        _, content = self._repo.files(self._tree, [path])[path]
        self[path] = content.decode()
        return self[path]


# ---- planting


def planted(number: int, files: Mapping[str, str]) -> Planted:
    """The set of a number. files: the texts of a source by path."""
    rng = random.Random(f"hunks {number}")  # noqa: S311 - not a secret
    kind = rng.choice(KINDS)
    fitting = [
        place
        for place in PLACES
        if (kind != "behind a header" or place.header)
        and (kind != "two files" or len({path for path, _ in place.functions}) > 1)
    ]
    place = rng.choice(fitting)
    turns = round(place.turns * rng.uniform(0.5, 1.5))
    others = [path for path, _ in rng.choice(PLACES).functions]
    old = {path: files[path] for path in dict.fromkeys([*(path for path, _ in place.functions), *others])}
    guilty = {"neutral": 0, "two files": 2}.get(kind, 1)
    if kind == "two files":
        chosen = [rng.choice([one for one in place.functions if one[0] == path])
                  for path in rng.sample(sorted({path for path, _ in place.functions}), 2)]  # fmt: skip
    else:
        chosen = [rng.choice(place.functions)] if guilty else []
    if kind == "behind a header":
        path, function = chosen[0]
        old[place.header] = files[place.header]
        old[path] = _inside(old[path], function, _loop("LAB_TURNS"))
        new = {**old, place.header: _defined(old[place.header], f"#define LAB_TURNS {turns} /* {MARK} */")}
        old[place.header] = _defined(old[place.header], "#define LAB_TURNS 1")
    else:
        new = dict(old)
        for path, function in chosen:
            new[path] = _inside(new[path], function, _loop(str(turns), MARK))
    neutral, lines = 0, rng.randint(20, 150) if kind != "one of 500 lines" else 500
    while sum(text.count("\n") - old[path].count("\n") for path, text in new.items()) < lines:
        path = rng.choice([path for path in new if path.endswith(".c")])
        new[path], neutral = _with_neutral(new[path], rng), neutral + 1
    return Planted(kind, place.case, old, new, guilty, neutral)


def _loop(turns: str, name: str = "lab_count") -> str:
    return f"\tfor (int {name} = 0; {name} < {turns}; {name}++)\n\t\tbarrier();\n"


def _inside(text: str, function: str, lines: str) -> str:
    """The text with lines at the beginning of a function."""
    head = rf"^([^\n;]*\b{function}\([^;{{]*\)\n{{\n)"
    made, count = re.subn(head, lambda match: match[1] + lines, text, count=1, flags=re.MULTILINE)
    if not count:
        raise ValueError(f"there is no function {function}")
    return made


def _defined(text: str, line: str) -> str:
    """A header with a line behind its first one, the licence."""
    first, _, rest = text.partition("\n")
    return f"{first}\n\n{line}\n\n{rest}"


def _with_neutral(text: str, rng: random.Random) -> str:
    """The text with a hunk that costs nothing, at any function: a remark, a compiler barrier, or an unused function."""
    starts = [match.start(1) for match in _FUNCTION.finditer(text)]
    at, number = rng.choice(starts), rng.randrange(10**6)
    remark = "".join(f"\t * note {number}, line {line}\n" for line in range(rng.randint(1, 9)))
    within = f"\t/*\n{remark}\t */\n" if rng.random() < 0.5 else "\tbarrier();\n"
    if rng.random() < 0.3:
        unused = f"static int __maybe_unused lab_unused_{number}(int value)\n{{\n\treturn value + {number};\n}}\n\n"
        return text[:at] + unused + text[at:]
    inside = text.index("\n{\n", at) + 3
    return text[:inside] + within + text[inside:]


def _patch(before: Mapping[str, str], after: Texts) -> str:
    lines: list[str] = []
    for path, text in after.items():
        old, new = (side.splitlines(keepends=True) for side in (before[path], text))
        lines += difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(lines)


# ---- searching


def _searched(number: int, source: str, made: Planted, files: Mapping[str, str], folder: Path) -> Record:
    """The record of a set, searched as a user would."""
    place = folder.resolve() / f"{number}-{made.digest}"
    place.mkdir(exist_ok=True)
    ends = []
    for name, texts in (("old", made.old), ("new", made.new)):
        patch = _patch(files, texts)
        (place / f"{name}.patch").write_text(patch)
        ends.append(f"{source}+{place / f'{name}.patch'}" if patch else source)
    result, started = place / "result", time.monotonic()
    words = ["--by", "hunks", "--old", ends[0], "--new", ends[1], "-w", f"syscalls:{made.case}"]
    words += ["--result", str(result)]
    if (result / "plan.json").exists():
        words = ["resume", str(result)]
    argv = [str(Path(sys.executable).with_name("lab")), "bisect", *words, "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, 5):
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}")
    answer = msgspec.json.decode(done.stdout, type=Answer)
    sets = [change.hunks for change in answer.changes if change.hunks]
    lines = [line for one in sets for line in one.diff]
    return Record(
        number=number, planted=made.digest, kind=made.kind, case=made.case, guilty=made.guilty, neutral=made.neutral,
        outcome=answer.outcome, found=sum(one.hunks for one in sets),
        right=sum(MARK in line and line.startswith("+") for line in lines),
        ends=answer.ends.ratio if answer.ends else None,
        builds=len(answer.path), undecided=len(answer.skipped),
        minutes=round((answer.build_s + answer.run_s) / 60, 2),
        clock_minutes=round((time.monotonic() - started) / 60, 2), result=answer.result,
    )  # fmt: skip


# ---- the search alone


def _without_kernels(sets: Sequence[Planted]) -> Iterator[str]:
    """A table of the search with kernels that always build, and with no noise: rows by whether functions were named."""
    yield "| planted | functions | sets | right | hunks | builds |"
    yield "|---|---|---|---|---|---|"
    for kind in [kind for kind in KINDS if kind != "neutral"]:
        differences = [_difference(one) for one in sets if one.kind == kind]
        for word in ("named", "not named"):
            found = [_simulated(one, named=word == "named") for one in differences]
            hunks_, builds = _range([len(one.hunks) for one in differences]), _range([builds for _, builds in found])
            yield f"| {kind} | {word} | {len(found)} | {sum(right for right, _ in found)} | {hunks_} | {builds} |"


def _difference(made: Planted) -> Difference:
    """What git finds between both ends."""
    with tempfile.TemporaryDirectory() as place:
        git.run("init", "-q", place)
        ids = []
        for texts in (made.old, made.new):
            for path, text in texts.items():
                (Path(place) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(place) / path).write_text(text)
            git.run("-C", place, "add", "-A")
            ids.append(git.run("-C", place, "write-tree").decode().strip())
        diff = git.run("-C", place, *DIFF, *ids).decode()
    found = list(hunks.parse(diff))
    names = hunks.one_sided(found, made.old.values(), made.new.values())
    return Difference(old_tree=ids[0], new_tree=ids[1], hunks=found, one_sided=names)


def _simulated(difference: Difference, *, named: bool) -> tuple[bool, int]:
    """True if the search found the planted hunks and no other, and how many mixes it asked for."""
    guilty = [
        n for n, hunk in enumerate(difference.hunks) if any(MARK in line for line in hunk.lines if line[0] == "+")
    ]
    functions = {name: 1 / len(guilty) for number in guilty for name in difference.hunks[number].functions if named}
    asked = msgspec.structs.replace(difference, functions=functions)
    known: dict[str, Result] = {}
    while True:
        try:
            found = Search(asked, known, tolerance=0.1, hunks=True).run()
        except Pending as pending:
            share = sum(number in pending.mix for number in guilty) / len(guilty)
            known[mix_name(pending.mix)] = Result(share)
        else:
            return sorted(number for part in found.parts for number in part.mix) == guilty, len(known)


# ---- the table


def _table(made: Sequence[Record]) -> Iterator[str]:
    yield "| planted | sets | right | wrong | undecided | mixes | minutes of mixes | minutes by the clock |"
    yield "|---|---|---|---|---|---|---|---|"
    for kind in dict.fromkeys((*KINDS, "all")):
        rows = [one for one in made if kind in (one.kind, "all")]
        counts = [sum(one.verdict == word for one in rows) for word in ("right", "wrong", "undecided")]
        costs = [_range([getattr(one, name) for one in rows]) for name in ("builds", "minutes", "clock_minutes")]
        yield f"| {kind} | {len(rows)} | {' | '.join([*map(str, counts), *costs])} |"


def _range(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in ordered[:1] + ordered[-1:]))


def _say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
