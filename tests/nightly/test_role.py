"""The Ansible role for nights by a timer: systemd accepts its files, a rerun changes nothing, and it is removed."""

import configparser
from pathlib import Path

import pytest

from ..fakes import roles

UNITS = ("lab-nightly.service", "lab-nightly.timer")


def play(root: Path, **values: str) -> int:
    """Run the playbook on this machine, below a folder; returns the number of tasks that changed something."""
    plan = root.parent / "plan.toml"
    plan.write_text("schema = 1\n[[branch]]\n")
    chosen = {"nightly_root": str(root), "nightly_plan": str(plan), "nightly_command": "/bin/true", **values}
    return roles.play("nightly.yml", "localhost,", root.parent / "ansible", chosen)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the role was run once."""
    made = tmp_path_factory.mktemp("role") / "root"
    made.mkdir()
    assert play(made, nightly_cpus="2") > 0
    return made


@pytest.mark.long
def test_a_second_time_changes_nothing(root: Path) -> None:
    assert play(root, nightly_cpus="2") == 0


def _unit(root: Path, name: str) -> configparser.ConfigParser:
    return roles.unit(root / "etc/systemd/system" / name)


def test_the_service_has_a_user_limits_and_a_journal_and_systemd_takes_it(root: Path) -> None:
    service = _unit(root, UNITS[0])["Service"]
    assert service["User"] == "lab-nightly"
    assert service["ExecStart"] == "/bin/true nightly run --plan /etc/lab/nightly.toml"
    assert service["CPUQuota"] == "200%" and service["MemoryMax"] and service["TasksMax"]
    assert service["StandardOutput"] == "journal" and service["NoNewPrivileges"] == "yes"
    assert _unit(root, UNITS[1])["Timer"]["Persistent"] == "true"
    roles.require_valid([root / "etc/systemd/system" / name for name in UNITS])


@pytest.mark.long
def test_it_is_taken_away_but_for_what_was_measured(root: Path) -> None:
    (root / "var/lib/lab-nightly/results").mkdir()
    assert play(root, nightly_state="absent") > 0
    assert [path for path in root.rglob("*") if path.is_file()] == []
    assert (root / "var/lib/lab-nightly/results").is_dir()
    assert play(root, nightly_state="absent") == 0
    play(root, nightly_state="absent", nightly_purge="true")
    assert not (root / "var/lib/lab-nightly").exists()
