#!/usr/bin/python3
"""Take what is kept of a finished kernel build into a staging folder, and write its `build.json`.

`build.json` is written last: a staging folder without it is not a build.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess

from ansible.module_utils.basic import AnsibleModule

KEPT = {"bzImage": "arch/x86/boot/bzImage", "System.map": "System.map", "config": ".config"}


def sha256(path: str) -> str:
    """Hex digest of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def main() -> None:
    """Module entry: out (build folder), staging, log, record (what build.json says besides the files)."""
    module = AnsibleModule(
        argument_spec={
            "out": {"type": "path", "required": True},
            "staging": {"type": "path", "required": True},
            "log": {"type": "path", "required": True},
            "record": {"type": "dict", "required": True},
        }
    )
    out, staging = module.params["out"], module.params["staging"]
    try:
        os.makedirs(staging, exist_ok=True)
        for name, source in KEPT.items():
            shutil.copyfile(os.path.join(out, source), os.path.join(staging, name))
        stripped = os.path.join(staging, "vmlinux")
        # Without symbols and relocations: what PVH boots, and a tenth of the file.
        subprocess.run(["objcopy", "-S", os.path.join(out, "vmlinux"), stripped], check=True, capture_output=True)
        with open(os.path.join(out, "include/config/kernel.release"), encoding="utf-8") as stream:
            release = stream.read().strip()
        files = {name: sha256(os.path.join(staging, name)) for name in (*KEPT, "vmlinux")}
        shutil.copyfile(module.params["log"], os.path.join(staging, "build.log"))
        record = {**module.params["record"], "release": release, "files": files}
        with open(os.path.join(staging, "build.json"), "w", encoding="utf-8") as stream:
            json.dump(record, stream, indent=1, sort_keys=True)
    except (OSError, subprocess.CalledProcessError) as error:
        module.fail_json(msg=f"cannot collect the build: {error}")
    module.exit_json(changed=True, release=release, files=files)


if __name__ == "__main__":
    main()
