"""Copy the files of a finished kernel build to a staging folder, and write its `build.json`.

`build.json` is written last: a staging folder without it is not a build. This is an action for the same reason as
`logged_command`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

_OPTIONS = {
    "out": {"type": "path", "required": True},
    "images": {"type": "list", "elements": "str", "required": True},
    "boot": {"type": "str", "required": True},
    "staging": {"type": "path", "required": True},
    "log": {"type": "path", "required": True},
    "record": {"type": "dict", "required": True},
}
KEPT = {"System.map": "System.map", "config": ".config"}


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def collect(
    out: Path, staging: Path, log: Path, record: dict[str, object], images: list[str], boot: str
) -> dict[str, object]:
    """Fill the staging folder; returns the finished record."""
    staging.mkdir(parents=True, exist_ok=True)
    kept = KEPT | {name: f"{boot}/{name}" for name in images if name != "vmlinux"}
    for name, source in kept.items():
        shutil.copyfile(out / source, staging / name)
    if "vmlinux" in images:
        # PVH boots it without symbols and relocations, which are most of the file.
        subprocess.run(["objcopy", "-S", out / "vmlinux", staging / "vmlinux"], check=True, capture_output=True)
    shutil.copyfile(log, staging / "build.log")
    finished = {
        **record,
        "release": (out / "include/config/kernel.release").read_text().strip(),
        "files": {name: sha256(staging / name) for name in {*kept, *images}},
    }
    (staging / "build.json").write_text(json.dumps(finished, indent=1, sort_keys=True))
    return finished


class ActionModule(ActionBase):
    """Options: out (build folder), images and their folder boot, staging, log, record (build.json without files)."""

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Collect the build."""
        result = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(_OPTIONS)
        folders = (Path(options[name]) for name in ("out", "staging", "log"))
        try:
            finished = collect(*folders, options["record"], options["images"], options["boot"])
        except (OSError, subprocess.CalledProcessError) as error:
            return {**result, "failed": True, "msg": f"cannot collect the build: {error}"}
        return {**result, "changed": True, "record": finished}
