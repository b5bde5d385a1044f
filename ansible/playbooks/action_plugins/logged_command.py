"""Run a long command with its output going to a log file as it comes, so that a reader can follow it.

`ansible.builtin.command` holds the output back until the end, which is no use for a progress bar. An action and
not a module, since all of the lab's plays are for the host itself: no zip is packed and no second Python started,
which takes longer than what most of the commands do.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

_OPTIONS = {
    "argv": {"type": "list", "elements": "str", "required": True},
    "chdir": {"type": "path", "required": True},
    "environment": {"type": "dict", "default": {}},
    "log": {"type": "path", "required": True},
}


class ActionModule(ActionBase):
    """Options: argv, chdir, environment (of the command, on top of Ansible's), log (appended to)."""

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the command; a status other than 0 fails the task with the last line of output."""
        result = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(_OPTIONS)
        words = [str(word) for word in options["argv"]]
        environment = {**os.environ, **{name: str(value) for name, value in options["environment"].items()}}
        try:
            with Path(options["log"]).open("ab+") as log:
                begin = log.tell()
                status = subprocess.call(
                    words,
                    cwd=options["chdir"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
                log.seek(begin)
                said = log.read().decode(errors="replace").split("\n") if status != 0 else []
        except OSError as error:
            return {**result, "failed": True, "msg": f"cannot run {words[0]}: {error}"}
        if status != 0:
            last = next((line.strip() for line in reversed(said) if line.strip()), "no message")
            return {**result, "failed": True, "msg": f"{words[0]} exited with status {status}: {last}", "rc": status}
        return {**result, "changed": True, "rc": 0}
