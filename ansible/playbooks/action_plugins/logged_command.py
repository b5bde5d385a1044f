"""Run a long command and write its output to a log file at once, so that a reader can follow it.

`ansible.builtin.command` holds the output back until the end, too late for a progress bar. This is an action and not a
module because all plays of the lab run on the host itself: packing a module and starting a second Python would take
longer than most of the commands.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

_OPTIONS = {
    "argv": {"type": "list", "elements": "str", "required": True},
    "chdir": {"type": "path", "required": True},
    "environment": {"type": "dict", "default": {}},
    "log": {"type": "path", "required": True},
    "fatal": {"type": "str", "default": ""},
}


class ActionModule(ActionBase):
    """Options: argv, chdir, environment (of the command, on top of Ansible's), log (appended to), fatal.

    fatal: a pattern. A command whose output lacks it may exit with any status.
    """

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the command; a status other than 0 fails the task with the last line of output."""
        result = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(_OPTIONS)
        argv = [str(argument) for argument in options["argv"]]
        environment = {**os.environ, **{name: str(value) for name, value in options["environment"].items()}}
        try:
            with Path(options["log"]).open("ab+") as log:
                begin = log.tell()
                status = subprocess.call(
                    argv,
                    cwd=options["chdir"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
                log.seek(begin)
                output = log.read().decode(errors="replace") if status != 0 else ""
        except OSError as error:
            return {**result, "failed": True, "msg": f"cannot run {argv[0]}: {error}"}
        if status != 0 and re.search(options["fatal"], output):
            last = next((line.strip() for line in reversed(output.split("\n")) if line.strip()), "no message")
            return {**result, "failed": True, "msg": f"{argv[0]} exited with status {status}: {last}", "rc": status}
        return {**result, "changed": True, "failed": False, "rc": status}
