#!/usr/bin/python3
"""Run a long command with its output going to a log file as it comes, so that a reader can follow it.

`ansible.builtin.command` holds the output back until the end, which is no use for a progress bar.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Module entry: argv, chdir, environment, log (appended to)."""
    module = AnsibleModule(
        argument_spec={
            "argv": {"type": "list", "elements": "str", "required": True},
            "chdir": {"type": "path", "required": True},
            "environment": {"type": "dict", "default": {}},
            "log": {"type": "path", "required": True},
        }
    )
    environment = {**os.environ, **{key: str(value) for key, value in module.params["environment"].items()}}
    try:
        with Path(module.params["log"]).open("ab") as log:
            status = subprocess.call(
                module.params["argv"],
                cwd=module.params["chdir"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
    except OSError as error:
        module.fail_json(msg=f"cannot run {module.params['argv'][0]}: {error}")
    if status != 0:
        module.fail_json(msg=f"{module.params['argv'][0]} exited with status {status}", rc=status)
    module.exit_json(changed=True, rc=0)


if __name__ == "__main__":
    main()
