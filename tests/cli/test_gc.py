"""`lab gc`: by age, then by size; never what a report needs, nor what somebody works with."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from lab.cli import gc
from lab.cli.gc import Item
from lab.compare import result_folders
from lab.core import paths
from lab.kernels import store

from ..fakes import result as fakeresult
from ..fakes.build import stored
from ..fakes.command import Lab

pytestmark = pytest.mark.usefixtures("own_home")

DAY = 86400.0
NOW = 100 * DAY


def _item(name: str, days: float, size: int = 10) -> Item:
    return Item(path=Path(name), kind="kernel", size=size, used=NOW - days * DAY)


@pytest.mark.parametrize(("at_most", "wanted"), [(None, ["old"]), (20, ["old", "week"]), (0, ["old", "week", "days"])])
def test_what_goes(at_most: int | None, wanted: list[str]) -> None:
    found = [_item("days", 3), _item("old", 40), _item("now", 0.5), _item("week", 7)]
    chosen = gc.choose(found, older_than_s=30 * DAY, at_most=at_most, now=NOW)
    assert [item.path.name for item in chosen] == wanted
    assert gc.choose([_item("ahead", -5)], older_than_s=0, at_most=0, now=NOW) == [], "it comes from the future"


def _old(path: Path, days: float = 40) -> Path:
    os.utime(path, (time.time() - days * DAY,) * 2)
    return path


def _kernel(name: str, days: float) -> Path:
    return _old(store.folder_of(stored({"bzImage": b"x" * 3000}, tree_id=name).key) / "build.json", days).parent


def _result(name: str, days: float, *, finished: bool = True) -> Path:
    folder = result_folders.results_dir() / name
    fakeresult.store(folder, fakeresult.result(name=name))
    (folder / "guests" / "one").mkdir(parents=True)
    (folder / "guests" / "one" / "console").write_text("said")
    _old(folder / "result.json", days)
    if not finished:
        (folder / "result.json").unlink()
    return folder


def test_reports_are_the_same_afterwards(lab: Lab) -> None:
    old, new = _kernel("old", 40), _kernel("new", 0)
    finished, stopped = _result("a", 40), _result("b", 40, finished=False)
    before = lab("report", "a", "--format", "html").out
    assert {row["kind"] for row in lab("gc", "--dry-run", "--json").document["removed"]} == {"kernel", "consoles"}
    assert old.is_dir() and (finished / "guests").is_dir()
    said = lab("gc").out
    assert re.search(r"^freed \d+ MiB \((kernel|consoles) \d+, ", said, re.MULTILINE), said
    assert re.search(r"^kept \d+ MiB \(.*kernel \d+", said, re.MULTILINE), said
    assert not old.exists() and new.is_dir()
    assert not (finished / "guests").exists() and (stopped / "guests").is_dir()
    assert lab("report", "a", "--format", "html").out == before


def test_when_there_is_no_more_room(lab: Lab) -> None:
    _kernel("new", 0)
    assert "used within a day" in lab("gc", "--size", "1K").err
    lab("gc", "--size", "much", status=2)


def _image(name: str, days: float) -> Path:
    folder = paths.cache_dir("images", name)
    (folder / "root").mkdir()
    (folder / "root" / "init").write_text("init")
    (folder / "root" / "link").symlink_to("/etc/passwd")
    (folder / "image.json").write_text("{}")
    return _old(folder / "image.json", days).parent


def _build_folders(tree: str, **days: float) -> Path:
    """A tree's source and a build folder for each configuration, by the days since its last build."""
    top = paths.cache_dir("work", tree)
    for name in ("src", *days):
        (top / name).mkdir()
        (top / name / "Makefile").write_text("all:")
    for name, since in days.items():
        (top / name / "lab.config").write_text("")
        _old(top / name / "lab.config", since)
        _old(top / name, since)
    _old(top / "src")
    (top / "src.lock").touch()
    return top


def _removed(lab: Lab, *words: str) -> set[tuple[str, str]]:
    """What `lab gc` removed: kinds, and names with the folder that they are in."""
    rows = lab("gc", *words, "--json").document["removed"]
    return {(row["kind"], "/".join(Path(row["path"]).parts[-2:])) for row in rows}


def test_images_build_folders_and_blobs_go_by_age(lab: Lab) -> None:
    _image("old", 40)
    _image("new", 1)
    _build_folders("left", one=40, other=50)
    _build_folders("used", one=40, other=1)
    blob = paths.cache_dir("blobs") / "b1"
    blob.write_bytes(b"x" * 100)
    _old(blob)
    (blob.parent / "b2").write_bytes(b"y")
    symbols = paths.cache_dir("symbols") / "s1.json"
    symbols.write_text("{}")
    _old(symbols)
    (blob.parent / "b1.lock").touch()
    wanted = {
        ("image", "images/old"), ("build folder", "left/one"), ("build folder", "left/other"),
        ("build folder", "left/src"), ("build folder", "used/one"), ("blob", "blobs/b1"),
        ("symbols", "symbols/s1.json"),
    }  # fmt: skip
    assert _removed(lab, "--dry-run") == wanted
    assert blob.exists() and paths.cache_dir("images", "old", "root").joinpath("init").exists()
    assert _removed(lab) == wanted
    assert not blob.exists() and not (paths.cache_dir("images") / "old").exists()
    assert {path.name for path in paths.cache_dir("work", "used").iterdir()} == {"src", "src.lock", "other"}
    assert _removed(lab) == set()


def test_what_others_work_with_stays(lab: Lab) -> None:
    kernel, image, result = _kernel("old", 40), _image("old", 40), _result("a", 40)
    _build_folders("tree", one=40)
    blob = paths.cache_dir("blobs") / "b"
    blob.write_bytes(b"x")
    _old(blob)
    held = (kernel / "build.json", image / "image.json")
    locked = (paths.cache_dir("work", "tree") / "src.lock", f"{blob}.lock", result / ".lock")
    with _somebody_holds(*held), ExitStack() as locks:
        for path in locked:
            locks.enter_context(FileLock(path))
        for path in held:
            _old(path)
        assert _removed(lab, "--dry-run") == _removed(lab) == set()
        lab("kernel", "gc", "--older-than", "1d")
        assert kernel.is_dir() and (result / "guests").is_dir()
    assert len(_removed(lab)) == 6


@contextmanager
def _somebody_holds(*files: Path) -> Iterator[None]:
    """Another process that works with something, and is killed."""
    code = "import sys; from pathlib import Path; from lab.core import locks\n"
    code += "print([locks.hold(Path(name)) for name in sys.argv[1:]], flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, *map(str, files)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{[True] * len(files)}\n"
        yield
        process.kill()


def test_a_removal_that_was_interrupted_is_finished(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    kernel = _kernel("old", 40)

    def interrupted(path: Path) -> None:
        if path.exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(gc, "_remove", interrupted)
        lab("gc", status=130)
    assert not kernel.exists() and list(store.builds()) == []
    assert _removed(lab) == {("leftover", f"kernels/.{kernel.name}.old")}
    assert list(store.kernels_dir().iterdir()) == []
    for staging in (store.kernels_dir() / f".staging-{process}-x" for process in (os.getpid(), 1 << 23)):
        staging.mkdir()
    assert _removed(lab) == {("leftover", f"kernels/.staging-{1 << 23}-x")}, "no process can have that number"
    partial = paths.cache_dir("images") / ".new.partial"
    partial.mkdir()
    with FileLock(paths.cache_dir("images") / ".new.lock"):
        assert _removed(lab) == set()
    assert _removed(lab) == {("leftover", "images/.new.partial")}
    half = paths.cache_dir("blobs") / ".b1.1a2b3c4d"
    half.write_bytes(b"x" * 100)
    with FileLock(paths.cache_dir("blobs") / "b1.lock"):
        assert _removed(lab) == set()
    assert _removed(lab) == {("leftover", "blobs/.b1.1a2b3c4d")}


def test_a_record_that_was_never_finished_goes_after_a_day(lab: Lab) -> None:
    result = _result("kept", 1)
    old, new, other = (result / "runs" / f".one.json.{name}.new" for name in ("0123abcd", "4567cdef", "other"))
    for path in (old, new, other):
        path.write_bytes(b"half of it")
    for path in (old, other):
        _old(path, 1.1)
    assert {path.rpartition("/")[2] for _, path in _removed(lab)} == {old.name}
    assert not old.exists() and new.exists() and other.exists()
