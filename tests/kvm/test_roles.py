"""The Ansible roles of hosts in a machine that systemd has booted, which has KVM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..guest.conftest import Lab
from .conftest import AB, FirstNight, switched_on
from .machine import Machine

pytestmark = pytest.mark.kvm

LAB, HOME = Path("/opt/lab"), Path("/srv/lab")
"""The lab's virtual environment and its home, where the services' PrivateTmp does not hide them."""


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

    def as_user(self, *argv: str) -> str:
        """Run a program that must succeed as the lab's user; its output."""
        done = self.machine.run(*self.lab.as_user(*argv), env={"HOME": str(HOME)})
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
        for source, target in ((ready.home / "venv", LAB), (ready.home, HOME)):
            made.run("mkdir", "-p", str(target))
            made.run("mount", "--bind", str(source), str(target))
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


def test_nightly_runs_a_night_in_both_modes(host: Host, first_night: FirstNight) -> None:
    upstream = HOME / first_night.upstream.name
    clone = HOME / ".local/share/kernel-ab-lab/trees/kvm.git"
    host.as_user("git", "-C", str(clone), "remote", "set-url", "origin", f"file://{upstream}")
    host.as_user("git", "-C", str(upstream), "update-ref", "refs/heads/main", first_night.tip)
    host.run("groupadd", "--force", "--system", "kvm")
    host.run("chgrp", "kvm", "/dev/kvm")
    values = {
        "nightly_plan": str(first_night.plan), "nightly_command": f"{LAB}/bin/python3 -m lab",
        "nightly_home": str(HOME), "nightly_user": host.lab.user, "nightly_live": "true",
    }  # fmt: skip
    assert host.play("nightly", **values) > 0
    assert host.run("systemctl", "is-active", "lab-nightly.timer") == "active\n"
    host.run("systemctl", "start", "lab-nightly.service")
    status = json.loads(host.as_user(f"{LAB}/bin/python3", "-m", "lab", "nightly", "status", "--json"))
    (branch,) = status["last"]["branches"]
    assert status["nights"] == 2 and [one["mode"] for one in branch["measured"]] == ["exact", "live"], status
    assert host.machine.run("test", "-s", str(HOME / "site/index.html")).returncode == 0
    assert host.play("nightly", **values) == 0, "the second time nothing changes"
    assert host.play("nightly", nightly_state="absent") > 0
    assert host.machine.run("systemctl", "cat", "lab-nightly.timer").returncode != 0


def test_a_worker_measures_the_same(host: Host, exact: Any) -> None:
    inventory = HOME / "workers.yml"
    groups = "".join(f"{name}:\n  hosts:\n    localhost:\n" for name in ("scheduler", "workers"))
    host.machine.put(inventory, groups, host.lab.user)
    values = {
        "worker_python": f"{LAB}/bin/python3", "worker_home": str(HOME), "worker_user": host.lab.user,
    }  # fmt: skip
    assert host.play("worker", str(inventory), **values) > 0
    asked = (*AB, "--mode", "exact", "--seeds", "1", "--cluster", "tcp://localhost:8786", "--json")
    document = json.loads(host.as_user(f"{LAB}/bin/python3", "-m", "lab", *asked))
    assert document["cases"] == exact["cases"]
    assert host.play("worker", str(inventory), worker_state="absent") > 0
    assert host.machine.run("systemctl", "cat", "lab-worker.service").returncode != 0
