"""The place that all machines reach: what is there is whole, and what is fetched is what was meant."""

from pathlib import Path

import pytest

from lab.cluster.share import Share
from lab.core import paths, records
from lab.core.errors import HostFailed
from lab.kernels import store

from ..fakes.build import own_folders, stored

FILES = {"bzImage": b"image", "vmlinux": b"elf" * 1000, "System.map": b"map", "config": b"CONFIG_X=y\n"}


@pytest.fixture(params=["folder", "memory"])
def share(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Share:
    own_folders(monkeypatch, tmp_path / "one")
    (tmp_path / "share").mkdir()
    return Share(str(tmp_path / "share") if request.param == "folder" else f"memory://{tmp_path}")


def test_a_kernel_reaches_the_store_of_another_machine(
    share: Share, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = stored(FILES)
    share.put_kernel(build, "request")
    share.put_kernel(build, "another")
    own_folders(monkeypatch, tmp_path / "two")
    assert store.find(build.key) is None
    assert share.fetch_kernel("unheard-of") is None
    assert share.fetch_kernel("request") == build == store.find(build.key)
    folder = store.folder_of(build.key)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "build.json"} == FILES
    assert not list(store.kernels_dir().glob(".staging*"))
    assert share.fetch_kernel("another") == build


def test_a_file_is_fetched_once_and_a_damaged_one_is_never_used_and_makes_room_for_a_good_one(
    share: Share, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    digest = records.file_digest(tmp_path / "file")
    share.put(tmp_path / "file", digest)
    share._fs.pipe_file(share._path("blobs", digest), b"other")
    with pytest.raises(HostFailed, match="was damaged"):
        share.fetch(digest)
    assert [path.name for path in paths.cache_dir("blobs").iterdir() if path.suffix != ".lock"] == []
    for _ in range(2):
        share.put(tmp_path / "file", digest)
    assert share.fetch(digest).read_bytes() == b"content"
    share._fs.rm_file(share._path("blobs", digest))
    assert share.fetch(digest).read_bytes() == b"content"


def test_a_folder_is_the_same_for_who_works_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Share("share").url == str(tmp_path / "share")


def test_a_place_that_cannot_be_written_is_the_hosts_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    share = Share(str(tmp_path / "file" / "below"))
    with pytest.raises(HostFailed, match="cannot write to"):
        share.require_writable()
    with pytest.raises(HostFailed, match=r"cannot write to .*below"):
        share.put(tmp_path / "file", "digest")
