"""Programs that all tests of a process share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.core.paths import data_folder

from .programs import build


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compile the program of a workload, if it is the first time."""
    made: dict[str, Path] = {}

    def program(name: str) -> Path:
        if name not in made:
            made[name] = build(data_folder("workloads") / name, tmp_path_factory.mktemp("build")) / name
        return made[name]

    return program


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest, compiled: Callable[[str], Path]) -> Path:
    return compiled(request.module.WORKLOAD)
