"""The time of each test, and one table of all inputs and findings at the end."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.core import paths

from ..fakes import store as fakestore
from ..fakes.store import Store

TOTAL_S = float(os.environ.get("LAB_FUZZ_S", "10"))
"""The seconds for all tests that go on until their time is over: `make fuzz` gives them an hour."""

_INPUTS, _FINDINGS = "fuzz_inputs", "fuzz_findings"


class Tally:
    """The inputs of a test, counted by the reader that gets them.

    found: readers, and what went wrong there; the test fails at its end.
    """

    def __init__(self, seconds: float) -> None:
        self.inputs: Counter[str] = Counter()
        self.found: list[tuple[str, str]] = []
        self._seconds = seconds

    def goes_on(self) -> Iterator[int]:
        """Count rounds from 0 until the time of the test is over."""
        end, number = time.monotonic() + self._seconds, 0
        while number == 0 or time.monotonic() < end:
            yield number
            number += 1


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """The count of a test, which ends when its share of the time is over."""
    tests = sum("tally" in getattr(item, "fixturenames", ()) for item in request.session.items)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    made = Tally(TOTAL_S * workers / tests)
    yield made
    properties = request.node.user_properties
    properties.append((_INPUTS, dict(made.inputs)))
    properties.append((_FINDINGS, dict(Counter(reader for reader, _ in made.found))))
    if made.found:
        said = "\n\n".join(words for _, words in made.found[:5])
        pytest.fail(f"{len(made.found)} findings, the first of them:\n{said}", pytrace=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield fakestore.make(tmp_path_factory.mktemp("store"), monkeypatch)


@pytest.fixture(scope="module")
def copies(store: Store) -> dict[Path, Path]:
    folders = {folder: folder.with_name(f"{folder.name}.kept") for folder in (paths.data_dir(), paths.cache_dir())}
    for folder, copy in folders.items():
        shutil.copytree(folder, copy, symlinks=True)
    return folders


@pytest.fixture
def kept(copies: dict[Path, Path]) -> Iterator[None]:
    """Restores the store after the test."""
    yield
    for folder, copy in copies.items():
        shutil.rmtree(folder)
        shutil.copytree(copy, folder, symlinks=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many inputs each reader got, and how many of them broke it."""
    inputs: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        properties = dict(getattr(report, "user_properties", ()))
        if getattr(report, "when", "") != "teardown" or _INPUTS not in properties:
            continue
        inputs.update(properties[_INPUTS])
        findings.update(properties[_FINDINGS])
    if not inputs:
        return
    width = max(map(len, inputs))
    terminalreporter.section("inputs and findings")
    for reader in sorted(inputs):
        terminalreporter.write_line(f"{reader:{width}}  {inputs[reader]:>9,}  {findings[reader]:>4}")
    terminalreporter.write_line(f"{'all':{width}}  {inputs.total():>9,}  {findings.total():>4}")
