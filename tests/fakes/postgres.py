"""A real PostgreSQL server for a test, in a folder of its own, reached by a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def programs() -> Path | None:
    """Where the newest installed server's programs are."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    if found:
        return found[-1].parent
    other = shutil.which("initdb")
    return Path(other).resolve().parent if other else None


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Start a server, give the URL of a database in it, and stop it."""
    where = programs()
    assert where is not None
    folder.mkdir(mode=0o700)
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        as_user = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    data = folder / "data"

    def run(*words: object) -> None:
        argv = [*as_user, *map(str, words)]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    run(where / "initdb", "--pgdata", data, "--username", "lab", "--auth", "trust", "--no-sync", "--encoding", "UTF8")
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    control = (where / "pg_ctl", "--pgdata", data, "--log", folder / "log")
    run(*control, "--wait", "--options", options, "start")
    try:
        yield f"postgresql://lab@/postgres?host={folder}"
    finally:
        run(*control, "--wait", "--mode", "immediate", "stop")
