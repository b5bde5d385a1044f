"""Chromium for all tests of pages."""

from collections.abc import Iterator
from typing import Any

import pytest

from .opened import launched


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with launched() as started:
        yield started
