"""The Containerfile, as far as it can be checked without building it: tests/guest/test_container.py does that."""

from __future__ import annotations

import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]


def _instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (TOP / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", "")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def _all(name: str) -> list[str]:
    return [rest for word, rest in _instructions() if word == name]


def test_what_is_copied_is_the_wheel_that_make_leaves() -> None:
    wheel = f"dist/{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}-py3-none-any.whl"
    sources = [shlex.split(rest)[0] for rest in _all("COPY")]
    assert len(sources) == 1 and fnmatch(wheel, sources[0])
    assert "--wheel-dir dist" in (TOP / "Makefile").read_text()
    # Nothing else of the checkout goes to the builder.
    assert (TOP / ".dockerignore").read_text() == f"*\n!{sources[0]}\n"


def test_the_packages_are_those_of_the_role() -> None:
    """They are installed by the role itself; before it, only what the wheel needs to be installed."""
    (run,) = _all("RUN")
    steps = [shlex.split(step) for step in run.split("&&")]
    by_apt = [word for step in steps if step[:2] == ["apt-get", "install"] for word in step[2:] if word[0] != "-"]
    assert by_apt == ["ca-certificates", "python3-venv"]
    assert any(step[-3:] == ["/opt/lab/bin/lab", "doctor", "--install"] for step in steps)


def test_the_entry_point_is_the_command() -> None:
    assert _all("ENTRYPOINT") == ['["lab"]'] and list(PROJECT["scripts"]) == ["lab"]
    assert _all("VOLUME") == ["/home/lab"]
    assert any("HOME=/home/lab PATH=/opt/lab/bin:" in rest for rest in _all("ENV"))
    assert _all("USER") == [], "in a rootless container, root is the user outside"
