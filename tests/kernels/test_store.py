"""The store: what is in it is whole, what is not whole is not in it."""

import shutil
from pathlib import Path

import pytest

from lab.core import records
from lab.core.errors import BuildFailed
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
    shutil.rmtree(store.folder_of(key))
    assert store.find_request(request) is None


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


def test_a_build_without_an_image_is_not_kept_and_one_that_was_kept_is_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder, build = staged({"System.map": b"T start", "config": b"CONFIG_64BIT=y"})
    with pytest.raises(BuildFailed, match=r"the build of HEAD left System.map, config, and no image of a kernel"):
        store.adopt(folder, build.key)
    folder.rename(store.folder_of(build.key))
    assert store.find(build.key) is None and "has no image of a kernel" in caplog.text
    whole, key = _staged()
    assert key == build.key and store.adopt(whole, key) == store.find(key)
