"""Workload files: the shipped ones are sound, and mistakes are named with their line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from lab.cli import main, workload
from lab.core.errors import UserError
from lab.workloads import selection
from lab.workloads.spec import Case, Workload

GOOD = """\
schema = 1
name = "mine"
story = "a story"
memory_mb = 512
vcpus = 1
program = "/usr/bin/mine"
argv = ["--case", "{case}"]
case_pattern = 'size-[0-9]+k'

[[metric]]
name = "throughput"
unit = "op/s"
better = "higher"
primary = true
description = "operations per second"

[[metric]]
name = "faults"
unit = "faults"
better = "lower"
description = "page faults"

[[case]]
name = "small"
control = true

[[case]]
name = "large"
"""


def folder(tmp_path: Path, text: str) -> str:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "workload.toml").write_text(text)
    return str(place)


def test_every_shipped_workload_loads_and_has_cases() -> None:
    found = selection.list_workloads()
    assert "alloc-burst" in [each.name for each in found]
    for each in found:
        assert each.name == each.folder.name
        assert each.primary.better != "neither"


def test_the_default_sweep_of_alloc_burst_fits_its_own_pattern() -> None:
    loaded = selection.load("alloc-burst")
    for case in loaded.cases:
        assert re.fullmatch(loaded.case_pattern, case.name), case.name
    assert {case.name for case in loaded.cases if case.control} == {
        "layout-512k",
        "layout-1400k",
        "layout-1800k",
        "burst-512k-1800k",
        "layout-1400k-malloc-fixed",
        "burst-512k-1800k-malloc",
    }


def test_select_takes_all_or_some_cases_once_each() -> None:
    loaded, cases = selection.select("alloc-burst")
    assert cases == list(loaded.cases)
    _, cases = selection.select("alloc-burst:layout-4632k,layout-4632k,single-128m")
    assert [case.name for case in cases] == ["layout-4632k", "single-128m"]


def test_a_case_outside_the_sweep_may_fit_the_pattern() -> None:
    loaded, cases = selection.select("alloc-burst:layout-6000k-malloc")
    assert [case.name for case in cases] == ["layout-6000k-malloc"]
    assert not cases[0].control
    assert loaded.command(cases[0]) == ["/usr/bin/alloc-burst", "--case", "layout-6000k-malloc"]


def test_a_folder_is_a_workload_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, GOOD)
    assert selection.load(path).image_files == ("/usr/bin/mine",)
    monkeypatch.chdir(tmp_path)
    loaded, cases = selection.select("./mine:size-12k,small")
    assert loaded.folder == tmp_path / "mine"
    assert [case.name for case in cases] == ["size-12k", "small"]
    assert loaded.metric("faults").unit == "faults"


@pytest.mark.parametrize(
    ("ref", "hint"),
    [
        ("aloc-burst", "did you mean alloc-burst?"),
        ("nothing-like-it", "alloc-burst"),
        ("", "alloc-burst"),
        ("alloc-burst:layout-4632", "did you mean layout-4632k"),
        ("alloc-burst:zzz", "lab workload show alloc-burst"),
        ("alloc-burst:", "alloc-burst:layout-512k"),
        ("alloc-burst:layout-512k,", "alloc-burst:layout-512k"),
        ("alloc-burst:burst-2m", "burst-2m-8m"),
    ],
)
def test_unknown_names_come_with_a_hint(ref: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        selection.select(ref)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_a_folder_without_a_workload_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no workload\.toml"):
        selection.load(str(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('name = "mine"', "name = ", 2, "not valid TOML"),
        ('name = "large"\n', 'name = "large', 28, "not valid TOML"),
        ("memory_mb = 512", 'memory_mb = "much"', 4, "memory_mb"),
        ("memory_mb = 512", "memory_mb = 1", 4, "memory_mb"),
        ("memory_mb = 512", "memmory_mb = 512", 4, "unknown key 'memmory_mb'"),
        ('better = "lower"', 'better = "smaller"', 20, "metric"),
        ('better = "lower"', 'beter = "lower"', 20, "unknown key 'beter'"),
        ('unit = "faults"\n', "", 17, "unit"),
        ("control = true", "controll = true", 25, "unknown key 'controll'"),
        ('name = "large"', 'name = "small"', 28, "two [[case]] are called 'small'"),
        ('name = "large"', 'name = "A B"', 28, "case"),
        ("primary = true\n", "", None, "no metric is primary"),
        ('better = "lower"', 'better = "lower"\nprimary = true', 21, "2 metrics are primary"),
        ('better = "higher"', 'better = "neither"', 13, "primary metric must be better"),
        ("'size-[0-9]+k'", "'size-[0-9+k'", 8, "not a regular expression"),
        ("schema = 1", "schema = 2", 1, "schema 2"),
        ('"{case}"]', '"x"]', 7, "{case}"),
        ('program = "/usr/bin/mine"', 'program = "mine"', 6, "program"),
        ("[[case]]", "[case]", None, ""),
        ("vcpus = 1", "vcpus = 1\nmodel = 'tbl'", 6, "model"),
        ("vcpus = 1", "vcpus = 1\nisolate = 'yes'", 6, "isolate"),
        ("vcpus = 1", "vcpus = 1\nkconfig = ['AIO']", 6, "kconfig"),
        ("vcpus = 1", "vcpus = 1\nhugepages = 256", 6, "hugepages = 256 is 512 MiB, and the guest has 512 MiB"),
        ("vcpus = 1", "vcpus = 1\nhugepages = -1", 6, "hugepages"),
        ("vcpus = 1", "vcpus = 1\ncmdline = ['a b']", 6, "cmdline"),
        ("vcpus = 1", "vcpus = 1\nfiles = ['none.fio']", 6, "'none.fio': no such file"),
        ("vcpus = 1", "vcpus = 1\nfiles = ['/etc/passwd']", 6, "not inside the workload's folder"),
        ("vcpus = 1", "vcpus = 1\nfiles = ['../mine/../../x']", 6, "not inside the workload's folder"),
        ("vcpus = 1", "vcpus = 1\noperations = 'fault'", 6, "no [[metric]] is called 'fault'"),
        ("vcpus = 1", 'vcpus = 1\nsetup = ["a\\tb"]', 6, "setup"),
        ('better = "lower"', 'better = "lower"\npattern = "x"', 21, "has a pattern, and is read as json"),
        ('better = "lower"', 'better = "lower"\nparse = "regex"', 18, "needs a pattern"),
        ('better = "lower"', 'better = "lower"\nparse = "xml"', 21, "parse"),
        ('better = "lower"', 'better = "lower"\nparse = "regex"\npattern = "(x"', 22, "not a regular expression"),
        ('better = "lower"', 'better = "lower"\nparse = "regex"\npattern = "x"', 22, "0 groups, not one"),
        ("primary = true", "primary = true\noptional = true", 15, "the primary metric cannot be optional"),
        ("control = true", "memory_mb = 513", 25, "the case small needs 513 MiB, and the guest has 512 MiB"),
        ("control = true", 'args = ["a\\nb"]', 25, "args"),
        ("control = true", "file = 'none'", 25, "'none': no such file"),
        ("[[case]]", "[settings]\nthp = 'nver'\n[[case]]", 24, "thp=nver: not a value of thp"),
        ("[[case]]", "[settings]\ntph = 'never'\n[[case]]", 24, "unknown setting 'tph'"),
        ("[[case]]", "[settings]\nhugepages = 3\n[[case]]", 24, "hugepages is not set here"),
        ("[[case]]", "[settings]\n'env.A' = 'b'\n[[case]]", 24, "env.A is not set here"),
        ("[[case]]", "[settings]\nsysctl.vm.x = 1.5\n[[case]]", 24, "sysctl.vm.x: a setting is a string or a whole"),
        ("[[case]]", "[env]\nLAB_SEED = '1'\n[[case]]", 24, "LAB_SEED: names that begin with LAB_"),
        ("[[case]]", "[env]\n'A B' = '1'\n[[case]]", 24, "'A B' is not the name of an environment variable"),
        ("[[case]]", "[env]\nA = 1\n[[case]]", None, "env"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, old: str, new: str, line: int | None, message: str) -> None:
    assert old in GOOD
    path = folder(tmp_path, GOOD.replace(old, new, 1) if "\n[[case]]" in new else GOOD.replace(old, new))
    with pytest.raises(UserError) as caught:
        selection.load(path)
    assert message in caught.value.message
    assert "workload.toml" in caught.value.message
    if line is not None:
        assert f"workload.toml:{line}: " in caught.value.message


def test_a_misspelt_key_comes_with_what_was_meant(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        selection.load(folder(tmp_path, GOOD.replace("primary = true", "primry = true")))
    assert caught.value.hint == "did you mean primary?"


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
thp = "never"
thp.defrag = "always"
sysctl.vm.swappiness = 10

[env]
GLIBC_TUNABLES = "glibc.malloc.hugetlb=1"
"""
)


@pytest.fixture
def needy(tmp_path: Path) -> Workload:
    (tmp_path / "mine" / "data").mkdir(parents=True)
    (tmp_path / "mine" / "data" / "a b.txt").touch()
    text = NEEDY.replace('thp = "never"\nthp.defrag', "thp.defrag")
    (tmp_path / "mine" / "workload.toml").write_text(text)
    return selection.load(str(tmp_path / "mine"))


def test_what_a_workload_needs_of_its_guest(needy: Workload) -> None:
    assert (needy.model, needy.isolate, needy.parse, needy.operations) == ("full", True, "regex", "faults")
    assert needy.kconfig == ("CONFIG_AIO",) and needy.setup == ("/bin/busybox", "true")
    assert needy.own_files == {"/workload/data/a b.txt": needy.folder / "data" / "a b.txt"}
    assert needy.settings == {"hugepages": "16", "thp.defrag": "always", "sysctl.vm.swappiness": "10"}
    assert next(iter(needy.settings)) == "hugepages", "while memory is whole"


def test_cases_have_arguments(needy: Workload) -> None:
    large, small = needy.case("large"), needy.case("size-4k")
    assert needy.command(large) == ["/usr/bin/mine", "--case", "large", "--size", "large"]
    assert needy.command(small) == ["/usr/bin/mine", "--case", "size-4k", "--plain"]
    inside = msgspec.structs.replace(needy, argv=("{args}", "--file", "{file}"))
    case = Case(name="x", args=("-v",), file="jobs/x.fio")
    assert inside.command(case) == ["/usr/bin/mine", "-v", "--file", "/workload/jobs/x.fio"]


def test_an_arm_s_own_win_over_the_workload_s(needy: Workload) -> None:
    arm = {
        "thp.defrag": "never",
        "cmdline.null_blk.queue_mode": "1",
        "cmdline.quiet": "",
        "env.A": "1",
        "hugepages": "2",
    }
    assert needy.arguments(arm) == ["nosmt", "null_blk.queue_mode=1", "quiet"]
    assert needy.arguments({}) == ["null_blk.queue_mode=2", "nosmt"]
    assert needy.guest_settings({"thp": "always", "thp.defrag": "madvise"}, arm) == {
        "thp": "always", "thp.defrag": "never", "hugepages": "2", "sysctl.vm.swappiness": "10",
    }  # fmt: skip
    assert needy.environment(arm) == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "A": "1"}
    assert needy.environment({"env.GLIBC_TUNABLES": "x"}) == {"GLIBC_TUNABLES": "x"}


def test_a_guest_of_its_own_for_each_case(needy: Workload) -> None:
    cases = list(needy.cases)
    assert needy.by_guest(cases) == [[cases[0]], [cases[1]]]
    assert msgspec.structs.replace(needy, isolate=False).by_guest(cases) == [cases]


def test_all_of_it_is_shown(needy: Workload) -> None:
    shown = workload.render(needy)
    for words in (
        "one for each case", "null_blk.queue_mode=2 nosmt", "hugepages=16, thp.defrag=always", "GLIBC_TUNABLES=",
        "CONFIG_AIO", "data/a b.txt", "/bin/busybox true", "regex", "full", "per faults",
    ):  # fmt: skip
        assert words in shown, words
    assert msgspec.to_builtins(needy, enc_hook=str)["env"] == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


# --- the user's files as cases ---


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "My job, 2.fio").write_text("[job]")
    return tmp_path / "My job, 2.fio"


def test_a_file_is_a_case(job: Path) -> None:
    chosen, (case,) = selection.select("fio:./My job, 2.fio")
    assert (case.name, case.file) == ("my-job-2", str(job))
    assert chosen.command(case) == ["/usr/bin/fio", "--output-format=json", "/workload/user/my-job-2"]
    _, cases = selection.select(f"fio:null-randread-4k,{job.rename(job.with_name('b.fio'))}")
    assert [case.name for case in cases] == ["null-randread-4k", "b"]


def test_files_of_several_options_are_cases_of_one_workload(job: Path) -> None:
    (job.parent / "b.fio").write_text("")
    ((chosen, cases),) = selection.select_all(["fio:./My job, 2.fio", "fio:./b.fio", "fio:null-randread-4k"])
    assert [case.name for case in cases] == ["my-job-2", "b", "null-randread-4k"]
    assert chosen.case("my-job-2") == cases[0] and chosen.case("b") == cases[1]


def test_a_plan_means_the_same_from_any_folder(job: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (job.parent / "b.fio").write_text("")
    texts = [
        selection.canonical(text)
        for text in ("fio:./My job, 2.fio", "fio:b,null-randread-4k".replace("b,", "./b.fio,"))
    ]
    assert texts == [f"fio:{job}", f"fio:{job.parent}/b.fio,null-randread-4k"]
    assert selection.canonical("alloc-burst") == "alloc-burst"
    assert selection.only(texts, "fio", "my-job-2") == f"fio:{job}"
    assert selection.only(texts, "fio", "null-randread-4k") == "fio:null-randread-4k"


def test_a_file_that_changed_is_noticed(job: Path) -> None:
    files = selection.user_files(["fio:./My job, 2.fio", "alloc-burst"])
    assert list(files) == [str(job)]
    selection.require_unchanged(files)
    job.write_text("[other]")
    with pytest.raises(UserError, match="has changed since it was measured"):
        selection.require_unchanged(files)
    job.unlink()
    with pytest.raises(UserError, match="is gone"):
        selection.require_unchanged(files)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("fio:./none.fio", "no such file", ""),
        ("fio:./notes.txt", r"takes files called \*\.fio", ""),
        ("fio:notes.txt", "no case 'notes.txt'", "fio:./notes.txt"),
        ("alloc-burst:./notes.txt", "no case", "lab workload show"),
        ("script:./---", "neither letters nor digits", ""),
        ("fio:./null-randread-4k.fio", "already has a case called null-randread-4k", "rename"),
    ],
)
def test_files_that_cannot_be_cases(job: Path, text: str, message: str, hint: str) -> None:
    for name in ("notes.txt", "---", "null-randread-4k.fio"):
        (job.parent / name).write_text("")
    with pytest.raises(UserError, match=message) as caught:
        selection.select(text)
    assert hint in (caught.value.hint or "")


def test_list_and_show_print_text_and_json() -> None:
    runner = CliRunner()
    listed = runner.invoke(main.lab, ["workload", "list"], catch_exceptions=False)
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert names == sorted(names)
    assert {"aio-hugetlbfs", "alloc-burst", "pointer-chase"} <= set(names)
    document = json.loads(runner.invoke(main.lab, ["workload", "list", "--json"], catch_exceptions=False).stdout)
    assert [workload["name"] for workload in document["workloads"]] == names
    shown = runner.invoke(main.lab, ["workload", "show", "alloc-burst"], catch_exceptions=False).stdout
    assert "* throughput" in shown
    assert "layout-4632k" in shown
    document = json.loads(
        runner.invoke(main.lab, ["workload", "show", "alloc-burst", "--json"], catch_exceptions=False).stdout
    )
    assert [metric["name"] for metric in document["metrics"] if metric["primary"]] == ["throughput"]
