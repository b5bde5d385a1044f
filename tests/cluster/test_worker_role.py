"""The Ansible role for a cluster: systemd accepts its files, a rerun changes nothing, and it is removed."""

import configparser
import shlex
import sys
from pathlib import Path

import pytest
from distributed.cli import dask_scheduler, dask_worker

from ..fakes import roles

UNITS = ("lab-scheduler.service", "lab-worker.service")
INVENTORY = "scheduler:\n  hosts: {head: }\nworkers:\n  hosts: {head: , node: }\n"


def play(top: Path, **values: str) -> int:
    """Run the playbook for two hosts, each a folder here; returns the number of tasks that changed something."""
    (top / "workers.yml").write_text(INVENTORY)
    chosen = {"worker_root": f"{top}/{{{{ inventory_hostname }}}}", "worker_python": sys.executable, **values}
    for host in ("head", "node"):
        (top / host).mkdir(exist_ok=True)
    return roles.play("worker.yml", str(top / "workers.yml"), top / "ansible", chosen)


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the role was run once."""
    made = tmp_path_factory.mktemp("workers")
    assert play(made, worker_guests="3", worker_share="/net/lab") > 0
    return made


def unit(top: Path, host: str, name: str) -> configparser.SectionProxy:
    return roles.unit(top / host / "etc/systemd/system" / name)["Service"]


@pytest.mark.long
def test_a_second_time_changes_nothing(top: Path) -> None:
    assert play(top, worker_guests="3", worker_share="/net/lab") == 0


def test_each_host_gets_what_its_groups_say(top: Path) -> None:
    folders = {host: {path.name for path in (top / host / "etc/systemd/system").iterdir()} for host in ("head", "node")}
    assert folders == {"head": set(UNITS), "node": {UNITS[1]}}
    service = unit(top, "node", UNITS[1])
    assert service["User"] == "lab-worker" and service["MemoryMax"] and service["NoNewPrivileges"] == "yes"
    assert service["ReadWritePaths"] == "/var/lib/lab-worker /net/lab"
    assert " tcp://head:8786 --nthreads 3 " in service["ExecStart"]


def test_dask_takes_the_command_lines_and_systemd_both_units(top: Path) -> None:
    for command, name in ((dask_scheduler.main, UNITS[0]), (dask_worker.main, UNITS[1])):
        python, *words = shlex.split(unit(top, "head", name)["ExecStart"])
        assert python == sys.executable and words[0] == "-m"
        assert command.make_context(name, words[2:])
    roles.require_valid([top / "head/etc/systemd/system" / name for name in UNITS])


@pytest.mark.long
def test_it_is_taken_away_but_for_what_was_built(top: Path) -> None:
    assert play(top, worker_state="absent") > 0
    assert [path for host in ("head", "node") for path in (top / host).rglob("*") if path.is_file()] == []
    assert (top / "node/var/lib/lab-worker").is_dir()
    assert play(top, worker_state="absent") == 0
    play(top, worker_state="absent", worker_purge="true")
    assert not (top / "node/var/lib/lab-worker").exists()
