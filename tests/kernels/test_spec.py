"""Specs as typed: what is a revision, what a suffix, and what is refused."""

from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.kernels.spec import parse, split


@pytest.mark.parametrize("text", ["v6.12", "main@{1}", "HEAD^{/fix 100%}", "a@b", "-x", "v6+b"])
def test_plain_revisions_are_left_alone(text: str) -> None:
    parsed = parse(text)
    assert (parsed.kind, parsed.body) == ("rev", text)
    assert not parsed.patches and not parsed.kconfig and not parsed.settings


@pytest.mark.parametrize("order", ["%FOO=y,CONFIG_BAR=17@{s}", "@{s}%FOO=y%BAR=17"])
def test_suffixes_in_either_order(order: str) -> None:
    text = "v6.12" + order.replace("{s}", "thp=never,thp.defrag=defer+madvise,hugepages=8")
    parsed = parse(text)
    assert parsed.body == "v6.12"
    assert parsed.kconfig == (("CONFIG_FOO", "y"), ("CONFIG_BAR", "17"))
    assert parsed.settings == (("thp", "never"), ("thp.defrag", "defer+madvise"), ("hugepages", "8"))


def test_a_scheduler_s_feature_is_on_or_off() -> None:
    spelled = parse("HEAD@thp=never,sched_feat.NO_DELAY_DEQUEUE%FOO=y@sched_feat.PLACE_LAG,sched_feat.NEXT_BUDDY=1")
    assert spelled.settings == (
        ("thp", "never"), ("sched_feat.DELAY_DEQUEUE", "0"), ("sched_feat.PLACE_LAG", "1"),
        ("sched_feat.NEXT_BUDDY", "1"),
    )  # fmt: skip
    assert spelled.kconfig == (("CONFIG_FOO", "y"),)
    assert parse("HEAD@sched_feat.NO_DELAY_DEQUEUE").body == "HEAD"


@pytest.mark.parametrize(("text", "settings"), [
    ("cmdline.isolcpus=1,2,cmdline.nosmt=", {"cmdline.isolcpus": "1,2", "cmdline.nosmt": ""}),
    ("cmdline.threadirqs,cmdline.nosmt", {"cmdline.threadirqs": "", "cmdline.nosmt": ""}),
    ("env.A=b.c=1:d=3,thp=madvise", {"env.A": "b.c=1:d=3", "thp": "madvise"}),
    ("env.EMPTY=", {"env.EMPTY": ""}),
    ("debugfs.sched/preempt=full,cgroup.cpu.max=5 10", {"debugfs.sched/preempt": "full", "cgroup.cpu.max": "5 10"}),
])  # fmt: skip
def test_values_may_contain_commas_and_be_empty(text: str, settings: dict[str, str]) -> None:
    assert parse(f"HEAD@{text}").settings == (*settings.items(),)


@pytest.mark.parametrize(
    "value", ["off", "auto", "auto,nosmt", "auto;no_user_kernel", "auto,nosmt;no_user_kernel,no_guest_host"]
)
def test_short_forms_of_kernel_parameters(value: str) -> None:
    wanted = (("cmdline.lsm", "landlock,lockdown"), ("cmdline.mitigations", value), ("thp", "never"))
    assert parse(f"HEAD@lsm=landlock,lockdown,mitigations={value},thp=never").settings == wanted
    assert parse(f"HEAD@cmdline.lsm=landlock,lockdown,cmdline.mitigations={value},thp=never").settings == wanted


def test_the_configuration_of_a_package_or_a_file_is_kconfig() -> None:
    parsed = parse("v6.12+a.patch%config=deb:trixie/linux-image-6.12.5+deb13,FOO=y@thp=never")
    assert parsed.kconfig == (("config", "deb:trixie/linux-image-6.12.5+deb13"), ("CONFIG_FOO", "y"))
    assert (parsed.body, parsed.patches) == ("v6.12", ("a.patch",))
    short = parse("src:trixie/6.12@config:distro,thp=never%FOO=y")
    assert short.kconfig == (("config", "distro"), ("CONFIG_FOO", "y")) and short.settings == (("thp", "never"),)
    assert parse("HEAD@thp=never@config:deb:6.12").kconfig == (("config", "deb:6.12"),)
    assert parse("HEAD%config=a/my.config,FOO=y").kconfig == (("config", "a/my.config"), ("CONFIG_FOO", "y"))
    for text in ("HEAD@config:", "HEAD%config=deb:"):
        with pytest.raises(UserError, match="a configuration is that of a file or a package"):
            parse(text)
    with pytest.raises(UserError, match="kconfig changes need a build"):
        parse("deb:6.12@config:distro")


def test_patches_by_name_and_by_existence(tmp_path: Path) -> None:
    assert parse("v6.12+a.patch+dir/b.diff").patches == ("a.patch", "dir/b.diff")
    odd = tmp_path / "x+y"
    odd.mkdir()
    patch = odd / "fix.patch"
    patch.touch()
    unnamed = tmp_path / "mail"
    unnamed.touch()
    parsed = parse(f"HEAD+{patch}+{unnamed}")
    assert (parsed.body, parsed.patches) == ("HEAD", (str(patch), str(unnamed)))


def test_kinds(tmp_path: Path) -> None:
    plus = tmp_path / "tree+a.patch"
    plus.mkdir()
    assert parse(f"worktree:{plus}").body == str(plus)
    assert parse("worktree:.+fix.patch").patches == ("fix.patch",)
    assert parse("deb:linux-image-6.12.117+deb12-cloud-amd64").body == "linux-image-6.12.117+deb12-cloud-amd64"
    assert parse("file:/boot/vmlinuz-6.12+deb@thp=always").settings == (("thp", "always"),)


@pytest.mark.parametrize(("text", "message", "hint"), [
    ("", "names no kernel", "v6.12"),
    ("@thp=never", "names no kernel", "v6.12"),
    ("v6\n12", "control character", ""),
    ("v6.12@thp=nver", "thp=nver", "madvise"),
    ("v6.12@tph=never", "unknown setting 'tph'", "did you mean thp?"),
    ("v6.12@arch=arm64", "arch is no setting of a guest", "write REV%arch=arm64, or deb:6.12:arm64"),
    ("v6.12@CONFIG_KASAN=y", "CONFIG_KASAN is no setting of a guest", "it is the kernel's: write REV%CONFIG_KASAN=y"),
    ("v6.12@hugepages=-1", "hugepages=-1", "whole number"),
    ("v6.12@hugepages=²", "hugepages", "whole number"),
    ("v6.12@sysctl.vm.x=", "no value", ""),
    ("v6.12@sysctl.vm.x", "sysctl.vm.x has no value", "sysctl.vm.x=VALUE"),
    ("deb:6.12@thp=never,env.A", "env.A has no value", "env.A=VALUE"),
    ("v6.12@sysctl.../etc/x=1", "sysctl", "swappiness"),
    ("v6.12@cmdline.a=b c", "no spaces", "each by itself"),
    ("v6.12@thp=never@thp=always", "given twice", ""),
    ("v6.12@env.A-B=1", "'A-B' is not the name of an environment variable", "MALLOC_ARENA_MAX"),
    ("v6.12@env.=1", "unknown setting 'env.'", "env.NAME"),
    ("v6.12@init_on_alloc=0", "unknown setting 'init_on_alloc'", "a kernel parameter is cmdline.init_on_alloc;"),
    ("v6.12@env.LAB_SEED=1", "the lab's own", ""),
    ("v6.12@sched_feat.X=2", "sched_feat.X=2", "0, 1"),
    ("v6.12@sched_feat.NO_X=1", "off by its value", "sched_feat.X=0"),
    ("v6.12@debugfs.sched/../x=1", "below /sys/kernel/debug", "sched/"),
    ("v6.12@cgroup.memory=1", "cgroup v2 controller", "cgroup.memory.max=64M"),
    ("v6.12@cgroup.memory/max=1", "cgroup v2 controller", "cgroup.memory.max=64M"),
    ("v6.12@lsm=", "not a list of security modules", "landlock"),
    ("v6.12@mitigations=on", "mitigations=on", "auto,nosmt"),
    ("v6.12@mitigations=off,cmdline.mitigations=auto", "cmdline.mitigations is given twice", ""),
    ("v6.12%FOO=maybe", "CONFIG_FOO=maybe", "y, n, m"),
    ("v6.12%foo=y", "'foo'", "FOO"),
    ("deb:6.12%FOO=y", "kconfig changes need a build", "revision"),
    ("file:/x+a.patch", "patches need a build", "revision"),
])  # fmt: skip
def test_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text)
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["worktree", "worktree+fix.patch", "worktree%NUMA=n", "worktree@thp=never"])
def test_a_worktree_without_a_path_is_where_one_stands(text: str) -> None:
    assert parse(text).kind == "worktree"
    assert parse(text).body == "."
    assert parse(text) == parse(text.replace("worktree", "worktree:."))
    assert "".join(split(text)) == text.replace("worktree", "worktree:.")
    assert parse("worktree-fixes").kind == "rev"
