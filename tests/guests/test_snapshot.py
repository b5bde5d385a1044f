"""The store of snapshots, and which guests can have one."""

import asyncio
import errno
import gc as garbage
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from lab.cli import gc
from lab.core import paths
from lab.guests import snapshot
from lab.guests.run import CONSOLE, REPORT
from lab.guests.snapshot import Entry, GoingOn, Keeping, Snapshot

pytestmark = pytest.mark.usefixtures("own_home")

ENTRY = Entry(goes_on=0x401000, cases=0x600000, pc=16)


def keep(name: str, state: bytes = b"a guest") -> Snapshot:
    one = Snapshot(key=name, entry=ENTRY)
    with snapshot._unnamed(paths.cache_dir(snapshot.FOLDER)) as file:
        file.write(state)
        file.flush()
        one.keep(file, b"\xff console", b'{"t":"hello"}\n')
    return one


def test_what_was_kept_is_there() -> None:
    kept = keep("one").load()
    assert kept and (kept.console, kept.report) == (b"\xff console", b'{"t":"hello"}\n')
    assert Snapshot(key="other", entry=ENTRY).load() is None


@pytest.mark.parametrize("harm", [
    pytest.param(lambda state, _: state.write_bytes(b"b guest"), id="a bit"),
    pytest.param(lambda state, _: state.unlink(), id="gone"),
    pytest.param(lambda _, record: record.unlink(), id="no record"),
    pytest.param(lambda _, record: os.truncate(record, 20), id="half a record"),
    pytest.param(lambda _, record: shutil.copyfile(keep("two", b"b").folder / record.name, record), id="other"),
    pytest.param(lambda state, _: (state.parents[1] / "key").unlink(), id="of elsewhere"),
])  # fmt: skip
def test_a_damaged_one_is_gone(harm: Callable[[Path, Path], object]) -> None:
    one = keep("one")
    harm(one.folder / snapshot.STATE, one.folder / snapshot.RECORD)
    assert one.load() is None and not (one.folder / snapshot.RECORD).exists()
    assert keep("one").load() is not None, "it can be made anew"


def test_a_guest_does_without_what_its_file_system_cannot_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CONSOLE, REPORT):
        (tmp_path / name).touch()
    monkeypatch.setattr(snapshot, "_unnamed", Mock(side_effect=OSError(errno.EOPNOTSUPP, "no unnamed files")))
    with Keeping(Snapshot(key="one", entry=ENTRY), tmp_path) as keeping:
        asyncio.run(keeping._keep(Mock()))
    assert not snapshot.kept()


def test_a_guest_that_does_not_stop_is_ended_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    turns = itertools.count()
    monkeypatch.setattr(snapshot, "_status_word", lambda *_: str(next(turns)))

    async def stop(keeping: Keeping) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        ended = asyncio.Event()
        monkeypatch.setattr(keeping, "_kill", ended.set)
        (theirs,) = (file for file in keeping._theirs if file.fileno() == keeping._held)
        theirs.send(b"!")  # type: ignore[union-attr]

        async def execute(_: str) -> None:
            await ended.wait()
            raise ConnectionError("Disconnected")

        with pytest.raises(snapshot._Misunderstood, match="did not stop in time"):
            await keeping._stop(Mock(execute=execute))
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
        garbage.collect()

    with Keeping(Snapshot(key="one", entry=ENTRY), tmp_path) as keeping:
        keeping._pid = os.getpid()
        asyncio.run(stop(keeping))
    assert not said


def test_the_longest_unused_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["oldest", "older", "new"]
    for age, name in enumerate(reversed(names)):
        record = keep(name, os.urandom(1000)).folder / snapshot.RECORD
        os.utime(record, (1_700_000_000 - age, 1_700_000_000 - age))
    assert [folder.name for folder in snapshot.kept()] == names
    monkeypatch.setattr(snapshot, "KEPT_MAX", 2500)
    snapshot._bound()
    assert [folder.name for folder in snapshot.kept()] == names[1:]


def test_gc_knows_them_and_what_a_killed_lab_left() -> None:
    keep("one")
    (paths.cache_dir(snapshot.FOLDER) / "half").mkdir()
    deleted, _ = gc.collect(gc.items(), older_than_s=0.0, dry_run=False)
    assert sorted(item.path.name for item in deleted if item.kind == "snapshot") == ["half", "one"]
    assert not snapshot.kept()


def test_a_guest_that_was_never_started_refused_nothing() -> None:
    """Its job may be too long: the state stays."""
    with GoingOn(keep("one"), b"seed\t1\n") as start:
        assert not start.is_refused


def test_only_the_labs_init_has_an_entry(tmp_path: Path) -> None:
    for name, content in {"text": b"#!/bin/sh\n", "cut": b"\x7fELF", "nothing": None}.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        assert snapshot.entry(tmp_path / name, 16) is None
