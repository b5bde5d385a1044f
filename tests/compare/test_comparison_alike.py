"""Arms that are the same guest, by what their settings make of the guests of exact mode."""

import pytest
from msgspec.structs import replace

from lab.compare import comparison
from lab.guests import exact
from lab.kernels import spec
from lab.kernels.debs import DebSource
from lab.kernels.kernel import KernelSpec
from lab.workloads import selection

SAME = "both arms are the same guest: "


def arm(settings: str = "", version: str = "1") -> KernelSpec:
    text = f"deb:x@{settings}" if settings else "deb:x"
    return KernelSpec(text=text, source=DebSource(package="x", version=version), settings=spec.parse(text).settings)


def remark(base: KernelSpec, test: KernelSpec) -> str | None:
    return comparison.same_guest(base, test, [selection.load("syscalls")], exact.exact_machine())


@pytest.mark.parametrize("setting", ["mitigations=off", "cmdline.init_on_alloc=0", "thp=always"])
def test_a_setting_that_every_guest_has_makes_no_other_guest(setting: str) -> None:
    line = f"{SAME}{setting.removeprefix('cmdline.')} is so in every guest"
    assert remark(arm(), arm(setting)) == remark(arm(setting), arm()) == line


def test_two_kernels_or_settings_that_change_something_are_two_guests() -> None:
    assert remark(arm(), arm(version="2")) is None
    for setting in ("mitigations=auto", "thp=never", "env.A=1", "mount.fs=ext4", "sysctl.vm.swappiness=10"):
        assert remark(arm(), arm(setting)) is None
        assert remark(arm(setting), arm(setting)) == f"{SAME}their kernels and settings do not differ"
    said = remark(arm("mitigations=off"), arm("thp=always"))
    assert said == f"{SAME}mitigations=off, thp=always is so in every guest"


def test_a_workload_of_another_setting_makes_it_another_guest() -> None:
    own = replace(selection.load("syscalls"), settings={"thp": "never"})
    assert comparison.same_guest(arm(), arm("thp=always"), [own], exact.exact_machine()) is None
    said = comparison.same_guest(arm(), arm("thp=never"), [own], exact.exact_machine())
    assert said == f"{SAME}thp=never is so in every guest"
