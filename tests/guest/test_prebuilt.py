"""Kernels that nobody builds: a distributor's packages, and files."""

import json
import shutil
from pathlib import Path

import pytest

from ..fakes import packages
from .conftest import NEW, OLD, Lab

pytestmark = [pytest.mark.guest, pytest.mark.network]


@pytest.mark.smoke
def test_the_image_is_built_once_and_packages_are_downloaded_once(lab: Lab) -> None:
    first, again = (lab.json("image", "build") for _ in range(2))
    assert first == again and "busybox" in json.dumps(first)
    first, again = (lab.json("kernel", "build", OLD, NEW)["kernels"] for _ in range(2))
    assert first == again and [one["release"].split(".")[:2] for one in first] == [["6", "1"], ["6", "12"]]


def test_a_kernel_file_is_the_kernel_it_came_from(lab: Lab) -> None:
    (package,) = lab.json("kernel", "build", NEW)["kernels"]
    file = f"file:{package['files']['bzImage']}"
    document = lab.ab(NEW, file, "-w", "alloc-burst:layout-2048k", "--seeds", "3")
    assert document["verdict"] == "same"
    assert document["base"]["build"] == document["test"]["build"]
    assert document["base"]["release"].startswith("6.12.") and document["base"]["commit"] is None


def test_one_kernel_in_packages_of_three_distributions(lab: Lab) -> None:
    """An rpm as Fedora lays it out, a package of pacman and one of dpkg give the numbers of the kernel inside."""
    (debian,) = lab.json("kernel", "build", NEW)["kernels"]
    image, release = Path(debian["files"]["bzImage"]), debian["release"]
    places = {"rpm": f"lib/modules/{release}", "pacman": f"usr/lib/modules/{release}", "deb": "boot"}
    specs = [NEW]
    for kind, place in places.items():
        made = lab.home / "packages" / kind
        folder = made / "files" / place
        folder.mkdir(parents=True)
        for file in (image, *image.parent.glob("config-*"), *image.parent.glob("System.map-*")):
            shutil.copy(file, folder / (file.name if kind == "deb" else file.name.removesuffix(f"-{release}")))
        specs.append(f"file:{getattr(packages, kind)(made / 'files', made)}")
    words = ("-w", "syscalls:getppid,pipe-stream", "--seeds", "3")
    documents = [lab.json("ab", *arms, *words) for arms in (specs[:2], specs[2:])]
    assert [document["verdict"] for document in documents] == ["same", "same"]
    assert len({document[arm]["build"] for document in documents for arm in ("base", "test")}) == 1
    assert len({document["environment"]["fingerprint"] for document in documents}) == 1
    for cases in zip(*(document["cases"] for document in documents), strict=True):
        for metrics in zip(*(case["metrics"] for case in cases), strict=True):
            samples = [metric[arm] for metric in metrics for arm in ("base", "test")]
            assert samples == [samples[0]] * 4, metrics[0]["name"]


@pytest.mark.network
def test_the_newest_backport_is_found_and_downloaded(lab: Lab) -> None:
    offers = lab.json("kernel", "list", "--available", "cloud")["packages"]
    assert {offer["suite"] for offer in offers} >= {"bookworm", "bookworm-backports", "trixie", "trixie-backports"}
    package = lab.json("kernel", "build", "deb:trixie-backports/linux-image-cloud-amd64")["kernels"][0]
    in_backports = [offer["package"] for offer in offers if offer["suite"] == "trixie-backports"]
    assert any(package["release"] in name for name in in_backports)
    assert {"bzImage", "vmlinux"} <= package["files"].keys()
