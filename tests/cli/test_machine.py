"""`lab machine`: the commands, with recorded samples in place of this host's."""

from pathlib import Path

import pytest

from lab.guests import hardware, native

from ..fakes.command import Lab

RECORDED = Path(__file__).resolve().parents[1] / "guests" / "native" / "clean.jsonl"


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, on a host that was recorded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(native, "measure", lambda **_: native.parse(RECORDED.read_bytes()))
    caches = {"l1d": (32, 8), "l2": (1024, 8), "llc": (32768, 16)}
    monkeypatch.setattr(native, "cpuid_caches", lambda: caches)
    return tmp_path


def test_the_shipped_machines_are_listed(lab: Lab) -> None:
    lines = lab("machine", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == hardware.names(None)
    assert lines[-1].endswith("zen4.toml")
    assert lab("machine", "list", "--json").document["schema"] == "lab.machines/1"


def test_a_machine_is_shown_with_its_sources(lab: Lab) -> None:
    out = lab("machine", "show", "zen4").out
    assert "cost.stlb_hit" in out
    assert "72 / 72 ways" in out
    assert "mitigations.tsa" in out and "Mitigation: Clear CPU buffers" in out
    assert "estimate: " in out
    assert lab("machine", "show", "zen4", "--json").document["name"] == "zen4"


def test_machines_are_compared(lab: Lab) -> None:
    lines = lab("machine", "compare", "sapphire-rapids", "zen4").out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines}
    assert rows["cost.l2_hit"][-1] == f"{10 / hardware.load('sapphire-rapids').cost.l2_hit.cycles:.2f}"
    assert rows["tlb.dtlb_2m"][-2:] == ["-", "-"]
    values = lab("machine", "compare", "zen4", "zen4", "--json").document["values"]
    assert {value["ratio"] for value in values} == {1.0}


def test_measuring_writes_a_machine_file_and_shows_it(recorded: Path, lab: Lab) -> None:
    out = lab("machine", "measure", "--like", "zen4", "--output", "My Host.toml").out
    assert "note: dtlb_2m: the hypervisor maps huge pages by small ones; taken from zen4" in out
    assert out.endswith("written: My Host.toml\n")
    machine = hardware.load("./My Host.toml")
    assert machine.name == "my-host"
    assert machine.host and machine.host.architecture == "x86_64"
    assert "measured on: " in lab("machine", "show", "./My Host.toml").out
    assert machine.measured["fault_ns"].value == pytest.approx(1347, rel=0.05)


def test_measuring_overwrites_only_when_told(recorded: Path, lab: Lab) -> None:
    (recorded / "measured.toml").write_text("mine")
    said = lab("machine", "measure", status=2).err
    assert "measured.toml exists; give another --output, or --force" in said
    assert (recorded / "measured.toml").read_text() == "mine"
    document = lab("machine", "measure", "--force", "--like", "zen4", "--json").document
    assert document["path"] == "measured.toml"
    assert document["notes"]
    assert hardware.load("./measured.toml").name == "measured"
