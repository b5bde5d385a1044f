"""Packages by version and by name, with apt's programs played by scripts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lab.core.errors import HostFailed, UserError
from lab.kernels.debs import DebSource, resolve

PACKAGES = """linux-image-6.1.0-50-cloud-amd64 6.1.170-1
linux-image-6.1.0-56-cloud-amd64 6.1.192-2
linux-image-6.1.0-56-cloud-amd64-dbg 6.1.192-2
linux-image-6.1.0-56-cloud-amd64-unsigned 6.1.192-2
linux-image-6.12-cloud-amd64 6.12.117-1~deb12u1 linux-image-6.12.117+deb12-cloud-amd64 (= 6.12.117-1~deb12u1)
linux-image-6.12.9+deb12-cloud-amd64 6.12.9-1~deb12u1
linux-image-6.12.117+deb12-cloud-amd64 6.12.117-1~deb12u1 kmod, linux-base (>= 4.3~)
linux-image-6.12.118+deb12-cloud-amd64-unsigned 6.12.118-1~deb12u1
linux-image-6.12.117+deb12-amd64 6.12.117-1~deb12u1
linux-image-cloud-amd64 6.12.117-1~deb12u1 linux-image-6.12-cloud-amd64
linux-image-7.0.1-cloud-amd64-unsigned 7.0.1-1
linux-image-loop-amd64 1 linux-image-loop-amd64"""

APT_CACHE = r"""#!/bin/sh
list="$FAKE_APT/list"
case $1 in
pkgnames) cut -d' ' -f1 "$list";;
madison) shift; for name; do grep "^$name " "$list" | awk '{print $1 " | " $2 " | http://x"}'; done;;
show) line=$(grep "^$2 " "$list") || { echo "E: No packages found" >&2; exit 100; }
  set -- $line; name=$1 version=$2; shift 2
  printf 'Package: %s\nVersion: %s\nDepends: %s\nFilename: pool/x.deb\n' "$name" "$version" "${*:-kmod}";;
esac
"""
APT_GET = r"""#!/bin/sh
echo "$2" >> "$FAKE_APT/asked"
[ -e "$FAKE_APT/offline" ] && { echo "E: Failed to fetch http://x" >&2; exit 100; }
echo deb > "${2%%=*}.deb"
"""
DPKG_DEB = r"""#!/bin/sh
[ "$1" = --field ] && exit 0
[ -e "$FAKE_APT/empty" ] && exit 0
mkdir -p "$3/boot" "$3/lib/modules/r" && touch "$3/boot/vmlinuz-r" "$3/boot/System.map-r" "$3/boot/config-r"
"""


@pytest.fixture(autouse=True)
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "apt"
    folder.mkdir()
    (folder / "list").write_text(PACKAGES + "\n")
    for name, text in (("apt-cache", APT_CACHE), ("apt-get", APT_GET), ("dpkg-deb", DPKG_DEB)):
        (folder / name).write_text(text)
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_APT", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.mark.parametrize(
    ("body", "package"),
    [
        ("6.1", "linux-image-6.1.0-56-cloud-amd64"),
        ("6.1.170", "linux-image-6.1.0-50-cloud-amd64"),
        ("6.12", "linux-image-6.12.117+deb12-cloud-amd64"),
        ("6.12.9", "linux-image-6.12.9+deb12-cloud-amd64"),
        ("6.12.118", "linux-image-6.12.118+deb12-cloud-amd64-unsigned"),
        ("7.0", "linux-image-7.0.1-cloud-amd64-unsigned"),
        ("linux-image-cloud-amd64", "linux-image-6.12.117+deb12-cloud-amd64"),
        ("linux-image-6.1.0-50-cloud-amd64", "linux-image-6.1.0-50-cloud-amd64"),
    ],
)
def test_resolved(body: str, package: str) -> None:
    assert resolve(body).package == package


def test_the_version_goes_along() -> None:
    assert resolve("6.12").version == "6.12.117-1~deb12u1"


def test_unknown_ones_are_the_users(apt: Path) -> None:
    with pytest.raises(UserError) as caught:
        resolve("5.10")
    assert "6.1, 6.12, 7.0" in (caught.value.hint or "")
    with pytest.raises(UserError) as caught:
        resolve("linux-image-6.1.0-57-cloud-amd64")
    assert "did you mean deb:linux-image-6.1.0-56-cloud-amd64?" in (caught.value.hint or "")
    for odd in ("--help", "x; touch y", "linux-image-loop-amd64"):
        with pytest.raises(UserError):
            resolve(odd)


def test_missing_lists_are_the_hosts(apt: Path) -> None:
    (apt / "list").write_text("")
    for body in ("6.12", "linux-image-6.12-cloud-amd64"):
        with pytest.raises(HostFailed, match="lists are missing") as caught:
            resolve(body)
        assert caught.value.hint == "run `sudo apt-get update`"


def test_fetched_once_and_unpacked(apt: Path) -> None:
    source = resolve("6.12")
    folder = source.fetch()
    assert folder.name == "linux-image-6.12.117+deb12-cloud-amd64_6.12.117-1~deb12u1"
    assert sorted(path.name for path in folder.iterdir()) == ["boot", "lib"]
    assert source.fetch() == folder
    assert (apt / "asked").read_text() == "linux-image-6.12.117+deb12-cloud-amd64=6.12.117-1~deb12u1\n"


def test_no_network_leaves_nothing(apt: Path) -> None:
    source = DebSource(package="linux-image-6.1.0-56-cloud-amd64", version="6.1.192-2")
    (apt / "offline").touch()
    with pytest.raises(HostFailed, match="cannot download"):
        source.fetch()
    (apt / "offline").unlink()
    (apt / "empty").touch()
    with pytest.raises(UserError, match="contains no kernel"):
        source.fetch()
    (apt / "empty").unlink()
    assert source.fetch().is_dir()
