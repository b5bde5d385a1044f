"""Records: the same value gives the same bytes, and a reader never sees half a file."""

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.core import records
from lab.core.errors import HostFailed
from lab.core.records import Record


class Thing(Record, frozen=True, kw_only=True):
    name: str
    sizes: dict[str, int]


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    thing = Thing(name="a b\n\u00e9", sizes={"z": 1, "a": 2})
    records.save(tmp_path / "thing.json", thing)
    assert records.load(tmp_path / "thing.json", Thing) == thing
    assert [path.name for path in tmp_path.iterdir()] == ["thing.json"]
    (tmp_path / "thing.json").write_bytes(records.encode(thing))
    assert records.load(tmp_path / "thing.json", Thing) == thing, "without a seal"


def test_equal_values_give_equal_bytes_and_digests() -> None:
    one, other = Thing(name="x", sizes={"z": 1, "a": 2}), Thing(name="x", sizes={"a": 2, "z": 1})
    assert records.encode(one) == records.encode(other)
    assert records.digest(one) == records.digest(other) != records.digest(Thing(name="y", sizes=one.sizes))
    assert records.encode(one).endswith(b"}\n")


@pytest.mark.parametrize("content", [
    b"",
    b'{"name": 1, "sizes": {}}',
    b'{"name": "x"}',
    b'{"name": "x", "sizes": {}, "later": 1}',
    b'{"name": 1' + b"0" * 5000 + b"}",
    b"\xff",
    b"[" * 5000,
    b"null",
    b"[1, 2]",
])  # fmt: skip
def test_a_file_that_is_no_record_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing.json"
    path.write_bytes(content)
    with pytest.raises(HostFailed, match=r"thing\.json is not a readable Thing record"):
        records.load(path, Thing)


@pytest.mark.parametrize("value", [Thing(name="a", sizes={"z": 1}), ["a", "b"], "word", 17])
def test_any_bit_that_turns_is_noticed(tmp_path: Path, value: object) -> None:
    path = tmp_path / "thing.json"
    records.save(path, value)
    content = path.read_bytes()
    assert records.load(path, type(value)) == value
    for at in range(8 * len(content)):
        turned = bytearray(content)
        turned[at // 8] ^= 1 << at % 8
        path.write_bytes(turned)
        with pytest.raises(HostFailed, match=r"thing\.json is not a readable"):
            records.load(path, type(value))


@pytest.mark.parametrize(
    ("content", "is_sealed", "is_changed"), [(b"one", True, False), (b"onf", False, True), (None, False, False)]
)
def test_a_file_that_changed_since_it_was_sealed_is_refused(
    tmp_path: Path, content: bytes | None, is_sealed: bool, is_changed: bool
) -> None:
    """content: None for a file without a seal."""
    path = tmp_path / "file"
    path.write_bytes(b"one")
    records.seal(path)
    if content is None:
        records.unseal(path)
    else:
        path.write_bytes(content)
    assert (records.is_sealed(path), records.is_changed(path)) == (is_sealed, is_changed)
    if is_changed:
        with pytest.raises(HostFailed, match="/file changed since it was written"):
            records.require_unchanged(path)
    else:
        records.require_unchanged(path)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "thing.json"
    records.save(path, 1)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostFailed, match="no disk space left to write") as caught:
        records.save(path, 2)
    assert "lab gc" in str(caught.value.hint)
    assert records.load(path, int) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    records.save(path, 1)
    program = (
        "import os, pathlib, signal, sys; from lab.core import records\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "records.write_atomic(pathlib.Path(sys.argv[1]), b'half of it')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert records.load(path, int) == 1
    (left,) = set(tmp_path.iterdir()) - {path}
    assert records.LEFTOVER.fullmatch(left.name)
    assert list(tmp_path.glob("*.json")) == list(tmp_path.glob("[!.]*")) == [path]


def test_the_mode_of_a_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        records.save(tmp_path / "record.json", 1)
    finally:
        os.umask(before)
    assert (tmp_path / "record.json").stat().st_mode & 0o777 == 0o640


def test_a_file_that_several_write_at_once_is_one_of_theirs(tmp_path: Path) -> None:
    path, contents = tmp_path / "record.json", [bytes([number]) * 9 for number in range(8)]

    def write(content: bytes) -> None:
        for _ in range(20):
            records.write_atomic(path, content)
            assert path.read_bytes() in contents

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, contents))
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_too_large_or_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "thing.json"
    path.touch()
    os.truncate(path, records.SIZE_MAX + 1)
    with pytest.raises(HostFailed, match=r"thing\.json is not a readable Thing record: it is larger than 64 MiB"):
        records.load(path, Thing)
    with pytest.raises(HostFailed, match=r"gone\.json"):
        records.load(tmp_path / "gone.json", Thing)


def test_threads_may_meet_a_kind_of_record_at_the_same_time() -> None:
    """Without `prepared`, msgspec 0.22 ends such a process by SIGSEGV after a few dozen kinds."""
    program = """if True:
        import sys
        from concurrent.futures import ThreadPoolExecutor
        from threading import Barrier
        import msgspec
        from lab.core import records

        sys.setswitchinterval(1e-6)
        met = Barrier(2)

        def convert(kind):
            met.wait()
            return records.convert({"inner": {"number": 1}, "others": {}}, kind)

        with ThreadPoolExecutor(2) as pool:
            for _ in range(500):
                inner = msgspec.defstruct("Inner", [("number", int), ("name", str, "")])
                kind = msgspec.defstruct("Outer", [("inner", inner), ("others", dict[str, inner])])
                assert len(list(pool.map(convert, [kind, kind]))) == 2
    """
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
