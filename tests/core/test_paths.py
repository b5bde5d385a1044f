"""Folders: where the lab's data is found."""

import tomllib
from pathlib import Path

import pytest

from lab.core import paths, process


def test_site_packages_is_no_checkout_though_it_has_a_folder_called_ansible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAB_HOME", raising=False)
    (tmp_path / "ansible").mkdir()
    (tmp_path / "lab").mkdir()
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "lab" / "core" / "paths.py"))
    assert paths.top_dir() == tmp_path / "lab" / "_data"
    (tmp_path / "pyproject.toml").touch()
    assert paths.top_dir() == tmp_path


def test_the_home_of_nobody_is_a_name() -> None:
    assert paths.expanded("~/linux") == Path.home() / "linux"
    assert paths.expanded("~nosuchuser-here/linux") == Path("~nosuchuser-here/linux")


def test_the_wheel_has_every_file_of_the_data_folders() -> None:
    top = Path(paths.__file__).resolve().parents[2]
    packed = tomllib.loads((top / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    included = packed["force-include"]
    assert all(target == f"lab/_data/{source}" for source, target in included.items())
    files = process.run_text(["git", "-C", top, "ls-files", *paths.DATA_FOLDERS]).splitlines()
    left = {file for file in files if not any(f"{file}/".startswith(f"{source}/") for source in included)}
    assert left == {"ansible/inventory/workers.example.yml"}, "which users copy from the checkout"
