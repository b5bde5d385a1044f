"""The store: what is in it is whole, what is not whole is not in it."""

import os
import time
from pathlib import Path

import pytest

from lab.core import records
from lab.kernels import store

from ..fakes.build import staged

pytestmark = pytest.mark.usefixtures("own_home")


def _staged(subject: str = "one", **inputs: object) -> tuple[Path, str]:
    folder, build = staged({"bzImage": b"kernel of " + subject.encode()}, subject=subject, **inputs)
    return folder, build.key


@pytest.mark.parametrize("change", [
    {"tree_id": "u"}, {"kconfig_sha256": "l"}, {"compiler": "gcc 13"}, {"linker": "ld 3"}, {"make": []}, {"layout": 2},
])  # fmt: skip
def test_the_key_depends_on_every_input(change: dict[str, object]) -> None:
    (_, key), (_, again), (_, other) = _staged(), _staged("two"), _staged(**change)
    assert key == again != other


def test_what_is_adopted_is_found_and_stays_and_the_staging_folders_are_gone() -> None:
    first, key = _staged()
    second, _ = _staged("two")
    assert store.find(key) is None
    assert store.adopt(first, key) == store.find(key)
    assert store.adopt(second, key).subject == "one"
    assert not first.exists() and not second.exists()
    assert (store.folder_of(key) / "bzImage").read_bytes() == b"kernel of one"


def test_requests_lead_to_kernels_for_as_long_as_those_are_there() -> None:
    staging, key = _staged()
    request = records.digest("what was asked")
    assert store.find_request(request) is None
    store.remember_request(request, key)
    assert store.find_request(request) is None
    build = store.adopt(staging, key)
    assert store.find_request(request) == build
    store.collect_garbage(-1, dry_run=False)
    assert store.find_request(request) is None


def test_garbage_is_what_was_not_used_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    old, old_key = _staged()
    new, new_key = _staged(tree_id="u")
    store.adopt(old, old_key)
    used = store.adopt(new, new_key)
    for key in (old_key, new_key):
        os.utime(store.folder_of(key) / "build.json", (time.time() - 1000, time.time() - 1000))
    assert store.hold(used)
    for dry_run in (True, False):
        removed = store.collect_garbage(100, dry_run=dry_run)
        assert [path for path, _ in removed] == [store.folder_of(old_key)]
        assert removed[0][1] > 100
        assert (store.find(old_key) is not None) == dry_run
    assert [build.key for build, _, _ in store.builds()] == [new_key]


@pytest.mark.parametrize("content", [b"", b"kernel of onf", None], ids=["emptied", "one bit", "gone"])
def test_a_kernel_with_a_damaged_file_is_made_again(content: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    staging, key = _staged()
    build = store.adopt(staging, key)
    file = store.folder_of(key) / "bzImage"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert store.find(key) is None and f"{file} changed since it was built" in caplog.text
    again, _ = _staged()
    assert store.adopt(again, key) == build == store.find(key)
    assert file.read_bytes() == b"kernel of one"
