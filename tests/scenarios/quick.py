"""`make quick`: lint, types, and the unit tests of what changed, in less than a minute.

What changed is what differs from the branch's upstream, uncommitted files included; where nothing does, the last
commit. `lab/compare/runs.py` is tested by `tests/compare/test_runs*.py`, a test by itself, a fake by the tests that
import it. The tests that would begin too late are skipped, and `make unit` runs all.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
UNIT = "not guest and not build and not network and not browser and not docs and not vagrant and not kvm and not long"
BUDGET_S = 50.0
ALWAYS = "tests/test_guards.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", help="the revision that changes are counted from")
    parser.add_argument("--seconds", type=float, default=BUDGET_S, help="for everything")
    options = parser.parse_args()
    os.environ["LAB_TEST_DEADLINE"] = str(time.monotonic() + options.seconds)  # tests/conftest.py skips what is left
    paths = changed(options.since or base())
    linters = [subprocess.Popen([str(BIN / argv[0]), *argv[1:]], cwd=TOP) for argv in lint(paths)]
    tests = tests_of(paths)
    print(f"{len(paths)} files changed, tested by {', '.join(tests)}", flush=True)  # noqa: T201
    status = pytest.main(["-q", "-m", UNIT, *tests])
    unclean = [process.args for process in linters if process.wait()]
    return int(bool(unclean) or status != pytest.ExitCode.OK)


def base() -> str:
    """The revision to compare with: where the branch left its upstream, or the commit before the last."""
    upstream = subprocess.run(
        ["git", "merge-base", "HEAD", "@{upstream}"], cwd=TOP, capture_output=True, text=True, check=False
    ).stdout.strip()
    if upstream and (upstream != _git("rev-parse", "HEAD").strip() or _git("status", "--porcelain")):
        return upstream
    return "HEAD^"


def changed(since: str) -> list[str]:
    """Files that differ from a revision and are still there, those that git does not track yet too."""
    names = _git("diff", "--name-only", "--diff-filter=d", since) + _git("ls-files", "--others", "--exclude-standard")
    return sorted(set(names.split("\n")) - {""})


def lint(paths: Iterable[str]) -> list[list[str]]:
    """What `make lint` runs, without what looks at Ansible's files where none changed."""
    python = [["ruff", "check", "--quiet", "."], ["ruff", "format", "--check", "--quiet", "."], ["mypy"]]
    return [*python, ["yamllint", "--strict", "ansible"]] if any(p.startswith("ansible/") for p in paths) else python


def tests_of(paths: Sequence[str], top: Path = TOP) -> list[str]:
    """The test files of changed files."""
    found = {ALWAYS}
    for path in paths:
        parts = Path(path).parts
        if parts[0] == "lab" and len(parts) > 2:
            name = "_".join(parts[2:]).removesuffix(".py").removesuffix("___init__")
            folder = top / "tests" / parts[1]
            found |= {str(test.relative_to(top)) for test in folder.glob(f"test_{name}*.py")}
        elif parts[0] == "tests" and parts[-1].startswith("test_"):
            found.add(path)
        elif parts[:2] == ("tests", "fakes"):
            found |= _importers(Path(path).stem, top)
    return sorted(test for test in found if not test.startswith(("tests/guest/", "tests/browser/")))


def _importers(fake: str, top: Path) -> set[str]:
    wanted = re.compile(rf"^from \.\.fakes(\.{fake} import| import .*\b{fake}\b)", re.MULTILINE)
    tests = (top / "tests").glob("*/test_*.py")
    return {str(test.relative_to(top)) for test in tests if wanted.search(test.read_text())}


def _git(*argv: str) -> str:
    return subprocess.run(["git", *argv], cwd=TOP, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
