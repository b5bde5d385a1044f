"""What kernels choose by their CPU, and the lines that they move for nothing, as `lab explain` prints them."""

from typing import Any

from lab.compare.explain import CaseLint
from lab.compare.lines import Access, FalseSharing
from lab.core import text
from lab.kernels.alternatives import CpuChoices, FeatureChoice
from lab.report import explain_text

from ..fakes.result import printed

FSRM = FeatureChoice(
    feature="fsrm", modelled=True, guest=False, base=1, test=3, functions=["memmove"],
    only_test=["read_zero", "memcpy"], ran=["read_zero"],
)  # fmt: skip
SMAP = FeatureChoice(feature="smap", modelled=True, guest=True, base=4, test=4, functions=["get_user"])
LASS = FeatureChoice(feature="lass", modelled=False, guest=False, base=0, test=2, only_test=["emulate_vsyscall"])


def shown(*choices: FeatureChoice, everything: bool = False, **facts: Any) -> str:
    defaults = {
        "machine": "big-iron", "cpu": "Nehalem,+smap", "qemu": "7.2.22", "features": ["smap"],
        "lacks": ["fsrm", "pcid"], "off": {"erms": "slow", "la57": "four levels"}, "refused": [],
    }  # fmt: skip
    found = CpuChoices(**{**defaults, "choices": list(choices), **facts})
    return text.plain(lambda _: explain_text.render_cpu(found, everything=everything))


def test_what_the_guest_lacks_comes_first_with_those_who_look_for_it() -> None:
    output = shown(FSRM, SMAP, LASS, base="deb:6.1", test="deb:6.12", case="syscalls:read-zero")
    lines = output.splitlines()
    assert lines[:4] == [
        "guests of big-iron  -cpu Nehalem,+smap, QEMU 7.2.22", "base  deb:6.1", "test  deb:6.12",
        "*     ran in syscalls:read-zero",
    ]  # fmt: skip
    assert "fsrm        1     3  memmove; only test: read_zero*, memcpy" in lines
    assert "no kernel looks for it by alternatives: pcid, erms, la57" in lines
    assert "(1 feature, 0 looked for in different functions)" in output and "get_user" not in output
    assert "lass" not in output


def test_everything_is_everything() -> None:
    output = shown(FSRM, SMAP, LASS, base="deb:6.1", test="deb:6.12", everything=True)
    assert "smap        4     4  get_user" in output and "emulate_vsyscall" in output


def test_without_kernels_there_is_the_cpu_alone() -> None:
    output = shown(refused=["fsrm"])
    assert "asked for, and not in this QEMU: fsrm" in output
    assert "not in the guest: fsrm, pcid, erms, la57" in output
    assert "erms: slow\nla57: four levels" in output


def test_one_kernel_has_one_column() -> None:
    lines = shown(SMAP, base="deb:6.12", everything=True).splitlines()
    assert "feature  places  functions" in lines and "smap          4  get_user" in lines


def test_false_sharing_is_listed_by_place_with_its_members() -> None:
    accesses = [
        Access(member="file.f_ref", readers=[], writers=["fput", "fdget"]),
        Access(member="", readers=["vfs_read"], writers=[]),
    ]
    found = [
        CaseLint(
            case="contention@4:pread", lines=[FalseSharing(place="file.f_ref", moved=6.6, false=3, accesses=accesses)]
        ),
        CaseLint(case="contention@4:getppid", lines=[]),
    ]
    shown = printed(lambda lints, console: explain_text.show_false_sharing("deb:6.12", lints, console), found)
    assert [line.rstrip() for line in shown.splitlines()] == [
        "deb:6.12: lines that vCPUs move for nothing",
        "",
        "contention@4:pread  3.00 of 6.60 moves an operation: file.f_ref",
        "    file.f_ref: written by fput, fdget",
        "    no name: read by vfs_read",
        "",
        "none in contention@4:getppid",
    ]
