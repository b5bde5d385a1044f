"""Kernels that nobody builds: a distributor's packages, and files."""

from __future__ import annotations

import pytest

from .conftest import NEW, Lab

pytestmark = pytest.mark.guest


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
