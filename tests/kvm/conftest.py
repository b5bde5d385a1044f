"""The machine that has KVM, with the lab in it as an ordinary user has it who may use KVM."""

from __future__ import annotations

import json
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ..guest.conftest import BASE, TEST, Lab, lab, story
from .machine import Machine

__all__ = ["lab", "story"]

KVM_GROUP = 4242
CASE = "alloc-burst:layout-4632k"
AB = ("ab", "--base", BASE, "--test", TEST, "-w", CASE)


@dataclass
class KvmLab:
    """The lab in the machine. Its home is the host's, and what it writes there is gone with the machine."""

    machine: Machine
    lab: Lab
    groups: str = str(KVM_GROUP)
    results: dict[str, Any] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        """The argument list that runs the lab as its user."""
        user = pwd.getpwnam(self.lab.user)
        drop = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", f"--groups={self.groups}", "--"]
        return [*drop, str(self.lab.python), "-m", "lab", *arguments]

    def environment(self) -> dict[str, str]:
        """The user's environment, in which the mode is not decided."""
        return {name: value for name, value in self.lab.environment().items() if name in ("HOME", "LOGNAME", "USER")}

    def start(self, *arguments: str) -> int:
        """Start a command of the lab; its number."""
        return self.machine.start(*self.command(*arguments), env=self.environment())

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the lab to its end."""
        return self.machine.wait(self.start(*arguments))

    def json(self, *arguments: str) -> Any:
        """Run a command that must succeed; its document."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def exact(story: Lab) -> Any:
    """The comparison in exact mode, on the host."""
    return story.json(*AB, "--mode", "exact", "--seeds", "1")


_ROOT = """\
from lab.core.progress import Progress
from lab.guests import image, live_machine
live_machine.obtain_root(image.obtain(Progress())[1])
"""


@pytest.fixture(scope="session")
def kvm(story: Lab, exact: Any) -> Iterator[KvmLab]:
    """The machine, once everything is made that only takes longer in it."""
    argv = story.as_user(str(story.python), "-c", _ROOT)
    subprocess.run(argv, env=story.environment(), cwd="/", check=True)
    folder = Path(tempfile.mkdtemp(prefix="lab-kvm-", dir="/var/tmp"))
    machine = Machine(folder)
    print(f"the machine is up after {machine.up_s:.0f} s")  # noqa: T201 - shown with `pytest -s`
    machine.run("chgrp", str(KVM_GROUP), "/dev/kvm")
    machine.run("chmod", "660", "/dev/kvm")
    yield KvmLab(machine, story)
    machine.stop()
    shutil.rmtree(folder)
