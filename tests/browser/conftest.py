"""Chromium for all tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The installed Chromium, without a window."""
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get("LAB_REQUIRE_BROWSER") == "1":
            pytest.fail("chromium is not installed")
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    # Chromium's own sandbox does not work for root, nor in most containers.
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()
