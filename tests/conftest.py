"""What holds for all tests of a run, in however many processes."""

import os
import resource
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cli import main
from lab.guests import exact

from .fakes import bisector as bisectors
from .fakes import nights as fakenights
from .fakes.bisector import Bisector
from .fakes.build import own_folders
from .fakes.command import Ended, Lab
from .fakes.nights import Nights

# pytest-xdist's processes inherit it from the first one, and so share the home that guest tests work in; so do the
# parts of `make test`, whose program removes the home.
_IS_FIRST = "LAB_TEST_RUN" not in os.environ
os.environ.setdefault("LAB_TEST_RUN", uuid.uuid4().hex)
# Readline sets them in xdist's processes. The lab would make its output as narrow as COLUMNS says.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

_BEGAN = pytest.StashKey[float]()


def run_home() -> Path:
    """The home of this run's guest tests, which is removed at the end."""
    return Path(f"/var/tmp/lab-test-{os.environ['LAB_TEST_RUN']}")  # noqa: S108 - nobody can guess it


def pytest_sessionfinish() -> None:
    """The first process ends last."""
    if _IS_FIRST:
        shutil.rmtree(run_home(), ignore_errors=True)


# ---- what `tests/suite.py` asks for by variables


def _cpu_s() -> float:
    """The processor seconds of this process and of its children that ended."""
    spent = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in spent)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note when a test begins, by its processor time."""
    item.stash[_BEGAN] = _cpu_s()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Leave the tests that would begin when the time of the run is over."""
    deadline = os.environ.get("LAB_TEST_DEADLINE")
    if deadline and time.monotonic() > float(deadline):
        pytest.skip("left: the time of this run is over")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail a test that took too much processor time: the clock would say how busy the machine is."""
    yield
    took_s, most_s = _cpu_s() - item.stash[_BEGAN], os.environ.get("LAB_TEST_ITEM_S")
    item.user_properties.append(("cpu_s", round(took_s, 2)))
    if most_s and took_s > float(most_s):
        pytest.fail(f"{item.nodeid} took {took_s:.0f} s of processor time, {most_s} are allowed", pytrace=False)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that a file says have passed."""
    if path := os.environ.get("LAB_TEST_PASSED"):
        passed = set(Path(path).read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]


_FAILED, _DEAREST = set[str](), dict[str, float]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record each test that passed, as soon as it has."""
    if not report.passed:
        _FAILED.add(report.nodeid)
    if report.when == "teardown":
        _DEAREST[report.nodeid] = float(dict(report.user_properties).get("cpu_s", 0.0))
        record = os.environ.get("LAB_TEST_RECORD")
        if record and report.nodeid not in _FAILED and "PYTEST_XDIST_WORKER" not in os.environ:
            with Path(record).open("a") as stream:
                stream.write(f"{report.nodeid}\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that took most processor time."""
    for name, took_s in sorted(_DEAREST.items(), key=lambda one: -one[1])[:8]:
        if took_s > 5:
            terminalreporter.write_line(f"{took_s:7.1f} s CPU  {name}")


# ---- fixtures


@pytest.fixture(autouse=True)
def _unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that stand for QEMU would run once more to say that they have no sandbox."""
    monkeypatch.setattr(exact, "sandbox", lambda qemu: ())


@pytest.fixture
def lab(capsys: pytest.CaptureFixture[str]) -> Lab:
    def run(*words: str, status: int = 0) -> Ended:
        capsys.readouterr()
        ended = Ended(main.run([*words]), *capsys.readouterr())
        assert ended.status == status, ended.err
        return ended

    return run


@pytest.fixture
def bisector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bisector:
    """`lab bisect` in a test's own folders."""
    return bisectors.make(tmp_path, monkeypatch, capsys)


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Nights:
    """Nights of a plan in a test's own folders."""
    return fakenights.make(tmp_path, monkeypatch, capsys)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell without job control has what it starts in the background ignore interrupts: not in this test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep everything that the lab makes below the folder of the test."""
    own_folders(monkeypatch, tmp_path)
