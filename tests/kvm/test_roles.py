"""The Ansible roles of hosts in a machine that systemd has booted, which has KVM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..guest.conftest import Lab
from .conftest import switched_on
from .machine import Machine

pytestmark = pytest.mark.kvm

LAB = Path("/opt/lab")
"""The lab's virtual environment, where a service's PrivateTmp would not hide it."""


@dataclass(frozen=True)
class Host:
    """A machine of its own for the roles."""

    machine: Machine
    lab: Lab

    def run(self, *argv: str) -> str:
        """Run a program that must succeed; its output."""
        done = self.machine.run(*argv, env={"HOME": "/run/root"})
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    def play(self, name: str, inventory: str = "localhost,", **values: str) -> int:
        """Run a playbook of the wheel; the number of tasks that changed something."""
        (rooms,) = self.lab.home.glob("venv/lib/python3*/site-packages/lab/_rooms")
        env = {
            "HOME": "/run/root", "ANSIBLE_ROLES_PATH": str(rooms / "ansible/roles"), "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "false",
        }  # fmt: skip
        chosen = [word for key, value in values.items() for word in ("-e", f"{key}={value}")]
        playbook = str(rooms / "ansible/playbooks" / f"{name}.yml")
        program = str(self.lab.home / "venv/bin/ansible-playbook")
        done = self.machine.run(program, "-i", inventory, "-c", "local", *chosen, playbook, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return sum(map(int, re.findall(r"changed=(\d+)", done.stdout)))


@pytest.fixture(scope="module")
def host(ready: Lab) -> Iterator[Host]:
    """The machine, once systemd is up in it."""
    with switched_on(systemd=True) as machine:
        made = Host(machine, ready)
        made.run("mkdir", "-p", str(LAB))
        made.run("mount", "--bind", str(ready.home / "venv"), str(LAB))
        yield made


def test_systemd_runs_the_machine(host: Host) -> None:
    assert host.run("cat", "/proc/1/comm") == "systemd\n"
    assert host.machine.run("test", "-c", "/dev/kvm").returncode == 0


def test_host_ready_finds_every_package(host: Host) -> None:
    # Without a network there are no newer lists; those of the host are new enough.
    host.run("touch", "/var/lib/apt/lists", "/var/lib/apt/periodic/update-success-stamp")
    assert host.play("host_ready") == 0


def test_bench_host_sets_and_restores(host: Host) -> None:
    switch = "/sys/kernel/mm/transparent_hugepage/enabled"
    before = host.run("cat", switch)
    python = str(LAB / "bin/python3")
    assert host.play("bench_host", bench_host_become="false", ansible_python_interpreter=python) > 0
    assert host.run("cat", switch) == "always madvise [never]\n" != before
    assert host.play("bench_host_restore", bench_host_become="false", ansible_python_interpreter=python) > 0
    assert host.run("cat", switch) == before
