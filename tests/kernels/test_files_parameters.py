"""Names of kernel parameters in a kernel's image."""

from pathlib import Path

import pytest

from lab.kernels import files

from ..fakes.kernel_image import elf

NAMES = b"\0threadirqs\0nohz=\0nospectre_v2\0rcu_nocbs\0rcupdate.rcu_expedited\0rcupdate.rcu_normal\0workqueue.debug\0"


@pytest.fixture
def vmlinux(tmp_path: Path) -> Path:
    path = tmp_path / "vmlinux"
    path.write_bytes(elf() + NAMES)
    return path


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("threadirqs", True),
        ("nohz", True),
        ("spectre_v2", True),  # the end of another string: linkers merge these
        ("rcu-nocbs", True),
        ("rcupdate.rcu_expedited", True),
        ("nokaslr", True),
        ("threadirq", False),
        ("rcupdate.rcu_expeditd", False),
        ("rcupdate-rcu_normal", False),
        ("nohz.*", False),
    ],
)
def test_a_kernel_knows_the_names_in_its_image(vmlinux: Path, name: str, known: bool) -> None:
    assert files.has_parameter(vmlinux, name) is known


def test_similar_names_are_those_of_the_same_module(vmlinux: Path) -> None:
    said = files.similar_parameters(vmlinux, "rcupdate.rcu_expeditd")
    assert said is not None and said.startswith("did you mean rcupdate.rcu_expedited")
    assert files.similar_parameters(vmlinux, "threadirq") is None
    assert files.similar_parameters(vmlinux, "other.debug") is None
