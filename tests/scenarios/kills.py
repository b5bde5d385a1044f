"""`make kills`: kills -9 of the lab at random instants of each of its long commands, and what comes after.

A round starts a command and kills it; the same command goes on and is killed again, until it ends before its instant.
The first instants of a command are spread evenly over the time that it takes unbroken, so no phase of it is left out.
After each kill no process of the lab may be left; after each round the answer has to be that of an unbroken run, and
there may be no file that the unbroken run did not leave, but a record's that was being written. Exits 1 otherwise, and
ends with a table.

All happens in homes of its own (build/kills). Kernels and QEMU stand in (`tests/fakes/standin.py`), so that a kill
costs seconds; a build is that of a small tree, by the real Ansible role, make and gcc.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .kill_tasks import TONIGHT, Home, StandInLab, Task, load_all, tasks

MOST_IN_A_ROUND = 5


@dataclass(kw_only=True)
class Count:
    """What was done to a task, and what was wrong."""

    kills: int = 0
    rounds: int = 0
    wrong: list[str] = field(default_factory=list)


def main() -> int:
    """Kill, go on, compare, print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=Path("build/kills"), metavar="DIR", help="(%(default)s)")
    parser.add_argument("--kills", type=int, default=45, metavar="N", help="of each command (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the instants (%(default)s)")
    parser.add_argument(
        "tasks", nargs="*", help="only these, of ab, matrix, bisect, bundle, archive, nightly and build"
    )
    asked = parser.parse_args()
    subject = StandInLab()
    home = Home(top=asked.into.resolve() / "stand-in", variables=subject.variables)
    home.empty()
    subject.make(home)
    load_all()
    known, counts = tasks(subject), {}
    for name in asked.tasks or known:
        counts[name] = _kill(known[name], home, asked.kills, random.Random(asked.seed))  # noqa: S311 - not a secret
    _say("", f"{'':8} {'kills':>6} {'answers':>8} {'wrong':>6}")
    for name, count in counts.items():
        _say(f"{name:8} {count.kills:>6} {count.rounds:>8} {len(count.wrong):>6}")
    wrong = sum(len(count.wrong) for count in counts.values())
    _say(f"{'all':8} {sum(c.kills for c in counts.values()):>6} {sum(c.rounds for c in counts.values()):>8} {wrong:>6}")
    return 1 if wrong else 0


def _kill(task: Task, home: Home, kills: int, rng: random.Random) -> Count:
    task.prepare(home)
    home.run(task.argv(home), FAKE_TODAY=TONIGHT)  # what it makes once, in the store, is there from now on
    task.prepare(home)
    started = time.monotonic()
    home.run(task.argv(home), FAKE_TODAY=TONIGHT)
    takes_s = time.monotonic() - started
    answer, files = task.answer(home), home.files()
    _say(f"{task.name}: unbroken {takes_s:.1f} s")
    count, said = Count(), 0
    while count.kills < kills:
        task.prepare(home)
        started = time.monotonic()
        instant_s: float | None = takes_s * (count.kills + rng.random()) / kills
        argv, killed = task.argv(home), 0
        while not home.run(argv, instant_s, FAKE_TODAY=TONIGHT):
            count.kills, killed = count.kills + 1, killed + 1
            if left := _left(home):
                count.wrong.append(f"after {instant_s:.2f} s of {' '.join(argv)}: still running: {left}")
            # On a machine that has become slower, no try would be long enough.
            instant_s = takes_s * rng.uniform(0, 1.5) if killed < MOST_IN_A_ROUND else None
            argv = task.again(home)
        if not killed:  # on a machine that has become faster, instants at the end of the old time would never come
            takes_s = time.monotonic() - started
        count.rounds += 1
        _say(f"{task.name}: {count.kills} kills, {count.rounds} answers, {len(count.wrong)} wrong")
        if (found := task.answer(home)) != answer:
            count.wrong.append(f"another answer: {_difference(answer, found)}")
        if litter := home.files() - files:
            count.wrong.append(f"litter: {sorted(litter)[:5]}")
            files |= litter
        for line in count.wrong[said:]:
            _say(line)
        said = len(count.wrong)
    return count


def _left(home: Home) -> list[str]:
    """What still runs some time after a kill."""
    end = time.monotonic() + 20
    while (left := home.processes()) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def _difference(expected: Any, found: Any, where: str = "") -> str:
    """The first place in which two documents differ."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        return next(
            (_difference(expected[k], found[k], f"{where}.{k}") for k in expected if expected[k] != found[k]), ""
        )
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return next((_difference(one, other, f"{where}[{at}]") for at, (one, other) in pairs if one != other), "")
    return f"{where}: {str(expected)[:200]} is now {str(found)[:200]}"


def _say(*lines: str) -> None:
    print("\n".join(lines), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
