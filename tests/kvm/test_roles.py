"""The Ansible roles of hosts in a machine that systemd has booted, which has KVM."""

import json
import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..guest.conftest import STORE, Lab
from .conftest import AB, FirstNight, KvmLab, switched_on
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
        (data,) = self.lab.home.glob("venv/lib/python3*/site-packages/lab/_data")
        env = {
            "HOME": "/run/root", "ANSIBLE_ROLES_PATH": str(data / "ansible/roles"), "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "false",
        }  # fmt: skip
        playbook = str(data / "ansible/playbooks" / f"{name}.yml")
        program = str(self.lab.home / "venv/bin/ansible-playbook")
        done = self.machine.run(program, "-i", inventory, "-c", "local", "-e", json.dumps(values), playbook, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return sum(map(int, re.findall(r"changed=(\d+)", done.stdout)))

    def serve(self, *services: str) -> None:
        """Show the lab's home, and the store behind it, to services, whose PrivateTmp would hide them.

        The owner gets the name that the services' role gives it.
        """
        owner, name = self.lab.user, services[-1]
        self.run("useradd", "--non-unique", f"--uid={pwd.getpwnam(owner).pw_uid}", "--gid=nogroup", name)
        for service in services:
            path = Path(f"/etc/systemd/system/{service}.service.d/home.conf")
            self.machine.put(
                path, f"[Service]\nBindPaths={self.lab.home} {STORE}\nReadWritePaths={STORE}\n", "root", "644"
            )

    def require_started(self, service: str) -> None:
        """Start a service that must succeed."""
        done = self.machine.run("systemctl", "start", service)
        assert done.returncode == 0, self.machine.run("journalctl", "--no-pager", "--unit", service).stdout


@pytest.fixture(scope="module")
def host(ready: Lab) -> Iterator[Host]:
    """The machine, once systemd is up in it."""
    with switched_on(systemd=True) as machine:
        made = Host(machine, ready)
        made.run("mkdir", "-p", str(LAB))
        made.run("mount", "--bind", str(ready.home / "venv"), str(LAB))
        yield made


def test_systemd_runs_the_machine_and_host_ready_finds_every_package(host: Host) -> None:
    assert host.run("cat", "/proc/1/comm") == "systemd\n"
    assert host.machine.run("test", "-c", "/dev/kvm").returncode == 0
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
    user = KvmLab(host.machine, host.lab)
    host.run(*user.as_user(*first_night.arrival()))
    host.serve("lab-nightly")
    # Without the folders in which kernels were built: 9p would list their files for minutes, and no night needs them.
    work = host.lab.home / ".cache/kernel-ab-lab/work"
    host.run("mount", "-t", "tmpfs", "-o", f"uid={pwd.getpwnam(host.lab.user).pw_uid}", "none", str(work))
    host.run("groupadd", "--force", "--system", "kvm")
    host.run("chgrp", "kvm", "/dev/kvm")
    values = {
        "nightly_plan": str(first_night.plan), "nightly_command": f"{host.lab.python} -m lab",
        "nightly_home": str(host.lab.home), "nightly_live": "true",
    }  # fmt: skip
    assert host.play("nightly", **values) > 0
    assert host.run("systemctl", "is-active", "lab-nightly.timer") == "active\n"
    host.require_started("lab-nightly.service")
    status = user.json("nightly", "status")
    (branch,) = status["last"]["branches"]
    assert status["nights"] == 2 and [one["mode"] for one in branch["measured"]] == ["exact", "live"], status
    assert host.machine.run("test", "-s", str(host.lab.home / "site/index.html")).returncode == 0
    assert host.play("nightly", **values) == 0, "the second time nothing changes"
    assert host.play("nightly", nightly_state="absent") > 0
    assert host.machine.run("systemctl", "cat", "lab-nightly.timer").returncode != 0


def test_a_worker_measures_the_same(host: Host, exact: Any) -> None:
    user = KvmLab(host.machine, host.lab)
    host.serve("lab-scheduler", "lab-worker")
    inventory, share = host.lab.home / "workers.yml", host.lab.home / "share"
    groups = "".join(f"{name}:\n  hosts:\n    localhost:\n" for name in ("scheduler", "workers"))
    host.machine.put(inventory, groups, host.lab.user, "644")
    host.run(*user.as_user("mkdir", str(share)))
    values = {"worker_python": str(host.lab.python), "worker_home": str(host.lab.home), "worker_share": str(share)}
    assert host.play("worker", str(inventory), **values) > 0
    measured = user.json(
        *AB, "--mode", "exact", "--seeds", "1", "--cluster", "tcp://localhost:8786", "--share", str(share)
    )
    assert measured["cases"] == exact["cases"]
    assert host.play("worker", str(inventory), **values) == 0, "the second time nothing changes"
    assert host.play("worker", str(inventory), worker_state="absent") > 0
    assert host.machine.run("systemctl", "cat", "lab-worker.service").returncode != 0
