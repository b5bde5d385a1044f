"""Names of kernel parameters, looked up in a kernel's image.

The code that reads a parameter has its name there as a string, with `=` or without (`__setup()`, `early_param()`, and
`module_param()` with the module's name before a dot). The kernel takes `-` for `_`, and says nothing about a name that
it does not know if there is a dot in it (`unknown_bootoption()` in init/main.c).
"""

from __future__ import annotations

import re
from pathlib import Path

from lab.core.errors import suggestion
from lab.kernels.files import extract_vmlinux

_UNPACKER = ("kaslr", "no5lvl", "nokaslr")
"""Parameters that the code before vmlinux reads, which unpacks it."""


def is_known(vmlinux: Path, name: str) -> bool:
    """True if something in a kernel has the name of a parameter. A string may be the end of a longer one."""
    words = map(re.escape, re.split(rb"[-_]", name.encode()))
    return name in _UNPACKER or re.search(b"[-_]".join(words) + rb"=?\0", extract_vmlinux(vmlinux)) is not None


def similar(vmlinux: Path, name: str) -> str | None:
    """A question that names parameters of the same module with close names; None if nothing comes close."""
    module, dot, _ = name.partition(".")
    if not dot:
        return None
    found = re.findall(rb"\0(" + re.escape(f"{module}.".encode()) + rb"\w+)=?\0", extract_vmlinux(vmlinux))
    return suggestion(name, sorted({one.decode() for one in found}))
