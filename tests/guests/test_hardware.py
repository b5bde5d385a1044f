"""Machine files: the shipped ones are sound, and errors name the mistake."""

from pathlib import Path

import pytest

from lab.core import paths
from lab.core.errors import UserError
from lab.guests import hardware
from lab.guests.hardware import Cost, Divisor


def _file(tmp_path: Path, *changes: tuple[str, str]) -> str:
    text = (paths.data_folder("machines") / "zen4.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", hardware.names(None))
def test_every_shipped_machine_is_sound_and_says_where_its_numbers_are_from(name: str) -> None:
    machine = hardware.load(name)
    assert machine.name == name and machine.cost.instruction.estimate
    parts = (machine.tlb, machine.cache, machine.prefetch, machine.overlap, machine.cost)
    values = [value for part in parts for name in part.__struct_fields__ if (value := getattr(part, name))]
    assert all(len(value.source) > 10 and "recalled" not in value.source for value in values)
    assert {"meltdown", "mds", "spectre_v1", "spectre_v2", "spec_store_bypass"} <= machine.reports().keys()
    assert machine.architecture != "x86_64" or (machine.guest and machine.guest.mitigated)
    assert all(len(one.source) > 10 for one in machine.mitigations.values())
    ranged: list[Cost | Divisor] = [*machine.cost.given().values(), machine.overlap.misses]
    assert [one for one in ranged if (one.low is None) == one.estimate] == []
    assert all(low < high for low, high in (one.range for one in ranged if one.estimate))


def test_ranges_of_a_file_without_them(tmp_path: Path) -> None:
    """Half to twice an estimate; nothing else may move."""
    path = _file(tmp_path, ("low = 25, high = 80, ", ""), ("count = 2, low = 1, high = 8", "count = 3"))
    machine = hardware.load(path)
    assert (machine.cost.walk_4k.range, machine.cost.stlb_hit.range) == ((25, 100), (7, 7))
    assert machine.overlap.misses.range == (1, 6)


def test_a_range_is_no_number_of_the_machine_and_is_written(tmp_path: Path) -> None:
    machine = hardware.load("zen4")
    wider = hardware.load(_file(tmp_path, ("low = 25, high = 80", "low = 5, high = 180")))
    assert (wider.key, wider.arguments()) == (machine.key, machine.arguments())
    path = tmp_path / "again.toml"
    path.write_text(hardware.to_toml(wider))
    assert hardware.read(path) == wider


@pytest.mark.parametrize("name", hardware.names())
def test_every_shipped_machine_has_a_cpu_that_runs_the_same_everywhere(name: str) -> None:
    guest = hardware.load(name).guest
    assert guest is not None
    flags = guest.cpu.split(",")
    assert flags[0] == "Nehalem", "a model without rdrand and rdseed, the same in every QEMU"
    on = {flag[1:] for flag in flags if flag.startswith("+")}
    assert not on & {"rdrand", "rdseed"}, "random numbers of the host"
    assert "la57" not in on, "the plugin walks four levels"
    assert "erms" not in on, "a step for each byte that the kernel clears"
    assert not {flag.replace("-", "_") for flag in on} & {*guest.lacks, *guest.off}
    assert "fsrm" in guest.lacks and "rdrand" in guest.off


def test_arguments_are_whole_numbers() -> None:
    arguments = dict(word.split("=") for word in hardware.load("sapphire-rapids").arguments())
    expected = {"dtlb_4k": "96:6", "l1d": "49152:12", "instruction": "300", "rep_byte": "16", "overlap": "2"}
    assert expected.items() <= arguments.items() and "istlb" not in arguments


def test_a_number_changes_the_key_and_a_word_does_not(tmp_path: Path) -> None:
    key = hardware.load("zen4").key
    assert hardware.load(_file(tmp_path, ("AMD Zen 4 (EPYC 9004)", "something"))).key == key
    assert hardware.load(_file(tmp_path, ("entries = 72, ways = 72", "entries = 64, ways = 64"))).key != key


def test_an_unknown_machine_gets_the_closest_name() -> None:
    with pytest.raises(UserError, match="no machine is called 'zen-4'") as caught:
        hardware.load("zen-4")
    assert caught.value.hint == "did you mean zen4?"
    with pytest.raises(UserError) as caught:
        hardware.load("vax")
    assert "sapphire-rapids" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 2", "schema 2 is not known"),
        ("schema = 1", "", "the key 'schema' is missing"),
        ("schema = 1", "schema = ", "not valid TOML"),
        ("entries = 72, ways = 72", "entries = 72, ways = 7", "7 ways do not divide 72 entries"),
        ("misses = { count = 2", "misses = { count = 0", "0 is not between 1 and 64"),
        ("cycles = 0.3", "cycles = -1", "is not at least 0.0"),
        ("low = 25, high = 80", "low = 25", "cost.walk_4k: low without high"),
        ("low = 25, high = 80", "low = 80, high = 25", "cost.walk_4k: 50 is not between low = 80 and high = 25"),
        ("low = 25, high = 80", "low = 25, high = inf", "is not at most 100000"),
        ("low = 0.2, high = 0.8", "low = 0, high = 0.8", "cost.instruction: 0 cycles; between 0 and 10 is possible"),
        ("cycles = 7,", "", ":28: cost.stlb_hit: the key 'cycles' is missing"),
        ("atomic = {", "atomics = {", "unknown key 'atomics'"),
        ('cpu = "Nehalem,', 'cpu = "max -device x,', "guest.cpu"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = _file(tmp_path, (old, new))
    with pytest.raises(UserError) as caught:
        hardware.load(path)
    assert path in caught.value.message and message in caught.value.message
