"""README, tutorial, and the first workload, as somebody who follows them would: every command, and what it prints.

The reader is an ordinary user with a fresh home, in a checkout after `make setup`, with its .venv/bin in PATH. The
kernels of the story are built, and what was downloaded is there; results are not.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..docs import blocks
from .conftest import CHECKOUT, Lab, metrics, verdicts

pytestmark = [pytest.mark.guest, pytest.mark.build, pytest.mark.network]

FIRST = "make ab"
CONTROLS = ("layout-512k", "layout-1400k", "layout-1800k", "burst-512k-1800k")

# What a clone does not have.
_MADE = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache")
_LAB = "#!{python}\nimport sys\n\nfrom lab.cli.main import main\n\nsys.exit(main())\n"


@pytest.fixture(scope="module")
def reader(story: Lab) -> Path:
    """The reader's home; `checkout` is in it."""
    home = story.home / "reader"
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(CHECKOUT, home / "checkout", ignore=_MADE, symlinks=True)
    for made_once in (".cache/kernel-ab-lab", ".local/share/kernel-ab-lab/trees"):
        link = home / made_once
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(story.home / made_once)
    # What `make setup` leaves: here the environment is the one that all guest tests share.
    venv = story.python.parent.parent
    program = venv / "bin" / "lab"
    program.write_text(_LAB.format(python=story.python))
    program.chmod(0o755)
    for stamp in ("ready", "host-ready"):
        (venv / stamp).touch()
    (home / "checkout" / ".venv").symlink_to(venv)
    subprocess.run(["chown", "-R", "--no-dereference", story.home.owner(), str(home)], check=True)
    return home


def _run(command: str, story: Lab, home: Path) -> subprocess.CompletedProcess[str]:
    checkout = home / "checkout"
    environment = {**story.environment(), "HOME": str(home)}
    environment["PATH"] = f"{checkout}/.venv/bin:{environment['PATH']}"
    words, limit_s = story.as_user("bash", "-e", "-o", "pipefail", "-c", command), 1800  # some build a kernel
    return subprocess.run(
        words, cwd=checkout, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
    )


class First(NamedTuple):
    """README's first comparison. It takes longest, so it runs once, for its page and for the tests of its findings."""

    done: subprocess.CompletedProcess[str]
    document: Any


@pytest.fixture(scope="module")
def first(story: Lab, reader: Path) -> First:
    done = _run(FIRST, story, reader)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return First(done, json.loads(_run("lab report latest --json", story, reader).stdout))


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md", "docs/workloads.md", "docs/own-workload.md"])
def test_a_page_does_what_it_says(name: str, story: Lab, reader: Path, first: First) -> None:
    exact = False
    text = (CHECKOUT / name).read_text()
    for path, content in blocks.files(text).items():
        (reader / "checkout" / path).parent.mkdir(exist_ok=True)
        (reader / "checkout" / path).write_text(content)
    for one in blocks.commands(text):
        if one.not_run:
            continue
        done = first.done if one.text == FIRST else _run(one.text, story, reader)
        assert done.returncode == 0, f"$ {one.text}\n{done.stdout}{done.stderr}"
        if not one.output:
            continue
        # Some outputs do not say what they were measured on; then the one before has.
        same = blocks.same_conditions(one.output, done.stdout)
        exact = exact if same is None else same
        missed = blocks.mismatch(one.output, done.stdout, exact=exact)
        conditions = "same" if exact else "other"
        assert not missed, (
            f"$ {one.text}\nnot printed ({conditions} conditions): {missed}\n"
            f"shown:\n{one.output}\nprinted:\n{done.stdout}"
        )


def test_the_commit_regresses_odd_sizes_and_improves_single_buffers_and_the_counters_say_why(first: First) -> None:
    found = verdicts(first.document)
    assert first.document["schema"] == "lab.ab/1"
    assert first.document["verdict"] == "regression"
    assert found["layout-4632k"] == found["layout-3072k"] == found["layout-2560k"] == "regression"
    assert {found[case] for case in CONTROLS} == {"same"}
    assert found["single-2052k"] == found["single-3072k"] == found["burst-2m-8m"] == "improvement"
    counted = metrics(first.document, "layout-4632k")
    assert counted["page_faults"]["ratio"] > 1.5
    vmas = counted["vmas"]
    assert all(test > 10 * base for base, test in zip(vmas["base"], vmas["test"], strict=True))


def test_a_stored_result_is_shown_as_it_was_printed_and_the_tutorials_report_is_a_page(
    story: Lab, reader: Path, first: First
) -> None:
    text = _run(f"lab report {first.document['result']}", story, reader).stdout
    assert "layout-4632k" in text and text in first.done.stdout
    page = (reader / "checkout" / "report.html").read_text()
    assert re.search(r"<html\b", page) and "layout-4632k" in page


def test_man_pages_come_with_the_lab(story: Lab) -> None:
    if not (CHECKOUT / "build" / "man").is_dir():
        pytest.skip("`make man` was not run before")
    installed = (story.home / "venv" / "lib").glob("python3*/site-packages/share/man/man1/lab-ab.1")
    assert list(installed)
