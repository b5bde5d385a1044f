"""Stores of which one file is damaged: each command that reads it names it in a line, and shows no other number."""

import logging
import os
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lab.cli import main
from lab.core import paths, records

from ..fakes import capabilities
from ..fakes.command import Ended
from ..fakes.store import Store
from .damages import FILES
from .kinds import KINDS, LIST, LISTS, REBUILD, Command, commands_of, files_of

FINE = {0, 2, 4}
"""Never 1, which says that --fail-on matched, and never 3: nothing is built here."""

AGE = re.compile(r"just now|\d+ \w+ ago|\s+")
UNKNOWN = ("seed unknown", "cannot be read")
"""Words of lines that say what a damaged file leaves open."""


@pytest.fixture
def lab(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Callable[[Command], Ended]:
    """Runs a command, which can read no more than its user may."""

    def run(command: Command) -> Ended:
        records.forget_warnings()
        caplog.clear()
        with caplog.at_level(logging.WARNING), capabilities.none():
            status = main.run([*command])
        said = capsys.readouterr()
        warned = "\n".join(record.getMessage() for record in caplog.records)
        return Ended(status, said.out, said.err + warned)

    return run


@pytest.fixture(scope="module")
def known() -> dict[Command, Ended]:
    """The output of commands about the store as it is."""
    return {}


@pytest.mark.parametrize("damage", FILES)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("kept")
def test_a_damaged_file_is_named_and_costs_itself(
    name: str, damage: str, store: Store, lab: Callable[[Command], Ended], known: dict[Command, Ended]
) -> None:
    kind = KINDS[name]
    commands = commands_of(kind, store)
    before = {command: known.get(command) or lab(command) for command in dict.fromkeys([*commands, *LISTS])}
    known.update(before)
    path = files_of(kind, store)[0]
    FILES[damage](path)
    wrong = []
    for command, was in before.items():
        now = lab(command)
        shown = f"lab {' '.join(command)}: status {now.status}: {now.err}"
        if now.status not in FINE or "mistake of the lab's own" in now.err or "Traceback" in now.err:
            wrong.append(f"broke: {shown}")
        if command in commands and str(path) not in now.err:
            wrong.append(f"not named: {shown}")
        if command in commands and command != REBUILD and now.status == 0 and (new := _news(was.out, now.out)):
            wrong.append(f"other output: {shown}\n{new}")
        if command in LISTS and command not in commands and now.status != was.status:
            wrong.append(f"stopped: {shown}")
    assert not wrong, "\n".join(wrong)


def _news(was: str, now: str) -> list[str]:
    """The lines of a command's output that it did not have before."""
    known = {AGE.sub("", line) for line in was.splitlines()}
    lines = [AGE.sub("", line) for line in now.splitlines() if not any(word in line for word in UNKNOWN)]
    return [line for line in lines if line not in known]


# ---- a store of another user


WRITES = {REBUILD[0:2], ("ab", "--resume"), ("gc", "--dry-run")}
"""The beginnings of commands that write into the store."""


@pytest.mark.usefixtures("kept")
def test_the_store_of_another_user_can_be_read(store: Store, lab: Callable[[Command], Ended]) -> None:
    """Nothing that only shows needs to write."""
    if os.geteuid() != 0:
        pytest.skip("nothing can be given to another user here")
    shown = [command for kind in KINDS.values() for command in commands_of(kind, store) if command[:2] not in WRITES]
    commands = dict.fromkeys([*shown, *(one for one in LISTS if one[:2] not in WRITES)])
    before = {command: lab(command) for command in commands}
    for top in (paths.data_dir(), paths.cache_dir()):
        for path in (top, *top.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o644)
    wrong = []
    for command, was in before.items():
        now = lab(command)
        if now.status != was.status or _news(was.out, now.out):
            wrong.append(f"lab {' '.join(command)}: status {now.status}: {now.err}")
    assert not wrong, "\n".join(wrong)


# ---- records that contradict themselves


def _case(document: Any, name: str = "large") -> Any:
    return next(case for case in document["cases"] if case["case"] == name)


def _primary(document: Any) -> Any:
    return next(metric for metric in _case(document)["metrics"] if metric["primary"])


CONTRADICTIONS: dict[str, tuple[Callable[[Any], object], str]] = {
    "seed twice": (lambda d: d["seeds"].append(d["seeds"][0]), "counts twice"),
    "case twice": (lambda d: d["cases"].append(d["cases"][0]), "is there twice"),
    "metric twice": (lambda d: _case(d)["metrics"].append({**_primary(d), "primary": False}), "twice"),
    "no primary": (lambda d: _primary(d).update(primary=False), "has 0 primary metrics"),
    "counts": (lambda d: _primary(d)["base"].pop(), "numbers of base and"),
    "more pairs than seeds": (lambda d: d["seeds"].pop(), "pairs of numbers, and there are"),
    "sign": (lambda d: _primary(d).update(ratio=1 / _primary(d)["ratio"]), "is called regression, and moved by"),
    "verdict of a case": (lambda d: _case(d).update(verdict="improvement"), "is called improvement"),
    "verdict of all": (lambda d: d.update(verdict="improvement"), "is called improvement, and no case is"),
    "interval": (lambda d: _primary(d).update(interval=[2.0, 1.0]), "ends before it begins"),
    "arm missing": (lambda d: d.pop("test"), "missing required field `test`"),
    "time": (lambda d: d.update(seconds=-1.0), "less than no time"),
    "schema": (lambda d: d.update(schema="lab.ab/2"), "it has schema 'lab.ab/2', and this lab reads 'lab.ab/1'"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
@pytest.mark.usefixtures("kept")
def test_a_result_that_contradicts_itself_is_named(name: str, store: Store, lab: Callable[[Command], Ended]) -> None:
    change, said = CONTRADICTIONS[name]
    path = store.results["ab"] / "result.json"
    document = msgspec.json.decode(records.unsealed(path.read_bytes()))
    change(document)
    path.write_bytes(msgspec.json.encode(document))
    for command in (LIST, ("report", path.parent.name), REBUILD):
        ended = lab(command)
        assert ended.status == (4 if command not in (LIST, REBUILD) else 0), ended.err
        assert any(str(path) in line and said in line for line in ended.err.splitlines()), ended.err
