"""What a workload needs of its guest is known before anything boots."""

import dataclasses
from pathlib import Path

import pytest

from lab.compare.check import _require_kconfig, check_guest, check_parameters
from lab.core.errors import UserError
from lab.guests import initrd
from lab.guests.run import Arm
from lab.kernels import store
from lab.kernels.build import TreeSource
from lab.kernels.kernel import Kernel, KernelSpec
from lab.workloads import selection
from lab.workloads.spec import Workload

from ..fakes.guest import IMAGE, WORKLOAD, kernel, write_workload
from ..fakes.kernel_image import elf

pytestmark = pytest.mark.usefixtures("own_home")


def workload(tmp_path: Path, top: str) -> Workload:
    return selection.load(write_workload(tmp_path / "mine", WORKLOAD.replace("[[metric]]", f"{top}\n[[metric]]", 1)))


def check(chosen: Workload, names: tuple[str, ...] = (), which: Kernel | None = None, **settings: str) -> None:
    arm = Arm(name="test", kernel=which or kernel("test"), settings=settings)
    check_guest(chosen, [chosen.case(name) for name in names], [arm], (IMAGE, Path("/image")))


def built(config: str) -> Kernel:
    source = TreeSource(tree="t", commit="c", tree_id="i", build_commit="c", subject="s", describe="d")
    folder = store.folder_of("f" * 64)
    folder.mkdir(parents=True)
    (folder / "config").write_text(config)
    spec = KernelSpec(text="v6.12", source=source)
    return dataclasses.replace(kernel("test"), spec=spec, key="f" * 64, config=folder / "config")


CONFIG = "CONFIG_AIO=y\nCONFIG_BLK_DEV_NULL_BLK=m\n# CONFIG_IO_URING is not set\nCONFIG_HZ=250\n"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("CONFIG_IO_URING", "needs CONFIG_IO_URING, which is not set in v6.12"),
        ("CONFIG_NEVER_HEARD_OF", "needs CONFIG_NEVER_HEARD_OF, which is not set"),
        ("CONFIG_BLK_DEV_NULL_BLK", "which is a module, which no guest loads, in v6.12"),
    ],
)
def test_a_kernel_without_an_option_is_refused(tmp_path: Path, option: str, words: str) -> None:
    with pytest.raises(UserError, match=f"workload mine .*{words}") as caught:
        check(workload(tmp_path, f'kconfig = ["CONFIG_AIO", "{option}"]'), which=built(CONFIG))
    assert f"%{option}=y" in str(caught.value.hint)


def test_an_option_for_some_job_files_is_needed_by_these_alone(tmp_path: Path) -> None:
    for name, directory in (("tmp", "directory=/tmp"), ("null", "filename=/dev/nullb0")):
        (tmp_path / f"{name}.fio").write_text(f"[job]\n{directory}\nioengine=psync\n")
    fio, plain = selection.select(f"fio:{tmp_path / 'tmp.fio'}")
    null = selection.select(f"fio:{tmp_path / 'null.fio'}")[1]
    arm = Arm(name="test", kernel=built(CONFIG + "CONFIG_HUGETLBFS=y\nCONFIG_SYSVIPC=y\n"), settings={})
    _require_kconfig(fio, plain, arm)
    with pytest.raises(UserError, match="workload fio needs CONFIG_BLK_DEV_NULL_BLK, which is a module"):
        _require_kconfig(fio, [*plain, *null], arm)


def test_the_configuration_beside_a_packaged_kernel_counts(tmp_path: Path) -> None:
    (tmp_path / "config-6.99").write_text(CONFIG)
    boot = dataclasses.replace(kernel("test"), config=tmp_path / "config-6.99")
    assert boot.configuration() == {
        "CONFIG_AIO": "y", "CONFIG_BLK_DEV_NULL_BLK": "m", "CONFIG_IO_URING": "n", "CONFIG_HZ": "250",
    }  # fmt: skip
    with pytest.raises(UserError, match="a module") as caught:
        check(workload(tmp_path, 'kconfig = ["CONFIG_BLK_DEV_NULL_BLK"]'), which=boot)
    assert "build one from a tree" in str(caught.value.hint)


def test_more_huge_pages_than_memory_are_refused(tmp_path: Path) -> None:
    chosen = workload(tmp_path, "hugepages = 100")
    check(chosen)
    with pytest.raises(UserError, match=r"test arm .*: 256 huge pages are 512 MiB, .* has 512 MiB in all"):
        check(chosen, hugepages="256")


def test_a_case_that_needs_more_than_the_guest_has_is_refused(tmp_path: Path) -> None:
    chosen = workload(tmp_path, "case_pattern = 'chase-(?P<memory>[0-9]+[kmg])'")
    assert chosen.case("chase-64m").memory_mb == 64 and chosen.case("chase-64k").memory_mb == 1
    with pytest.raises(UserError, match="mine:chase-1g needs 1024 MiB, and its guest has 512 MiB"):
        chosen.case("chase-1g")


def test_a_name_that_the_program_does_not_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = workload(tmp_path, "case_pattern = '.*'\ncase_names = ['--names']")
    asked = []

    def run_inside(root: Path, program: str, arguments: tuple[str, ...]) -> str:
        asked.append((str(root), program, *arguments))
        return "malloc mmap brk\n"

    monkeypatch.setattr(initrd, "run_inside", run_inside)
    check(chosen, ("small", "mmap"))
    assert asked == [("/image/root", "/usr/bin/mine", "--names")], "the declared ones need no list"
    with pytest.raises(UserError, match="workload mine has no case 'maloc'") as caught:
        check(chosen, ("maloc",))
    assert caught.value.hint == "did you mean malloc?"


def test_a_kernel_must_know_the_parameters_of_its_command_line(tmp_path: Path) -> None:
    vmlinux = tmp_path / "vmlinux"
    vmlinux.write_bytes(elf() + b"\0rcupdate.rcu_expedited\0")
    known = dataclasses.replace(kernel("test"), vmlinux=vmlinux)

    def check_with(**settings: str) -> None:
        check_parameters(Arm(name="test", kernel=known, settings=settings))

    check_with(**{"cmdline.rcupdate.rcu_expedited": "1", "sysctl.vm.swappiness": "1", "env.A": "1"})
    check_with(**{"cmdline.ext4.debug": "1", "mount.fs": "ext4"})
    with pytest.raises(UserError, match=r"so cmdline\.rcupdate\.expedited has no") as caught:
        check_with(**{"cmdline.rcupdate.expedited": "1"})
    assert caught.value.hint == "did you mean rcupdate.rcu_expedited?"
    with pytest.raises(UserError, match="nothing in this kernel is called nosuch"):
        check_with(**{"cmdline.nosuch": ""})
