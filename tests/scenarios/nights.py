"""`make nights`: ten nights on real kernels, one after another, as if ten days went by.

The tree's upstream is a test history of the default tree: every night some commits arrive on its branch, on the
sixth one that makes a case slower (efa7df3e3bb5's change) among others that do nothing, on the ninth its fix
(d4148aeab412's). `lab nightly run` fetches, builds, boots and judges in exact mode, on dates of its own. Exits 1
unless the ten nights brought one alarm, on the sixth, with the right commit, and one `fixed`, on the ninth.

What is measured goes to a folder of its own (build/nights), kernels to the user's store. Stopped, it goes on where
it was when it is run again: nights that are done are not done again.
"""

import argparse
import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from unittest import mock

from lab.cli import main as cli_main
from lab.core.git import Repo
from lab.kernels import trees
from lab.nightly import record, run
from lab.nightly.record import Event

from ..fakelinux import history
from ..fakelinux.history import History

ARRIVING = (
    *["neutral*2"] * 5,
    "neutral*3 culprit neutral*4",
    *["neutral*2"] * 2,
    "neutral fix neutral*2",
    "neutral follow-up",
)
"""What arrives each night, in a history's own words."""

WORKLOAD = "alloc-burst:layout-1400k,layout-4632k"
FIRST = date(2026, 11, 1)
PLAN = """\
schema = 1
name = "nights"
workloads = ["{workload}"]

[[branch]]
tree = "{tree}"
branch = "main"
"""


@dataclass(frozen=True, kw_only=True)
class Story:
    """The truth: each night's tip, and who slowed it down."""

    tips: Sequence[str]
    culprit: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=Path("build/nights"), metavar="DIR", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the commits that do nothing (%(default)s)")
    asked = parser.parse_args()
    folder = asked.into.resolve()
    upstream, story = _upstream(folder / "upstream.git", asked.seed)
    # Trees, results, nights and history are of this story alone. Kernels, which are known by their contents, are not.
    os.environ["XDG_DATA_HOME"] = str(folder / "data")
    os.environ.pop("LAB_DATABASE", None)
    plan = _plan(folder, upstream)
    for number, tip in enumerate(story.tips, start=1):
        upstream.git("update-ref", "refs/heads/main", tip)
        if (status := _night(plan, FIRST + timedelta(days=number - 1))) != 0:
            sys.exit(f"nights: night {number} ended with status {status}")
    found = [event for one in record.load_all("nights") for event in one.events]
    wrong = complaints(found, story)
    _say("\n".join(wrong) or "one alarm, the right commit, one fixed: as it must be")
    return 1 if wrong else 0


def _upstream(path: Path, seed: int) -> tuple[Repo, Story]:
    """The repository that commits arrive in; its branch is at the first night's tip."""
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = history.write(" ".join(ARRIVING), path, trees.open_tree().source, seed=seed, branch="to-come")
    story, upstream = _story(made), Repo(path)
    upstream.git("update-ref", "refs/heads/main", story.tips[0])
    upstream.git("config", "uploadpack.allowFilter", "true")
    return upstream, story


def _story(made: History) -> Story:
    tips, count = [], 0
    for words in ARRIVING:
        count += len(history.parse(words))
        tips.append(made.commits[count - 1].id)
    return Story(tips=tips, culprit=made.only("culprit").id)


def _plan(folder: Path, upstream: Repo) -> Path:
    """A plan of one branch of one clone, which has this folder's own name: build folders go by it."""
    tree = f"nights-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
    if tree not in trees.names():
        trees.add(f"file://{upstream.git_dir}", tree)
    path = folder / "nightly.toml"
    path.write_text(PLAN.format(workload=WORKLOAD, tree=tree))
    return path


def _night(plan: Path, today: date) -> int:
    """`lab nightly run` on a date; its exit status."""
    with mock.patch.object(run, "today", today.isoformat):
        return cli_main.run(["nightly", "run", "--plan", str(plan)])


def complaints(found: Sequence[Event], story: Story) -> list[str]:
    """What is not as it must be: one alarm on night 6 with the right commit, one `fixed` on night 9, nothing else."""
    told = [(event.kind, event.night) for event in found]
    if told != [("regression", 6), ("fixed", 9)]:
        return [f"told were {told}, and not one regression on night 6 and its fix on night 9"]
    alarm, fixed = found
    wrong = []
    if alarm.culprit is None or (alarm.culprit.commit, alarm.culprit.among) != (story.culprit, 1):
        wrong.append(f"the alarm names {alarm.culprit}, and not {story.culprit}")
    elif alarm.culprit.proof is None:
        wrong.append("the culprit was not proved by fresh seeds")
    if (fixed.closes, fixed.test) != (alarm.id, story.tips[8]):
        wrong.append(f"what is fixed is {fixed.closes} in {fixed.test}")
    return wrong


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
