#!/usr/bin/python
"""Files of /sys and /proc that are switches: read them, set them, and say plainly where that cannot be done."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bench_knob
short_description: Set files of /sys and /proc that are switches
description:
  - A file that is not there, or that the kernel refuses to change, is no failure of the task; it is told in the result.
options:
  name: {description: What people call it., type: str, required: true}
  root: {description: The folder that the patterns start from., type: path, default: /}
  patterns: {description: Files below the root., type: list, elements: str}
  value: {description: What all of them shall say. Without it they are only read., type: str}
  values: {description: What each of them shall say instead, by path below the root., type: dict}
"""


def main() -> None:
    """Read or set, as asked."""
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
    root, asked = Path(module.params["root"]), module.params
    wanted: dict[str, str | None] = dict(asked["values"] or {})
    for pattern in asked["patterns"]:
        for path in sorted(root.glob(pattern), key=lambda found: _by_number(str(found))):
            wanted.setdefault(str(path.relative_to(root)), asked["value"])
    files = [_turn(root, path, value, dry=module.check_mode) for path, value in wanted.items()]
    module.exit_json(changed=any(one["changed"] for one in files), name=asked["name"], files=files)


def _by_number(path: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)]


def _turn(root: Path, path: str, value: str | None, *, dry: bool) -> dict[str, Any]:
    """One switch: what it said, what it says now, and why not what it should."""
    try:
        before = _said(root / path)
        if value is None or before == value:
            return {"path": path, "before": before, "after": before, "changed": False}
        if not dry:
            (root / path).write_text(f"{value}\n")
        after = value if dry else _said(root / path)
    except OSError as error:
        return {"path": path, "before": None, "after": None, "changed": False, "refused": error.strerror or str(error)}
    told = {"path": path, "before": before, "after": after, "changed": after != before}
    return told if after == value else {**told, "refused": f"it says {after} still"}


def _said(path: Path) -> str:
    """The word in brackets of a choice, else all of it."""
    text = path.read_text().strip()
    found = re.search(r"\[([^\]]+)\]", text)
    return found[1] if found else text


if __name__ == "__main__":
    main()
