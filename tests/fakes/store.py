"""A home with a record of every kind in it, made once by the lab itself with fake kernels and guests."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lab.cli import main
from lab.compare import certificates, result_folders
from lab.core import paths, records
from lab.nightly import record
from lab.nightly.record import Ack

from . import nights as fakenights
from .build import stored
from .guest import IMAGE
from .result import EQUAL, result

UNFINISHED = "20261101-000000-0000"

QUIET: Any = SimpleNamespace(readouterr=lambda: SimpleNamespace(out="", err=""))
"""Stands for capsys, which a fixture of a whole module cannot have."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """The home. results: a finished result of each command, that of `ab` with a regression."""

    home: Path
    results: dict[str, Path]


def make(top: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three nights with a regression and its bisection, a matrix, a certificate, a kernel and an image."""
    nights = fakenights.make(top, monkeypatch, QUIET)
    nights.run()
    nights.add(100.0, count=2)
    nights.add(80.0, title="mm: lose a fifth")
    nights.run()
    nights.add(80.0)
    nights.run()
    record.acknowledge(Ack(event="0", note="known", at="2026-11-01T00:00:00+00:00"))
    arms = [word for commit in nights.commits[-2:] for word in ("--kernel", commit)]
    assert main.run(["matrix", "--tree", "linux", *arms, "-w", str(top / "mine"), "--seeds", "1", "-q"]) == 0
    certificates.keep([_certificate("layout-512k"), _certificate("layout-1m")])
    _unfinished()
    stored({"bzImage": b"a kernel" * 100})
    records.save(paths.cache_dir("images", IMAGE.key) / "image.json", IMAGE)
    folders = sorted(path.parent for path in paths.data_dir("results").glob("*/result.json"))
    assert main.run(["history", "rebuild"]) == 0
    found = {result_folders.kind(folder): folder for folder in folders}
    worse = [one.result for one in result_folders.finished() if one.verdict == "regression"]
    return Store(home=top, results={**found, "ab": result_folders.open_folder(worse[0])})


def _unfinished() -> None:
    """A comparison that can go on."""
    finished = sorted(path.parent for path in result_folders.results_dir().glob("*/result.json"))
    folder = next(folder for folder in finished if result_folders.kind(folder) == "ab")
    shutil.copytree(folder, folder.with_name(UNFINISHED))
    (folder.with_name(UNFINISHED) / "result.json").unlink()


def _certificate(case: str) -> certificates.Certificate:
    alone = msgspec.structs.replace(EQUAL, case=case, metrics=[EQUAL.primary])
    (one,) = certificates.certify(result(alone))
    return one
