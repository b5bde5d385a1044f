"""Machine files of measured hosts: recorded samples of several hosts, curves by hand, and this host itself."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.core.errors import HostFailed
from lab.guests import calibration, hardware, native, reach
from lab.guests.calibration import Measurement
from lab.guests.hardware import Host
from lab.guests.topology import HostCpu

RECORDED = Path(__file__).with_name("native")
HOST = Host(architecture="x86_64", cpu="AMD EPYC", kernel="6.18.0", guest=True)
CACHES = {"l1d": (32, 8), "l2": (1024, 8), "llc": (32768, 16)}


def _recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.jsonl").read_bytes()


def _fit(output: bytes, base: str = "zen4") -> Measurement:
    return calibration.fit(native.parse(output), hardware.load(base), host=HOST, caches=CACHES)


def _without(output: bytes, name: str) -> bytes:
    kept = [line for line in output.splitlines() if f'"name": "{name}"'.encode() not in line]
    assert len(kept) < len(output.splitlines())
    return b"\n".join(kept)


def _with(output: bytes, name: str, change: Callable[[int], float]) -> bytes:
    """The same samples with other numbers in one field; change: a factor by the number of the series."""
    lines = []
    for number, line in enumerate(map(json.loads, output.splitlines())):
        if line["t"] == "series":
            line[name] = [value * change(number) for value in line[name]]
        lines.append(json.dumps(line))
    return "\n".join(lines).encode()


def _without_huge_pages() -> bytes:
    """The clean host's samples, if it gave no huge pages."""
    lines = []
    for line in map(json.loads, _recorded("clean").splitlines()):
        if line.get("name") == "huge_bytes":
            line["value"] = 0
        elif line.get("name") in ("tlb_2m", "tlb_2m_dense", "conflict_2m"):
            line = {"t": "missing", "name": line["name"], "reason": "huge pages are not available"}
        lines.append(json.dumps(line))
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("samples", "walk"), [(_recorded("clean"), 71), (_recorded("noisy"), 49), (_without_huge_pages(), 71)],
    ids=["clean", "noisy", "no huge pages"],
)  # fmt: skip
def test_hosts_of_one_kind_give_the_same_machine(samples: bytes, walk: int) -> None:
    """Both are of a Zen 4 core at 3.69 GHz; noise and small pages must not show in what they have in common.

    Walks differ: each process got other pages from the guest, and the guest from its hypervisor.
    """
    machine = _fit(samples).machine
    assert machine.clock and machine.clock.ghz == pytest.approx(3.69, abs=0.01)
    expected = {
        "stlb_hit": (7.0, 0.2), "l2_hit": (10.0, 0.2), "llc_hit": (41, 2), "memory": (540, 38), "walk_4k": (walk, 1),
        "atomic": (5.6, 0.1), "misprediction": (18, 0.5),
    }  # fmt: skip
    for name, (cycles, give) in expected.items():
        assert getattr(machine.cost, name).cycles == pytest.approx(cycles, abs=give), name
    assert machine.cost.instruction.estimate
    assert (machine.tlb.dtlb_4k.entries, machine.tlb.stlb.entries) == (72, 3072)
    assert machine.measured["lock_add_cycles"].value == pytest.approx(5.5, abs=0.2)
    assert machine.measured["syscall_ns"].value == pytest.approx(98, abs=2)
    assert all(reading.low <= reading.value <= reading.high for reading in machine.measured.values())


def test_the_move_of_a_line_is_that_of_this_host_or_of_the_base_machine() -> None:
    base = hardware.load("zen4")
    assert base.coherence
    line = next(one for one in map(json.loads, _recorded("clean").splitlines()) if one.get("name") == "syscall")
    added = json.dumps(line | {"name": "move"}).encode()
    output = _recorded("clean").replace(b'{"t": "end"}', added + b'\n{"t": "end"}')
    found = _fit(output).machine.coherence
    assert found and found.move.cycles == pytest.approx(native.parse(output).one("move").value, abs=1e-3)
    assert found.move.range[0] < found.move.cycles < found.move.range[1]
    other = _fit(_recorded("clean")).machine.coherence
    assert other and other.move.cycles == base.coherence.move.cycles
    assert other.move.source.startswith("from zen4: ")


def test_the_partner_is_of_another_core_of_the_same_socket() -> None:
    known = [HostCpu(cpu=cpu, core=cpu // 2, socket=cpu // 4) for cpu in range(8)]
    assert native._partner(0, known) == 2 and native._partner(6, known) == 4
    assert native._partner(0, known[:2] + known[6:]) == 6 and native._partner(0, known[:2]) is None


def test_without_huge_pages_it_says_so_and_takes_the_base_machines() -> None:
    measured = _fit(_without_huge_pages())
    assert "walk_2m: huge pages are not available; taken from zen4" in measured.notes
    assert "dtlb_2m: huge pages are not available; taken from zen4" in measured.notes
    walk = measured.machine.cost.walk_2m
    assert walk.cycles == hardware.load("zen4").cost.walk_2m.cycles
    assert walk.source.startswith("from zen4: huge pages are not available (")
    assert walk.estimate


def test_what_others_leave_of_a_cache_is_a_whole_number_of_sets() -> None:
    caches = {**CACHES, "llc": (266240, 20)}
    fitted = calibration.fit(native.parse(_recorded("clean")), hardware.load("zen4"), host=HOST, caches=caches)
    llc = fitted.machine.cache.llc
    assert llc.ways == 20 and llc.kib < 8192 and llc.lines % llc.ways == 0


def _flushed(other_page: float) -> bytes:
    """The clean host's samples, with flushes that make each other page so many cycles dearer."""
    lines = []
    for pages in (64, 256):
        for name, cycles in (("flush", 5000 + (9 + other_page) * pages), ("flush_none", 9 * pages)):
            samples = {"cycles": [cycles] * 9, "ghz": [3.69] * 9, "width": [3.9] * 9}
            lines.append(json.dumps({"t": "series", "name": name, "x": pages, "disturbed": 0, **samples}))
    *others, end = _recorded("clean").splitlines()
    return b"\n".join([*others, *(line.encode() for line in lines), end])


@pytest.mark.parametrize(("other_page", "flushes"), [(0.5, False), (25, True)])
def test_a_flush_of_one_page_that_is_one_of_all_is_noticed(other_page: float, flushes: bool) -> None:
    machine = _fit(_flushed(other_page)).machine
    assert machine.flush is not None and machine.flush.all is flushes
    assert ("flushes_all=1" in machine.arguments()) is flushes
    assert machine.measured["flush_page_cycles"].value == pytest.approx(other_page)


def test_a_cache_that_others_fill_is_named() -> None:
    measured = _fit(_recorded("clean"))
    (note,) = [note for note in measured.notes if note.startswith("llc: ")]
    assert re.fullmatch(r"llc: .* up to \d+ KiB, where CPUID says 32768 KiB: others use it too, and .*", note)
    reach_kib = measured.machine.measured["llc_reach_kib"].value
    assert measured.machine.cache.llc.kib == pytest.approx(reach_kib, abs=1)
    assert reach_kib < 8192


@pytest.mark.parametrize(
    ("series", "cost"),
    [("stream", "prefetched"), ("tlb_4k", "stlb_hit"), ("chains", "memory"), ("rep_movsb", "rep_byte")],
)
def test_what_was_not_measured_is_the_base_machines_and_is_named(series: str, cost: str) -> None:
    measured = _fit(_without(_recorded("clean"), series))
    assert any(cost in note and note.endswith("every run was disturbed; taken from zen4") for note in measured.notes)
    value, base = getattr(measured.machine.cost, cost), getattr(hardware.load("zen4").cost, cost)
    assert value.cycles == base.cycles
    assert value.source.startswith("from zen4: every run was disturbed (")


def test_a_clock_that_does_not_hold_still_is_refused() -> None:
    unstable = _with(_recorded("clean"), "ghz", lambda number: 1 if number % 2 else 0.8)
    with pytest.raises(HostFailed, match=r"hopeless: the core's clock went from 2\.9\d to 3\.69 GHz") as caught:
        _fit(unstable)
    assert caught.value.exit_status == 4
    assert "--cpu" in str(caught.value.hint)


def test_samples_beside_another_thread_are_left_out_if_others_are_there() -> None:
    line = '{{"t": "series", "name": "{}", "x": 0, "disturbed": 0, "cycles": {}, "ghz": {}, "width": {}}}'
    mixed = line.format("mixed", [1.0] * 10 + [9.0] * 30, [3.7] * 40, [3.8] * 10 + [3.0] * 30)
    crowded = line.format("crowded", [9.0] * 30 + [8.0] * 10, [3.7] * 40, [3.0] * 30 + [3.5] * 10)
    samples = native.parse("\n".join(['{"t": "header", "schema": 1}', mixed, crowded, '{"t": "end"}']).encode())
    assert samples.one("mixed").cycles == [1.0] * 10
    assert samples.one("crowded").cycles == [8.0] * 10, "the least disturbed quarter"
    assert samples.shared == ["crowded"]


def test_a_core_that_another_thread_always_uses_and_samples_without_any_run_are_refused() -> None:
    busy = _with(_recorded("clean"), "width", lambda number: 1 if number < 9 else 0.7)
    with pytest.raises(HostFailed, match="nearly every run was disturbed"):
        _fit(busy)
    with pytest.raises(HostFailed, match="nearly every run was disturbed"):
        _fit(b'{"t": "header", "schema": 1}\n{"t": "end"}\n')


def test_a_tlb_unlike_the_base_machines_is_the_measured_one() -> None:
    machine = _fit(_recorded("clean"), "sapphire-rapids").machine
    assert machine.tlb.dtlb_4k.entries == 72
    assert machine.tlb.dtlb_4k.source == "measured here: reach between 64 and 80 pages; ways of sapphire-rapids"
    assert machine.tlb.dtlb_2m and machine.tlb.dtlb_2m.source.startswith("from sapphire-rapids: the hypervisor maps")


# --- curves ---


def test_strings_by_hand() -> None:
    points = [(x, 20 + x / 32) for x in (16, 64, 256, 1024, 4096)]
    assert reach.fit_strings([*points, (512, 900.0)]) == (pytest.approx(20), pytest.approx(1 / 32))


# --- hosts ---


def test_another_architecture_is_refused() -> None:
    with pytest.raises(HostFailed, match="this host is aarch64; the lab models and measures x86_64 only"):
        native.require_architecture("aarch64")


@pytest.mark.parametrize(("model", "kept"), [("17", True), ("1", False)])
def test_parameters_of_belief_are_of_the_same_cpu(monkeypatch: pytest.MonkeyPatch, model: str, kept: bool) -> None:
    base = hardware.load("zen4").guest
    assert base is not None
    names = {word[1:] for word in base.cpu.split(",") if word.startswith("+")}
    info = {"vendor_id": "AuthenticAMD", "cpu family": "25", "model": model, "stepping": "1", "flags": " ".join(names)}
    monkeypatch.setattr(native, "_cpuinfo", lambda: info)
    found = native.guest_of(base)
    assert found is not None and found.mitigated == (base.mitigated if kept else [])


# --- this host ---


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("make"), reason="needs gcc and make")
def test_this_hosts_machine_can_be_read_again(tmp_path: Path) -> None:
    here = native.measure(cpu=None, quick=True)
    try:
        measured = calibration.fit(here, hardware.load("zen4"), host=native.this_host(), caches=native.cpuid_caches())
    except HostFailed as error:
        pytest.skip(f"on this host, now: {error.message}")
    path = tmp_path / "mine.toml"
    path.write_text(hardware.to_toml(measured.machine, ["a comment"]))
    assert hardware.read(path) == measured.machine
