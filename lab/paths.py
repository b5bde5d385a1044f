"""Where the lab keeps what it makes, by the XDG rules: never inside a room.

Data (trees, results) is what a user would miss; cache (kernels, images, downloads, build folders) can be
made again.
"""

from __future__ import annotations

from pathlib import Path

import platformdirs

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
