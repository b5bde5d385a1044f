"""Compilers that say they are something else."""

from pathlib import Path

SCRIPT = """\
#!/bin/sh
case "$1" in
--version) echo "{version}"; exit ;;
-dM) printf '{macros}'; exit ;;
esac
exec gcc "$@"
"""


def write_compiler(folder: Path, name: str, version: str, *, macros: str = "#define __GNUC__ 12\\n") -> Path:
    """A program that compiles as gcc does and identifies itself as told."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(SCRIPT.format(version=version, macros=macros))
    path.chmod(0o755)
    return path
