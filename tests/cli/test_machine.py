"""`lab machine`: the commands, with recorded samples in place of this host's."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.cli import main
from lab.guests import hardware, native

RECORDED = Path(__file__).resolve().parents[1] / "guests" / "native" / "clean.jsonl"


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, on a host that was recorded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(native, "measure", lambda **_: native.parse(RECORDED.read_bytes()))
    caches = {"l1d": (32, 8), "l2": (1024, 8), "llc": (32768, 16)}
    monkeypatch.setattr(native, "cpuid_caches", lambda: caches)
    return tmp_path


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main.run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_shipped_machines_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["machine", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == hardware.names(None)
    assert lines[-1].endswith("zen4.toml")
    assert _json(capsys, "machine", "list")["schema"] == "lab.machines/1"


def test_a_machine_is_shown_with_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["machine", "show", "zen4"]) == 0
    out = capsys.readouterr().out
    assert "cost.stlb_hit" in out
    assert "72 / 72 ways" in out
    assert "mitigations.tsa" in out and "Mitigation: Clear CPU buffers" in out
    assert "estimate: " in out
    assert _json(capsys, "machine", "show", "zen4")["name"] == "zen4"


def test_machines_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["machine", "compare", "sapphire-rapids", "zen4"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert rows["cost.l2_hit"][-1] == f"{10 / hardware.load('sapphire-rapids').cost.l2_hit.cycles:.2f}"
    assert rows["tlb.dtlb_2m"][-2:] == ["-", "-"]
    values = _json(capsys, "machine", "compare", "zen4", "zen4")["values"]
    assert {value["ratio"] for value in values} == {1.0}


def test_measuring_writes_a_machine_file_and_shows_it(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["machine", "measure", "--like", "zen4", "--output", "My Host.toml"]) == 0
    out = capsys.readouterr().out
    assert "note: dtlb_2m: the hypervisor maps huge pages by small ones; taken from zen4" in out
    assert out.endswith("written: My Host.toml\n")
    machine = hardware.load("./My Host.toml")
    assert machine.name == "my-host"
    assert machine.host and machine.host.architecture == "x86_64"
    assert main.run(["machine", "show", "./My Host.toml"]) == 0
    assert "measured on: " in capsys.readouterr().out
    assert machine.measured["fault_ns"].value == pytest.approx(1347, rel=0.05)


def test_measuring_overwrites_only_when_told(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (recorded / "measured.toml").write_text("mine")
    assert main.run(["machine", "measure"]) == 2
    assert "measured.toml exists; give another --output, or --force" in capsys.readouterr().err
    assert (recorded / "measured.toml").read_text() == "mine"
    document = _json(capsys, "machine", "measure", "--force", "--like", "zen4")
    assert document["path"] == "measured.toml"
    assert document["notes"]
    assert hardware.load("./measured.toml").name == "measured"
