"""A kernel tree small enough to make in a moment, for several tests."""

import hashlib
import os
import subprocess
from pathlib import Path

MMAP_C = "int place(void)\n{\n\tint addr = 0;\n\n\taddr += 1;\n\n\treturn addr;\n}\n"
UPSTREAM = "efa7df3e3bb5da8e6abbe37727417f32a37fba47"
WHO = "A <a@b> 1700000000 +0000"
_WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@b"), ("DATE", "1700000000 +0000"))
}


def git(where: Path, *words: str) -> str:
    """Run git as a user would, without the tester's own settings."""
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **_WHO}
    done = subprocess.run(["git", *words], cwd=where, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


SCRIPT = """\
#define TEXT_MAIN .text
#define TEXT_TEXT							\\
		ALIGN_FUNCTION();					\\
		*(.text.hot .text.hot.*)				\\
		*(TEXT_MAIN .text.fixup)				\\
		*(.ref.text)

#define DATA_DATA							\\
	*(DATA_MAIN)							\\
	*(.ref.data)
"""


def write_kernel(top: Path) -> None:
    """The files by which a kernel tree is known, and one to change."""
    for folder in ("mm", "include/asm-generic"):
        (top / folder).mkdir(parents=True)
    (top / "include" / "asm-generic" / "vmlinux.lds.h").write_text(SCRIPT)
    for name in ("Kbuild", "Kconfig", "MAINTAINERS", "Makefile"):
        (top / name).write_text(f"# {name}\n")
    (top / ".gitignore").write_text("*.o\n")
    (top / "mm" / "mmap.c").write_text(MMAP_C)


def make_kernel(top: Path) -> Path:
    """A repository: root, a backport of UPSTREAM, a commit after it."""
    write_kernel(top)
    git(top, "init", "-q", "-b", "main")
    commit_all(top, "root")
    git(top, "tag", "-a", "-m", "v1", "v1.0")
    change(top, 2)
    commit_all(top, f"mm: align\n\ncommit {UPSTREAM} upstream.\n\nSigned-off-by: A <a@b>")
    change(top, 3)
    commit_all(top, "mm: later")
    return top


def change(top: Path, number: int) -> None:
    (top / "mm" / "mmap.c").write_text(MMAP_C.replace("+= 1", f"+= {number}"))


def commit_all(top: Path, message: str) -> str:
    git(top, "add", "-A")
    git(top, "commit", "-q", "--allow-empty", "-m", message)
    return git(top, "rev-parse", "HEAD")


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file below a folder with its content's hash and its time: equal means untouched."""
    return {
        str(path.relative_to(folder)): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
