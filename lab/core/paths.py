"""The lab's folders: the data folders that it comes with, and the folders of its own files, by the XDG rules.

A data folder is a top-level folder of the checkout, or its copy in the wheel; nothing is written there. Data (trees,
results) would be missed; cache (kernels, images, downloads, build folders) can be made again.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from lab.core.errors import DiskFull, HostFailed

DATA_FOLDERS = ("ansible", "atlas", "bisect", "images", "kernels", "machines", "reports", "workloads")

_APP = "kernel-ab-lab"

_FULL = (errno.ENOSPC, errno.EDQUOT)
_HINT = "free some, e.g. with `lab gc`; then repeat"


def top_dir() -> Path:
    """The folder of the data folders: `$LAB_HOME`, else the checkout, else the wheel's `_data`.

    A checkout has a `pyproject.toml`. A folder called `ansible` beside the package proves nothing: site-packages has
    one too.
    """
    if home := os.environ.get("LAB_HOME"):
        return Path(home)
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout
    return Path(__file__).resolve().parents[1] / "_data"


def data_folder(name: str) -> Path:
    if name not in DATA_FOLDERS:
        raise ValueError(f"no data folder called {name}")
    return top_dir() / name


def expanded(text: str) -> Path:
    """A path as a user types it: `~` is their home. The `~name` of an unknown user is a name like any other."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 (Path's own raises an error for it)


def data_dir(*parts: str) -> Path:
    """A folder for data that cannot be made again; created when missing."""
    return _made(platformdirs.user_data_path(_APP).joinpath(*parts))


def cache_dir(*parts: str) -> Path:
    """A folder for data that can be made again; created when missing."""
    return _made(platformdirs.user_cache_path(_APP).joinpath(*parts))


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's error for a full disk into `DiskFull`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(f"no disk space left to write {path}", hint=_HINT) from error
        raise


def failure(error: OSError, path: Path | str) -> HostFailed:
    """The operating system's error in the lab's words. path: the file that it is about, unless the error names it."""
    # In a copy, the second name is the target.
    about = error.filename2 or error.filename or path
    if error.errno in _FULL:
        return DiskFull(f"no disk space left to write {about}", hint=_HINT)
    return HostFailed(f"{about}: {error.strerror or error}")


def entries(folder: Path, pattern: str = "*") -> list[Path]:
    """The paths in a folder that match, sorted; an `OSError` if it cannot be read, which `glob` takes for empty."""
    os.scandir(folder).close()
    return sorted(folder.glob(pattern))


def require_space(folder: Path, least: int, what: str) -> None:
    """Raise `DiskFull` if fewer bytes are free."""
    free = shutil.disk_usage(folder).free
    if free < least:
        raise DiskFull(f"{folder}: {free >> 20} MiB free, {what} needs {least >> 20} MiB", hint=_HINT)
