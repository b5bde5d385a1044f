"""The golden table of `tests/guest/golden.json`: what it says of numbers that changed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from lab.guests import model_version
from lab.guests.model_version import ModelVersion

from .guest import golden
from .guest.golden import Cells, Table

TABLE = Table(
    version=1,
    surroundings={"package": {"kernel": "6.12.117", "QEMU": "7.2.22"}},
    probe={"chase 8 full": {"millicycles": 4000, "loads": 16}, "loads 1 100 tlb": {"millicycles": 900}},
    package={"syscalls:getppid": {"cycles_per_op": 230.5}},
    contended={},
)
SLOWER = {**TABLE.probe, "chase 8 full": {"millicycles": 4300, "loads": 16}}


@pytest.mark.parametrize(
    ("version", "part", "numbers", "why"),
    [
        (1, "probe", TABLE.probe, []),
        (1, "package", TABLE.package, []),
        (1, "probe", {**SLOWER, "loads 1 100 tlb": {"millicycles": 901, "walks": 1}}, [
            "numbers changed, and the model version did not (1):",
            "chase 8 full: millicycles 4000 -> 4300",
            "loads 1 100 tlb: millicycles 900 -> 901, walks None -> 1",
            golden.HINT,
        ]),
        (2, "probe", SLOWER, ["golden.json is of model version 1, and this is 2: run `make golden`"]),
    ],
)  # fmt: skip
def test_the_cells_that_changed_are_named(version: int, part: str, numbers: Cells, why: list[str]) -> None:
    assert golden.complaint(TABLE, version, part, numbers).splitlines() == why


def test_cells_come_and_go_by_recording() -> None:
    fewer = {"chase 8 full": TABLE.probe["chase 8 full"]}
    assert "(loads 1 100 tlb): run `make golden`" in golden.complaint(TABLE, 1, "probe", fewer)


def test_the_packages_part_is_of_one_environment() -> None:
    assert golden.moved(TABLE, "package", TABLE.surroundings["package"]) == ""
    assert golden.moved(TABLE, "package", {"kernel": "6.12.117", "QEMU": "10.0.2"}) == "QEMU 7.2.22 then, 10.0.2 here"


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the model's second version, about some workloads, or that there is none yet; the table is in a folder."""
    monkeypatch.setattr(golden, "PATH", tmp_path / "golden.json")
    first = ModelVersion(number=1, reason="the first")

    def are(*more: tuple[str, ...]) -> None:
        found = (first, *(replace(first, number=2, workloads=workloads) for workloads in more))
        monkeypatch.setattr(model_version, "history", lambda: found)

    are()
    return are


def test_changed_numbers_are_recorded_only_with_a_version_about_them(versions: Callable[..., None]) -> None:
    slower = replace(TABLE, probe=SLOWER)
    with pytest.raises(AssertionError, match="raise the version"):
        golden.record(slower, TABLE)
    versions(("contention",))
    with pytest.raises(AssertionError, match="raise the version"):
        golden.record(replace(slower, version=2), TABLE)
    assert not golden.PATH.exists()
    versions(())
    golden.record(replace(slower, version=2), TABLE)
    assert golden.load() == replace(slower, version=2)


@pytest.mark.usefixtures("versions")
def test_the_packages_numbers_are_recorded_anew_in_another_environment() -> None:
    other = {"syscalls:getppid": {"cycles_per_op": 240.5}}
    with pytest.raises(AssertionError, match=r"getppid: cycles_per_op 230\.5 -> 240\.5"):
        golden.record(replace(TABLE, package=other), TABLE)
    golden.record(replace(TABLE, surroundings={"package": {"kernel": "6.12.118"}}, package=other), TABLE)
    assert golden.load().package == other


def test_the_recorded_table_has_some_forty_cells() -> None:
    table = golden.load()
    assert len(table.probe) >= 20 and len(table.package) >= 20 and table.contended
