"""Ansible playbooks of the lab, run with a document of variables."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab.core import process
from lab.core.errors import HostFailed
from lab.core.paths import data_folder

TAG = "LAB_PLAY"

_CONFIG = "ansible.cfg"
_POLL_S = 0.02
"""Interval at which Ansible polls a task. Its default of a millisecond costs CPU time while make runs."""


class PlaybookFailed(HostFailed):
    """A task of a playbook failed. `task` is its name, `detail` the message of its module.

    `task` is None if Ansible itself did not start or was killed; then `detail` is its last line.
    """

    def __init__(self, playbook: str, task: str | None, detail: str) -> None:
        super().__init__(f"{playbook}: {task or 'start'}: {detail}")
        self.task = task
        self.detail = detail


def play(
    name: str,
    variables: Mapping[str, Any],
    *,
    cancelled: Callable[[], bool] | None = None,
    tag: str = "",
    check: bool = False,
) -> None:
    """Run `ansible/playbooks/NAME.yml` against localhost with the given variables.

    tag: the value of LAB_PLAY in the environment of all processes, by which `process.kill_tagged` finds them. All of
    them go with a lab that is killed. check: find out whether anything would change, and change nothing.

    Raises `PlaybookFailed` with the failing task's message, and `KeyboardInterrupt` once `cancelled` returns True.
    """
    require_terminals()
    import ansible_runner  # takes a third of a second

    with process.scratch("lab-play-", variable=TAG, value=tag) as private:
        # ansible-runner hands variables over on the command line; a file has no length limit.
        variables_file = private / "variables.json"
        variables_file.write_text(json.dumps(_literal(variables)))
        (private / _CONFIG).write_text(f"[defaults]\ninternal_poll_interval = {_POLL_S}\n")
        runner = ansible_runner.run(
            private_data_dir=str(private),
            playbook=str(data_folder("ansible") / "playbooks" / f"{name}.yml"),
            roles_path=str(data_folder("ansible") / "roles"),
            cmdline=f"--extra-vars {shlex.quote(f'@{variables_file}')}{' --check' if check else ''}",
            inventory="localhost,",
            envvars={**_environment(str(private)), TAG: tag or str(private)},
            quiet=True,
            cancel_callback=cancelled,
        )
        if runner.status == "canceled":
            raise KeyboardInterrupt
        if runner.status != "successful":
            raise _failure(name, runner)


def require_terminals() -> None:
    """Refuse a system without pseudo-terminals, which ansible-runner wants one of."""
    try:
        for descriptor in os.openpty():
            os.close(descriptor)
    except OSError as error:
        raise HostFailed(
            f"no pseudo-terminal can be opened ({error.strerror or error}), and Ansible needs one",
            hint="in a chroot: mkdir -p /dev/pts; mount -t devpts -o ptmxmode=0666 devpts /dev/pts",
        ) from error


def _literal(value: Any) -> Any:
    """Mark every string as text. Ansible would evaluate `{{ ... }}`, which a commit's subject may contain."""
    match value:
        case str():
            return {"__ansible_unsafe": value}
        case Mapping():
            return {name: _literal(item) for name, item in value.items()}
        case list() | tuple():
            return [_literal(item) for item in value]
    return value


def _environment(private: str) -> dict[str, str]:
    # The interpreter's own folder first: in a checkout, ansible-playbook lives beside the lab's Python.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return {
        "PATH": path,
        "LC_ALL": "C.UTF-8",  # Ansible does not start in a locale that is not generated
        "ANSIBLE_CONFIG": str(Path(private) / _CONFIG),
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_LOCAL_TEMP": private,
        "ANSIBLE_REMOTE_TEMP": private,
        "TMPDIR": private,  # modules unpack themselves there
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_RETRY_FILES_ENABLED": "false",
    }


def _failure(name: str, runner: Any) -> PlaybookFailed:
    for event in runner.events:
        if event["event"] in ("runner_on_failed", "runner_on_unreachable"):
            data = event["event_data"]
            result = data.get("res", {})
            detail = result.get("stderr") or result.get("msg") or "no message"
            return PlaybookFailed(name, data.get("task", "?"), str(detail).strip().splitlines()[-1])
    with runner.stdout as stream:
        output = stream.read().strip().splitlines()
    return PlaybookFailed(name, None, output[-1] if output else f"status {runner.status}")
