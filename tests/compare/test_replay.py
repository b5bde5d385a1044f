"""A stored result that is measured again: after an edit, under another version of the model, from before versions."""

import shutil
from pathlib import Path

import msgspec
import pytest

from lab.compare import comparison, measurement, result_folders
from lab.compare.replay import Replay, differences, environment_changes, replay
from lab.compare.results import AbResult
from lab.core import records
from lab.core.paths import data_folder
from lab.guests import initrd, model_version, plugin
from lab.kernels import compilers

from ..fakes.build import own_folders
from ..fakes.guest import FakeGuests, plan, pretend, write_workload
from ..fakes.work import quiet

PROGRAM = "usr/bin/mine"


class Stored:
    """A result under the cost model whose guests are packed from a root here, with a plugin that is a copy."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        own_folders(monkeypatch, folder)
        pack = initrd.pack_initrd
        self.guests = pretend(monkeypatch, folder, FakeGuests())
        monkeypatch.setattr(initrd, "pack_initrd", pack)
        self.root, self.machines = folder / "root", folder / "machines"
        for name in ("init", PROGRAM):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(f"this is {name}")
        shutil.copytree(data_folder("machines") / "plugin", self.machines / "plugin")
        monkeypatch.setattr(compilers, "data_folder", lambda name: self.machines)
        monkeypatch.setattr(plugin, "obtain", lambda: folder / plugin.PROGRAM.digest() / plugin.NAME)
        result_folder = result_folders.new_folder(None)
        asked = plan(write_workload(folder / "mine"), model="tlb", seeds=2, max_seeds=2)
        result_folders.store_plan(result_folder, asked)
        self.result: AbResult = comparison.measure(asked, result_folder, quiet())
        self.file = result_folder / "result.json"

    def rewrite(self, name: str) -> None:
        """Put another file into the guests' root."""
        (self.root / name).write_text("compiled from other sources")
        shutil.rmtree(self.root.parent / "slices")

    def replay(self) -> Replay:
        return replay(self.result.result, quiet())


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    return Stored(tmp_path, monkeypatch)


def test_an_edit_of_the_plugin_that_changes_no_number_leaves_the_environment_as_it_was(stored: Stored) -> None:
    sources = plugin.PROGRAM.digest()
    with (stored.machines / "plugin" / "main.c").open("a") as source:
        source.write("/* a comment */\n")
    assert plugin.PROGRAM.digest() != sources
    ready = measurement.prepare(result_folders.load_plan(stored.file.parent), stored.file.parent, quiet())
    assert ready.environment.fingerprint == stored.result.environment.fingerprint
    again = stored.replay()
    assert (again.guests, again.environment, again.differences) == (4, [], [])


def test_a_record_from_before_there_was_a_whole_cost_replays_as_the_same() -> None:
    before = {"small": {"throughput": 1.0}}
    after = {"small": {"throughput": 1.0, "deferred_cycles": 2.0, "guest_time": 3.0, "waited": 0.0}}
    assert differences("thp", "base", 1, before, after) == []
    assert len(differences("thp", "base", 1, after, {"small": {"throughput": 1.0}})) == 3
    assert len(differences("thp", "base", 1, before, {"small": {"throughput": 1.0, "loads": 2.0}})) == 1


def test_another_program_is_another_environment(stored: Stored) -> None:
    stored.rewrite(PROGRAM)
    again = stored.replay()
    assert (again.environment, again.differences) == (["guests (initrd_sha256)"], [])


def test_another_version_of_the_model_is_named_with_its_reason(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    older = model_version.history()
    newer = (*older, model_version.ModelVersion(number=len(older) + 1, reason="walks cost more"))
    monkeypatch.setattr(model_version, "history", lambda: newer)
    stored.guests.formula = lambda arm, seed, case: 400.0 + seed
    again = stored.replay()
    then = stored.result.environment.model_version
    assert again.environment == [f"model version {then} then, {len(newer)} here: walks cost more"]
    assert len(again.differences) == 4 * 2 * 2, "throughput and cycles of both cases"


def test_a_result_from_before_versions_replays_and_says_so(stored: Stored) -> None:
    now = stored.result.environment
    old = {"fingerprint": "an older one", "model": "tlb sapphire-rapids 7c812916 d045e47b"}
    guests = {name: msgspec.structs.replace(shape, **old) for name, shape in now.guests.items()}
    before = msgspec.structs.replace(now, guests=guests, model_version=0, **old)
    records.save(stored.file, msgspec.structs.replace(stored.result, environment=before))
    again = stored.replay()
    unknown = f"model version unknown then, {now.model_version} here"
    assert (again.environment, again.differences) == ([unknown], [])
    stored.rewrite("init")
    assert stored.replay().environment == [unknown, "guests (initrd_sha256)"]


def test_facts_that_differ_are_named(stored: Stored) -> None:
    now = stored.result.environment
    assert environment_changes(now, now) == []
    other = msgspec.structs.replace(now, fingerprint="f", qemu="10.0", settings={"a": "b"})
    assert environment_changes(other, now) == ["qemu", "settings"]
    shape = msgspec.structs.replace(now.guests["mine"], vcpus=2, memory_mb=1, initrd_sha256="f", fingerprint="f")
    other = msgspec.structs.replace(now, fingerprint="f", guests={"mine": shape})
    assert environment_changes(other, now) == ["guests (vcpus, memory_mb, initrd_sha256)"]
    assert environment_changes(msgspec.structs.replace(now, fingerprint="f"), now) == ["fingerprint"]
