"""Where the lab's data is: the checkout's top-level rooms, or the copy shipped in the wheel."""

from __future__ import annotations

import os
from pathlib import Path

ROOMS = ("ansible", "bisect", "images", "kernels", "machines", "reports", "workloads")


def rooms_dir() -> Path:
    """The folder that holds the rooms: `$LAB_HOME`, else the checkout, else the wheel's `_rooms`.

    A checkout is known by its `pyproject.toml`; a folder called `ansible` beside the package proves nothing,
    because site-packages has one too.
    """
    if home := os.environ.get("LAB_HOME"):
        return Path(home)
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").is_file():
        return checkout
    return Path(__file__).resolve().parent / "_rooms"


def room(name: str) -> Path:
    """The folder of one room."""
    if name not in ROOMS:
        raise ValueError(f"no room called {name}")
    return rooms_dir() / name
