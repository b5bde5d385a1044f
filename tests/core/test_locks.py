"""Entries of the cache that are held while they are used."""

import os
from pathlib import Path

import pytest

from lab.core import locks


def test_what_may_only_be_read_can_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "build.json"
    record.touch()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "utime", refuse)
    assert locks.hold(record)
    with locks.unheld(record) as free:
        assert not free
