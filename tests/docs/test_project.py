"""The files about the project itself: licence, changes, and the checks before a commit."""

import re
import shlex
import tomllib
from pathlib import Path

import yaml

TOP = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())


def test_the_changelog_begins_with_what_is_not_released_and_knows_this_version() -> None:
    titles = re.findall(r"^## (.+)$", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert titles[0] == "Unreleased"
    assert titles[1].split()[0] == PROJECT["project"]["version"]


def test_the_hooks_before_a_commit_are_the_checks_of_make_lint() -> None:
    (source,) = yaml.safe_load((TOP / ".pre-commit-config.yaml").read_text())["repos"]
    assert source["repo"] == "local"
    assert {(hook["language"], hook["pass_filenames"]) for hook in source["hooks"]} == {("system", False)}
    assert [_command(hook["entry"]) for hook in source["hooks"]] == [*_recipe("style"), *_recipe("types")]


def test_the_glossary_defines_each_word_once() -> None:
    rows = re.findall(r"^\| ([^|]+?) \|", (TOP / "docs" / "glossary.md").read_text(), re.MULTILINE)
    words = [word for row in rows if row != "word" for word in row.split(", ")]
    assert len(words) == len(set(words)) > 60
    assert {"arm", "case", "metric", "seed", "boot", "iteration", "round", "look", "level", "end"} <= set(words)


def _recipe(target: str) -> list[list[str]]:
    """The commands of a target of the Makefile, as words."""
    makefile = (TOP / "Makefile").read_text()
    for name, value in {"\\\n": "", "$(BIN)": ".venv/bin", "$(CURDIR)": "$PWD", "$$": "$"}.items():
        makefile = makefile.replace(name, value)
    match = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert match, target
    return [shlex.split(line) for line in match[1].splitlines()]


def _command(entry: str) -> list[str]:
    """The words of a hook's command, without the shell that only sets its environment."""
    words = shlex.split(entry)
    return shlex.split(words[2]) if words[:2] == ["bash", "-c"] else words
