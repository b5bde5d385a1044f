"""Rooms: where the lab's data is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.core import paths


def test_a_checkout_is_known_by_its_project_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_HOME", raising=False)
    top = Path(paths.__file__).resolve().parents[2]
    if (top / "pyproject.toml").is_file():
        assert paths.rooms_dir() == top
    assert (paths.room("ansible") / "playbooks" / "kernel_build.yml").is_file()


def test_site_packages_is_no_checkout_though_it_has_a_folder_called_ansible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAB_HOME", raising=False)
    (tmp_path / "ansible").mkdir()
    (tmp_path / "lab").mkdir()
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "lab" / "core" / "paths.py"))
    assert paths.rooms_dir() == tmp_path / "lab" / "_rooms"
    (tmp_path / "pyproject.toml").touch()
    assert paths.rooms_dir() == tmp_path


def test_the_environment_names_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_HOME", "/somewhere")
    assert paths.room("machines") == Path("/somewhere/machines")


def test_a_room_that_does_not_exist_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="kitchen"):
        paths.room("kitchen")


def test_the_home_of_nobody_is_a_name() -> None:
    assert paths.expanded("~/linux") == Path.home() / "linux"
    assert paths.expanded("~nosuchuser-here/linux") == Path("~nosuchuser-here/linux")
