"""Kernels that nobody builds: a distributor's packages, and files."""

from __future__ import annotations

import json

import pytest

from .conftest import NEW, OLD, Lab, verdicts

pytestmark = [pytest.mark.guest, pytest.mark.network]

CASES = "alloc-burst:layout-1400k,alternate-2048k-1400k"


@pytest.mark.smoke
def test_the_image_is_built_once(lab: Lab) -> None:
    first, again = (lab.json("image", "build") for _ in range(2))
    assert first == again and "busybox" in json.dumps(first)


@pytest.mark.smoke
def test_packages_are_downloaded_once(lab: Lab) -> None:
    first, again = (lab.json("kernel", "build", OLD, NEW)["kernels"] for _ in range(2))
    assert first == again and [one["release"].split(".")[:2] for one in first] == [["6", "1"], ["6", "12"]]


def test_two_packages_differ_where_they_should_without_a_build(lab: Lab) -> None:
    document = lab.json("ab", "--base", "deb:6.1", "--test", "deb:6.12", "-w", CASES)
    # 6.1 aligns nothing, 6.12 aligns multiples of 2 MiB: alternating sizes leave gaps.
    assert verdicts(document)["alternate-2048k-1400k"] == "regression"
    assert document["base"]["release"].startswith("6.1.")
    assert document["test"]["release"].startswith("6.12.")
    assert document["base"]["commit"] is None


def test_a_kernel_file_is_the_kernel_it_came_from(lab: Lab) -> None:
    package = lab.json("kernel", "build", "deb:6.12")["kernels"][0]
    path = package["files"]["bzImage"]
    document = lab.json("ab", "--base", "deb:6.12", "--test", f"file:{path}", "-w", "alloc-burst:layout-2048k")
    assert document["verdict"] == "same"
    assert document["base"]["build"] == document["test"]["build"]


def test_the_newest_backport_is_found_and_downloaded(lab: Lab) -> None:
    offers = lab.json("kernel", "list", "--available", "cloud")["packages"]
    assert {offer["suite"] for offer in offers} >= {"bookworm", "bookworm-backports", "trixie", "trixie-backports"}
    package = lab.json("kernel", "build", "deb:trixie-backports/linux-image-cloud-amd64")["kernels"][0]
    in_backports = [offer["package"] for offer in offers if offer["suite"] == "trixie-backports"]
    assert any(package["release"] in name for name in in_backports)
    assert {"bzImage", "vmlinux"} <= package["files"].keys()
