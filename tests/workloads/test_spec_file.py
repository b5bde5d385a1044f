"""Workload files: mistakes are named with their line."""

from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.workloads import selection

from ..fakes.guest import WORKLOAD

GOOD = WORKLOAD.replace('model = "none"\n', "").replace('{case}"]\n', "{case}\"]\ncase_pattern = 'size-[0-9]+k'\n")


def folder(tmp_path: Path, text: str) -> str:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "workload.toml").write_text(text)
    return str(place)


@pytest.mark.parametrize(("old", "new", "line", "message"), [
    ('better = "lower"', 'better = "smaller"', 20, "metric"),
    ('name = "large"', 'name = "small"', 28, "two [[case]] are called 'small'"),
    ('name = "large"', 'name = "A B"', 28, "case"),
    ('name = "large"', 'name = "large"\ngroup = "small"', 29, "the group 'small' is called like a case"),
    ("primary = true\n", "", None, "no metric is primary"),
    ('better = "lower"', 'better = "lower"\nprimary = true', 21, "2 metrics are primary"),
    ('better = "higher"', 'better = "neither"', 13, "primary metric must be better"),
    ("'size-[0-9]+k'", "'size-[0-9+k'", 8, "not a regular expression"),
    ('"{case}"]', '"x"]', 7, "{case}"),
    ('program = "/usr/bin/mine"', 'program = "mine"', 6, "program"),
    ("vcpus = 1", "vcpus = 1\nmodel = 'best'", 6, "model: 'best' is none of none, tlb, full"),
    ("vcpus = 1", "vcpus = 1\nkconfig = ['AIO']", 6, "kconfig"),
    ("[[case]]", "[case_kconfig]\nsmal = ['CONFIG_A']\n[[case]]", 24, "no case and no group is called 'smal'"),
    ("vcpus = 1", "vcpus = 1\nhugepages = 256", 6, "hugepages = 256 is 512 MiB, and the guest has 512 MiB"),
    ("vcpus = 1", "vcpus = 1\ncmdline = ['a b']", 6, "cmdline"),
    ("vcpus = 1", "vcpus = 1\nfiles = ['none.fio']", 6, "'none.fio': no such file"),
    ("vcpus = 1", "vcpus = 1\nfiles = ['/etc/passwd']", 6, "not inside the workload's folder"),
    ("vcpus = 1", f"vcpus = 1\nfiles = ['{'x' * 300}']", 6, "is too long, or no name of a file"),
    ("vcpus = 1", 'vcpus = 1\nfiles = ["a\\u0000b"]', 6, "is too long, or no name of a file"),
    ("vcpus = 1", "vcpus = 1\nfiles = ['../mine/../../x']", 6, "not inside the workload's folder"),
    ("vcpus = 1", "vcpus = 1\noperations = 'fault'", 6, "no [[metric]] is called 'fault'"),
    ("vcpus = 1", "vcpus = 1\nelapsed = 'throughput'", 6, "no [[metric]] in ns is called 'throughput'"),
    ('better = "lower"', 'better = "lower"\npattern = "x"', 21, "has a pattern, and is read as json"),
    ('better = "lower"', 'better = "lower"\nparse = "regex"', 18, "needs a pattern"),
    ('better = "lower"', 'better = "lower"\nparse = "regex"\npattern = "(x"', 22, "not a regular expression"),
    ('better = "lower"', 'better = "lower"\nparse = "regex"\npattern = "x"', 22, "0 groups, not one"),
    ("primary = true", "primary = true\noptional = true", 15, "the primary metric cannot be optional"),
    ("control = true", 'args = ["a\\nb"]', 25, "args"),
    ("vcpus = 1", "vcpus = 1\nunseen = ['device']", 6, "exact mode has no limit called 'device'"),
    ("[[case]]", "[settings]\nthp = 'nver'\n[[case]]", 24, "thp=nver: not a value of thp"),
    ("[[case]]", "[settings]\nhugepages = 3\n[[case]]", 24, "hugepages is not set here"),
    ("[[case]]", "[settings]\n'env.A' = 'b'\n[[case]]", 24, "env.A is not set here"),
    ("[[case]]", "[settings]\nsysctl.vm.x = 1.5\n[[case]]", 24, "sysctl.vm.x: a setting is a string or a whole"),
    ("[[case]]", "[env]\nLAB_SEED = '1'\n[[case]]", 24, "LAB_SEED: names that begin with LAB_"),
    ("[[case]]", "[env]\n'A B' = '1'\n[[case]]", 24, "'A B' is not the name of an environment variable"),
])  # fmt: skip
def test_mistakes_are_named_with_their_line(tmp_path: Path, old: str, new: str, line: int | None, message: str) -> None:
    assert old in GOOD
    path = folder(tmp_path, GOOD.replace(old, new, 1) if "\n[[case]]" in new else GOOD.replace(old, new))
    with pytest.raises(UserError) as caught:
        selection.load(path)
    assert message in caught.value.message
    assert "workload.toml" in caught.value.message
    if line is not None:
        assert f"workload.toml:{line}: " in caught.value.message


def test_mistakes_that_need_the_whole_file_are_named_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("control = true", "memory_mb = 513\nunseen = ['heat']\nfile = 'none'")
    with pytest.raises(UserError) as caught:
        selection.load(folder(tmp_path, text))
    said = caught.value.message
    assert "no such file" in said and "needs 513 MiB" in said and "no limit called 'heat'" in said
