"""`python -m tests.fakelinux --into REPO --layout story --seed 1`: make a test history and tell what is what.

Layouts: linear64, linearN, story, storyN, or words such as "neutral*9 culprit neutral*5" (see layout.py).
Afterwards `lab tree add REPO --name history` makes it a tree.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from lab.core.errors import LabError
from lab.kernels import trees

from .history import History, write
from .layout import LayoutError


def main() -> None:
    """Write a history; print it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fakelinux", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, required=True, metavar="REPO", help="a bare repository, made if need be")
    parser.add_argument("--layout", default="story", help="a name or words (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="places, files and contents follow from it")
    parser.add_argument("--branch", default="main")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    asked = parser.parse_args()
    try:
        source = trees.open_tree().source
        made = write(asked.layout, asked.into, source, seed=asked.seed, branch=asked.branch)
    except (LabError, LayoutError) as error:
        sys.exit(f"history: {error}")
    print(_document(made) if asked.json else f"{made.describe()}\nbase {made.base}\ntip  {made.tip}")  # noqa: T201


def _document(made: History) -> str:
    commits = [{**asdict(commit), "effects": sorted(commit.effects)} for commit in made.commits]
    known = {"repo": str(made.repo), "branch": made.branch, "start": made.start, "base": made.base, "tip": made.tip}
    return json.dumps({"schema": "tests.history/1", **known, "commits": commits}, indent=1)


if __name__ == "__main__":
    main()
