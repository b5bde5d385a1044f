"""Workloads: what they need of a guest, and what runs in it."""

from pathlib import Path

import msgspec
import pytest

from lab.kernels.kconfig import Needs
from lab.workloads import selection
from lab.workloads.spec import Case, Workload

from .test_spec_file import GOOD

NEEDY = (
    GOOD.replace(
        "vcpus = 1\n",
        """vcpus = 1
model = "full"
isolate = true
hugepages = 16
cmdline = ["null_blk.queue_mode=2", "nosmt"]
kconfig = ["CONFIG_AIO"]
setup = ["/bin/busybox", "true"]
files = ["data/a b.txt"]
case_args = ["--plain"]
parse = "regex"
operations = "faults"
""",
    ).replace('better = "', "pattern = 'x=(.)'\nbetter = \"")
    + """\
args = ["--size", "{case}"]
memory_mb = 512
note = "all of it"

[settings]
thp.defrag = "always"
sysctl.vm.swappiness = 10

[case_kconfig]
large = ["CONFIG_INET", "CONFIG_KEYS"]
"s*l" = ["CONFIG_INET"]

[env]
GLIBC_TUNABLES = "glibc.malloc.hugetlb=1"
"""
)


@pytest.fixture
def needy(tmp_path: Path) -> Workload:
    (tmp_path / "mine" / "data").mkdir(parents=True)
    (tmp_path / "mine" / "data" / "a b.txt").touch()
    (tmp_path / "mine" / "workload.toml").write_text(NEEDY)
    return selection.load(str(tmp_path / "mine"))


def test_what_a_workload_and_its_measured_cases_need_of_their_guest(needy: Workload) -> None:
    assert (needy.model, needy.isolate, needy.parse, needy.operations) == ("full", True, "regex", "faults")
    assert needy.kconfig == ("CONFIG_AIO",) and needy.setup == ("/bin/busybox", "true")
    assert needy.own_files == {"/workload/data/a b.txt": needy.folder / "data" / "a b.txt"}
    assert needy.settings == {"hugepages": "16", "thp.defrag": "always", "sysctl.vm.swappiness": "10"}
    assert next(iter(needy.settings)) == "hugepages", "while memory is whole"
    small, large = needy.case("small"), needy.case("large")
    assert needy.kconfig_of(large) == ("CONFIG_INET", "CONFIG_KEYS") and needy.kconfig_of(small) == ("CONFIG_INET",)
    assert needy.needs([small]) == Needs(frozenset({"CONFIG_AIO"}), frozenset({"CONFIG_INET"}))
    assert needy.needs([small, large]).optional == {"CONFIG_INET", "CONFIG_KEYS"}
    assert needy.needs([needy.case("size-4k")]).optional == set()


def test_cases_have_arguments(needy: Workload) -> None:
    large, small = needy.case("large"), needy.case("size-4k")
    assert needy.command(large) == ["/usr/bin/mine", "--case", "large", "--size", "large"]
    assert needy.command(small) == ["/usr/bin/mine", "--case", "size-4k", "--plain"]
    inside = msgspec.structs.replace(needy, argv=("{args}", "--file", "{file}"))
    case = Case(name="x", args=("-v",), file="jobs/x.fio")
    assert inside.command(case) == ["/usr/bin/mine", "-v", "--file", "/workload/jobs/x.fio"]


def test_an_arm_s_own_win_over_the_workload_s(needy: Workload) -> None:
    arm = {"thp.defrag": "never", "cmdline.null_blk.queue_mode": "1", "cmdline.quiet": ""}
    arm |= {"env.A": "1", "hugepages": "2"}
    assert needy.arguments(arm) == ["nosmt", "null_blk.queue_mode=1", "quiet"]
    assert needy.arguments({}) == ["null_blk.queue_mode=2", "nosmt"]
    assert needy.guest_settings({"thp": "always", "thp.defrag": "madvise"}, arm) == {
        "thp": "always", "thp.defrag": "never", "hugepages": "2", "sysctl.vm.swappiness": "10",
    }  # fmt: skip
    # What the guest can read back of the kernel command line goes to its init, too.
    assert needy.guest_settings({}, {"cmdline.lsm": "landlock"})["cmdline.lsm"] == "landlock"
    assert needy.environment(arm) == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "A": "1"}
    assert needy.environment({"env.GLIBC_TUNABLES": "x"}) == {"GLIBC_TUNABLES": "x"}
