#!/usr/bin/python
"""Read and set switches: files of /sys and /proc with one value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bench_knob
short_description: Set files of /sys and /proc that are switches
description:
  - A file that is missing, or that the kernel refuses to change, does not fail the task; the result names it.
options:
  name: {description: The usual name of the switch., type: str, required: true}
  root: {description: The folder that the patterns start from., type: path, default: /}
  patterns: {description: Files below the root., type: list, elements: str}
  value: {description: The value for all of them. Without it they are only read., type: str}
  values: {description: Values by path below the root., type: dict}
"""


def main() -> None:
    """Read or set the files of a switch."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "root": {"type": "path", "default": "/"},
            "patterns": {"type": "list", "elements": "str", "default": []},
            "value": {"type": "str"},
            "values": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    root, options = Path(module.params["root"]), module.params
    values: dict[str, str | None] = dict(options["values"] or {})
    for pattern in options["patterns"]:
        for path in sorted(root.glob(pattern), key=lambda path: _by_number(str(path))):
            values.setdefault(str(path.relative_to(root)), options["value"])
    files = [_set(root, path, value, dry=module.check_mode) for path, value in values.items()]
    module.exit_json(changed=any(file["changed"] for file in files), name=options["name"], files=files)


def _by_number(path: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)]


def _set(root: Path, path: str, value: str | None, *, dry: bool) -> dict[str, Any]:
    """Set a file; returns its value before and after, and why it was not set if it was not."""
    try:
        before = _read(root / path)
        if value is None or before == value:
            return {"path": path, "before": before, "after": before, "changed": False}
        if not dry:
            (root / path).write_text(f"{value}\n")
        after = value if dry else _read(root / path)
    except OSError as error:
        return {"path": path, "before": None, "after": None, "changed": False, "refused": error.strerror or str(error)}
    result = {"path": path, "before": before, "after": after, "changed": after != before}
    return result if after == value else {**result, "refused": f"it says {after} still"}


def _read(path: Path) -> str:
    """The value of a file; of a list of choices, the one in brackets."""
    text = path.read_text().strip()
    choice = re.search(r"\[([^\]]+)\]", text)
    return choice[1] if choice else text


if __name__ == "__main__":
    main()
