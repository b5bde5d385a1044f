"""`make agreement`: the stories in exact and in live mode, and whether the two agree on which arm is worse.

Live mode takes KVM where a guest boots under it, else QEMU's emulator. Prints a Markdown table; exits 1 where live
mode reaches a verdict and exact mode says the other direction.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from lab.stats.verdict import percent

from .stories import STORIES, Story, lab

THRESHOLD = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="4m", help="of each comparison in live mode (4m)")
    parser.add_argument("workloads", nargs="*", help="only these")
    asked = parser.parse_args()
    print("| case | base | test | exact | live | interval | |\n|---|---|---|---|---|---|---|")  # noqa: T201
    chosen = {(one.workload, one.base, one.test): one for one in STORIES if one.workload in (asked.workloads or _ALL)}
    with tempfile.TemporaryDirectory() as name:
        agreed = [_compare(one, Path(name) / str(n), asked.budget) for n, one in enumerate(chosen.values())]
    return 0 if all(agreed) else 1


#: Workloads of the lab's own. In live mode fio and stress-ng time themselves, as they do in exact mode.
_ALL = ("alloc-burst", "aio-hugetlbfs", "compaction-stall", "large-alloc", "pointer-chase")


def _compare(story: Story, folder: Path, budget: str) -> bool:
    exact = _cases(story, folder / "exact", "--mode", "exact", "--seeds", str(story.seeds), *story.words)
    live = _cases(story, folder / "live", "--mode", "live", "--budget", budget)
    agreed = True
    for name, primary in live.items():
        worse, found = _worse(exact[name]), primary["verdict"]
        word = {1: "regression", -1: "improvement", 0: "same"}[worse]
        opposite = {word, found} == {"regression", "improvement"}
        agreed &= not opposite
        remark = "**disagree**" if opposite else "agree" if found == word else ""
        cells = [f"{story.workload}:{name}", story.base, story.test, percent(exact[name]["ratio"]), found]
        print(f"| {' | '.join(cells)} | {_interval(primary)} | {remark} |", flush=True)  # noqa: T201
    return agreed


def _cases(story: Story, folder: Path, *words: str) -> dict[str, Any]:
    """The primary metric of each case."""
    arms = ("--base", story.base, "--test", story.test)
    document = json.loads(lab("ab", *arms, "-w", story.selection, "--result", str(folder), "--json", *words))
    return {case["case"]: next(m for m in case["metrics"] if m["primary"]) for case in document["cases"]}


def _worse(metric: Any) -> int:
    """1 if the test arm is worse by more than the threshold, -1 if it is better, else 0."""
    change = metric["ratio"] - 1
    if abs(change) <= THRESHOLD:
        return 0
    return 1 if (change > 0) == (metric["better"] == "lower") else -1


def _interval(metric: Any) -> str:
    if metric["interval"] is None:
        return ""
    return f"{metric['name']} [{', '.join(percent(bound) for bound in metric['interval'])}]"


if __name__ == "__main__":
    sys.exit(main())
