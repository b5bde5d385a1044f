"""Where the lab's data is: the checkout's top-level rooms, or the copy shipped in the wheel.

Where the lab keeps what it makes, by the XDG rules: never inside a room.

Data (trees, results) is what a user would miss; cache (kernels, images, downloads, build folders) can be
made again.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

ROOMS = ("ansible", "bisect", "images", "kernels", "machines", "reports", "workloads")


def rooms_dir() -> Path:
    """The folder that holds the rooms: `$LAB_HOME`, else the checkout, else the wheel's `_rooms`.

    A checkout is known by its `pyproject.toml`; a folder called `ansible` beside the package proves nothing,
    because site-packages has one too.
    """
    if home := os.environ.get("LAB_HOME"):
        return Path(home)
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout
    return Path(__file__).resolve().parents[1] / "_rooms"


def room(name: str) -> Path:
    """The folder of one room."""
    if name not in ROOMS:
        raise ValueError(f"no room called {name}")
    return rooms_dir() / name


_APP = "kernel-ab-lab"


def data_dir(*parts: str) -> Path:
    """A folder for what cannot be made again; created when missing."""
    return _made(platformdirs.user_data_path(_APP).joinpath(*parts))


def cache_dir(*parts: str) -> Path:
    """A folder for what can be made again; created when missing."""
    return _made(platformdirs.user_cache_path(_APP).joinpath(*parts))


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
