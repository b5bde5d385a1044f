"""The version of exact mode's numbers, and the words about two of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.core.errors import LabError
from lab.guests import model_version
from lab.workloads import selection

ANY = ["syscalls"]
FIRST = 'schema = 1\n\n[[version]]\nnumber = 1\nreason = "the first"\n'
SECOND = '\n[[version]]\nnumber = 2\nreason = "walks cost more"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of versions, which a test writes."""
    monkeypatch.setattr(model_version, "data_folder", lambda name: tmp_path)
    model_version.history.cache_clear()
    yield tmp_path / "model.toml"
    model_version.history.cache_clear()


def test_another_version_is_named_with_the_reasons_since(file: Path) -> None:
    file.write_text(FIRST + SECOND)
    assert (model_version.current(ANY), model_version.changes(2, ANY)) == (2, "")
    assert model_version.changes(1, ANY) == "model version 1 then, 2 here: walks cost more"
    assert model_version.changes(0, ANY) == "model version unknown then, 2 here"
    assert model_version.changes(3, ANY) == "model version 3 then, 2 here"


def test_a_version_may_be_about_some_workloads_alone(file: Path) -> None:
    file.write_text(
        FIRST + SECOND + 'workloads = ["contention"]\n' + SECOND.replace("2", "3").replace("walks", "strings")
    )
    assert model_version.changes(1, ["contention@4"]).endswith("3 here: walks cost more; strings cost more")
    assert model_version.changes(1, ["syscalls:mm"]).endswith("3 here: strings cost more")
    file.write_text(FIRST + SECOND + 'workloads = ["contention"]\n')
    model_version.history.cache_clear()
    assert [model_version.current([name]) for name in ("contention@4:fstat", "contention", "contention-2")] == [2, 2, 1]
    assert model_version.current(["syscalls", "contention@1"]) == 2


def test_versions_are_numbered_without_gaps(file: Path) -> None:
    file.write_text(FIRST + SECOND.replace("2", "3"))
    with pytest.raises(LabError, match="numbered 1, 2, 3"):
        model_version.current(ANY)


def test_the_shipped_versions_are_sound() -> None:
    model_version.history.cache_clear()
    shipped = [workload.name for workload in selection.list_workloads()]
    assert all(set(version.workloads) <= set(shipped) for version in model_version.history())
    assert model_version.current(shipped) == len(model_version.history()) >= 1
