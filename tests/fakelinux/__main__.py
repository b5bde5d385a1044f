"""`python -m tests.fakelinux --into REPO --layout "neutral*9 culprit neutral*5"`: write a test history, and list it.

Afterwards `lab tree add REPO --name history` makes it a tree.
"""

import argparse
import sys
from pathlib import Path

from lab.core.errors import LabError
from lab.kernels import trees

from .history import write


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fakelinux", description=__doc__)
    parser.add_argument("--into", type=Path, required=True, metavar="REPO", help="a bare repository, made if need be")
    parser.add_argument("--layout", required=True, help="its words, as tests/fakelinux/history.py describes them")
    parser.add_argument("--seed", type=int, default=1, help="places, files and contents follow from it")
    parser.add_argument("--branch", default="main")
    asked = parser.parse_args()
    try:
        made = write(asked.layout, asked.into, trees.open_tree().source, seed=asked.seed, branch=asked.branch)
    except LabError as error:
        sys.exit(f"history: {error.message}")
    for commit in made.commits:
        print(f"{commit.id[:12]} {commit.word:14}{commit.subject}")  # noqa: T201


if __name__ == "__main__":
    main()
