"""From nothing: a home without the store, where everything is downloaded, made and built anew, to the same bytes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..fakes.processes import program
from .conftest import CACHE, DATA, FIX, NEW, Lab, elsewhere

pytestmark = [pytest.mark.guest, pytest.mark.build, pytest.mark.network]


@pytest.fixture(scope="module")
def fresh(lab: Lab) -> Iterator[Lab]:
    """The installed lab in an empty home."""
    with elsewhere(lab) as made:
        yield made


def _made(lab: Lab, name: str) -> bool:
    """True if a folder of the cache is no link, and not empty."""
    folder = lab.home / CACHE / name
    return not folder.is_symlink() and any(folder.glob("[!.]*"))


def test_a_package_is_downloaded_and_compared_in_an_image_that_is_made(fresh: Lab) -> None:
    document = fresh.ab(NEW, f"{NEW}@thp=never", "-w", "alloc-burst:layout-4632k")
    assert document["verdict"] == "regression"
    assert _made(fresh, "debs") and _made(fresh, "images")


def test_a_kernel_has_the_bytes_of_the_stores(
    fresh: Lab, story: Lab, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder, without ccache's objects, beside programs whose versions kconfig likes to note."""
    for name, version in {"rustc": "rustc 1.99.9 (0123456789 2026-01-01)", "pahole": "v1.99"}.items():
        program(open_folder / name, f"echo '{version}'")
    (here,) = story.json("kernel", "build", FIX)["kernels"]
    monkeypatch.setenv("PATH", f"{open_folder}:{os.environ['PATH']}")
    (there,) = fresh.json("kernel", "build", FIX)["kernels"]
    assert (there["build"], there["sha256"]) == (here["build"], here["sha256"])
    assert Path(there["files"]["bzImage"]).is_relative_to(fresh.home)
    assert (fresh.home / DATA / "trees" / "default.git").is_dir() and _made(fresh, "kernels")
    # What earlier kernels have in BUG() and WARN(), whose digests are the same.
    assert b"\0../src/mm/mmap.c\0" in Path(here["files"]["vmlinux"]).read_bytes()
