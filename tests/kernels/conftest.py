"""What several tests of kernels begin with."""

from pathlib import Path

import pytest

from lab.kernels.build import TreeSource
from lab.kernels.kernel import resolve

from ..fakes.kernel import make_kernel


@pytest.fixture
def linux(tmp_path: Path) -> Path:
    return make_kernel(tmp_path / "linux")


def tree_of(text: str, tree: Path | None = None) -> TreeSource:
    source = resolve(text, str(tree) if tree else None).source
    assert isinstance(source, TreeSource)
    return source
