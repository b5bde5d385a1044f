"""Kernels that nobody builds: a distributor's packages, and files."""

from __future__ import annotations

import json

import pytest

from .conftest import NEW, OLD, Lab

pytestmark = [pytest.mark.guest, pytest.mark.network]


@pytest.mark.smoke
def test_the_image_is_built_once(lab: Lab) -> None:
    first, again = (lab.json("image", "build") for _ in range(2))
    assert first == again and "busybox" in json.dumps(first)


@pytest.mark.smoke
def test_packages_are_downloaded_once(lab: Lab) -> None:
    first, again = (lab.json("kernel", "build", OLD, NEW)["kernels"] for _ in range(2))
    assert first == again and [one["release"].split(".")[:2] for one in first] == [["6", "1"], ["6", "12"]]


def test_a_kernel_file_is_the_kernel_it_came_from(lab: Lab) -> None:
    (package,) = lab.json("kernel", "build", NEW)["kernels"]
    file = f"file:{package['files']['bzImage']}"
    document = lab.json("ab", "--base", NEW, "--test", file, "-w", "alloc-burst:layout-2048k", "--seeds", "3")
    assert document["verdict"] == "same"
    assert document["base"]["build"] == document["test"]["build"]
    assert document["base"]["release"].startswith("6.12.") and document["base"]["commit"] is None


@pytest.mark.network
def test_the_newest_backport_is_found_and_downloaded(lab: Lab) -> None:
    offers = lab.json("kernel", "list", "--available", "cloud")["packages"]
    assert {offer["suite"] for offer in offers} >= {"bookworm", "bookworm-backports", "trixie", "trixie-backports"}
    package = lab.json("kernel", "build", "deb:trixie-backports/linux-image-cloud-amd64")["kernels"][0]
    in_backports = [offer["package"] for offer in offers if offer["suite"] == "trixie-backports"]
    assert any(package["release"] in name for name in in_backports)
    assert {"bzImage", "vmlinux"} <= package["files"].keys()
