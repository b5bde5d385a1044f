"""The lab with kernels and a QEMU that stand in, as a command of its own: for runs that are killed.

`python -m tests.fakes.standin ab ...`. Kernels are those of `bisection`; guests are processes, of the program `qemu`,
which the lab starts, waits for and reads as it does with real ones.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lab.cli import main as cli_main
from lab.compare import runs
from lab.guests import exact

from . import qemu
from .bisection import Guests, replacements

_REAL = {(exact, "find_qemu"), (runs, "measure")}


def main() -> None:
    """The lab, with stand-ins."""
    folder = Path(os.environ["XDG_CACHE_HOME"]) / "fake"
    for (where, name), what in replacements(folder, Guests()).items():
        if (where, name) not in _REAL:
            setattr(where, name, what)
    program = folder / "qemu-system-x86_64"
    if not program.exists():
        qemu.write(program)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    setattr(exact, "sandbox", lambda program: ())  # noqa: B010 - mypy takes a plain one for a mistake
    sys.argv[0] = "lab"
    cli_main.main()


if __name__ == "__main__":
    main()
