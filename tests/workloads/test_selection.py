"""Selections of workloads and cases: shipped ones, folders, and files of the user's."""

import re
from pathlib import Path

import pytest

from lab.cli.workload import render
from lab.core import paths
from lab.core.errors import UserError
from lab.kernels.kconfig import Needs
from lab.workloads import selection
from lab.workloads.spec import limits

from ..docs import blocks
from ..fakes.command import Lab
from .test_spec_file import GOOD, folder


def test_select_takes_all_or_some_cases_once_each() -> None:
    loaded, cases = selection.select("alloc-burst")
    assert cases == list(loaded.cases)
    _, cases = selection.select("alloc-burst:layout-4632k,layout-4632k,single-128m")
    assert [case.name for case in cases] == ["layout-4632k", "single-128m"]


def test_the_options_that_selections_need_are_those_of_their_workloads_and_cases() -> None:
    assert selection.needs_of(["alloc-burst", "boot", "syscalls:sched"]) == Needs()
    fio = selection.needs_of(["alloc-burst", "fio:null-randread-4k"])
    assert "CONFIG_AIO" in fio.required and not fio.optional
    some = selection.needs_of(["fio:null-randread-4k", "syscalls:sched,udp", "syscalls:landlock-open"])
    assert some.required == fio.required
    assert some.optional == {"CONFIG_INET", "CONFIG_SECURITY", "CONFIG_SECURITY_LANDLOCK"}


def test_a_group_stands_for_its_cases() -> None:
    loaded, cases = selection.select("syscalls:sched")
    assert [case.name for case in cases] == [case.name for case in loaded.cases if case.group == "sched"]
    _, both = selection.select("syscalls:getppid,sched,ctx-2")
    assert [case.name for case in both] == ["getppid", *(case.name for case in cases)]
    assert selection.canonical("syscalls:time,getppid") == "syscalls:time,getppid"
    names = ",".join(case.name for case in loaded.cases)
    assert selection.select(f"syscalls:{names}")[1] == list(loaded.cases)
    assert selection.only(["syscalls:sched"], "syscalls", "ctx-2") == "syscalls:ctx-2"
    with pytest.raises(UserError) as caught:
        selection.select("syscalls:shed")
    assert caught.value.hint == "did you mean sched?"


def test_a_pattern_stands_for_the_cases_that_it_fits() -> None:
    _, cases = selection.select("syscalls:ctx-*,getppid,ctx-2")
    assert [case.name for case in cases] == ["ctx-2", "ctx-4", "ctx-8", "ctx-16", "getppid"]
    with pytest.raises(UserError, match=r"has no case like 'cty-\*'") as caught:
        selection.select("syscalls:cty-*")
    assert caught.value.hint == "`lab workload show syscalls` lists them"


SUITES = selection.suites()


@pytest.mark.parametrize("name", SUITES)
def test_a_shipped_suite_has_each_case_in_one_group(name: str) -> None:
    cases = [case for group in SUITES[name].cases().values() for case in group]
    assert len(cases) == len(set(cases))
    chosen = selection.select_all(SUITES[name].selections)
    assert set(cases) == {f"{workload.name}:{case.name}" for workload, some in chosen for case in some}
    assert name not in [workload.name for workload in selection.list_workloads()]


def test_show_and_list_have_the_suites(lab: Lab) -> None:
    listed = lab("workload", "list").out
    assert re.search(r"^quick +20 cases  20 cheap cases", listed, re.MULTILINE)
    shown = lab("workload", "show", "quick").out
    assert "--suite quick" in shown and "\nprocesses, 4 cases:\n  syscalls:getppid\n" in shown
    document = lab("workload", "list", "--json").document
    groups = {suite["name"]: suite["groups"] for suite in document["suites"]}
    assert lab("workload", "show", "quick", "--json").document["groups"] == groups["quick"]
    assert list(groups) == list(SUITES)


def test_show_says_what_exact_mode_cannot_see(lab: Lab) -> None:
    shown = lab("workload", "show", "syscalls").out
    for name, limit in limits().items():
        assert re.search(rf"^  {name} +{re.escape(limit.brief)}$", shown, re.MULTILINE)
    assert re.search("^  ctx-2 .*; unseen: ipis$", shown, re.MULTILINE)
    assert re.search("^  udp-pingpong .*; needs CONFIG_INET; unseen: ipis$", shown, re.MULTILINE)
    assert re.search("^  nanosleep .*; unseen: waiting; not in live mode: its time is that of", shown, re.MULTILINE)
    document = lab("workload", "show", "fio", "--json").document
    assert [limit["name"] for limit in document["limits"]] == list(limits())
    assert document["unseen"] == ["devices", "dma"]


def test_a_folder_is_a_workload_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, GOOD)
    assert selection.load(path).image_files == ("/usr/bin/mine",)
    monkeypatch.chdir(tmp_path)
    loaded, cases = selection.select("./mine:size-12k,small")
    assert loaded.folder == tmp_path / "mine"
    assert [case.name for case in cases] == ["size-12k", "small"]
    assert loaded.metric("faults").unit == "faults"


@pytest.mark.parametrize(("ref", "hint"), [
    ("aloc-burst", "did you mean alloc-burst?"),
    ("", "alloc-burst"),
    ("alloc-burst:layout-4632", "did you mean layout-4632k"),
    ("alloc-burst:", "alloc-burst:layout-512k"),
    ("alloc-burst:burst-2m", "burst-2m-8m"),
])  # fmt: skip
def test_unknown_names_come_with_a_hint(ref: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        selection.select(ref)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


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


def test_files_of_several_options_are_cases_of_one_workload_and_a_plan_has_their_places(job: Path) -> None:
    (job.parent / "b.fio").write_text("")
    ((chosen, cases),) = selection.select_all(["fio:./My job, 2.fio", "fio:./b.fio", "fio:null-randread-4k"])
    assert [case.name for case in cases] == ["my-job-2", "b", "null-randread-4k"]
    assert chosen.case("my-job-2") == cases[0] and chosen.case("b") == cases[1]
    texts = [selection.canonical(text) for text in ("fio:./My job, 2.fio", "fio:./b.fio,null-randread-4k")]
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


@pytest.mark.parametrize(("text", "message", "hint"), [
    ("fio:./none.fio", "no such file", ""),
    ("fio:./notes.txt", r"takes files called \*\.fio", ""),
    ("fio:notes.txt", "no case 'notes.txt'", "fio:./notes.txt"),
    ("alloc-burst:./notes.txt", "no case", "lab workload show"),
    ("script:./---", "neither letters nor digits", ""),
    ("fio:./null-randread-4k.fio", "already has a case called null-randread-4k", "rename"),
])  # fmt: skip
def test_files_that_cannot_be_cases(job: Path, text: str, message: str, hint: str) -> None:
    for name in ("notes.txt", "---", "null-randread-4k.fio"):
        (job.parent / name).write_text("")
    with pytest.raises(UserError, match=message) as caught:
        selection.select(text)
    assert hint in (caught.value.hint or "")


def test_a_file_of_ones_own_is_run_by_script(tmp_path: Path) -> None:
    (tmp_path / "bench.sh").write_text("#!/bin/sh\n")
    with pytest.raises(UserError, match="is a file, not a workload") as caught:
        selection.select(str(tmp_path / "bench.sh"))
    assert f"-w script:{tmp_path / 'bench.sh'}" in str(caught.value.hint)


# --- a new one


def test_a_new_workload_is_sound_and_is_the_one_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lab("workload", "init", "mine").out == (
        "wrote mine/workload.toml, mine/mine.c and mine/Makefile\n"
        "check it:   lab workload check ./mine\nmeasure it: lab ab --base SPEC --test SPEC -w ./mine\n"
    )
    written = {str(path.relative_to(tmp_path)): path.read_text() for path in (tmp_path / "mine").iterdir()}
    page = (paths.top_dir() / "docs" / "own-workload.md").read_text()
    assert written == {name: text for name, text in blocks.files(page).items() if name.startswith("mine/")}
    assert [case.name for case in selection.load("./mine").cases] == ["small", "large"]
    assert "template" not in selection.shipped()


@pytest.mark.parametrize("name", ["Mine", "../mine s", ".", "a" * 65])
def test_a_name_that_no_workload_can_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "is no name for a workload; use small letters" in lab("workload", "init", name, status=2).err
    assert list(tmp_path.iterdir()) == []


def test_a_workload_with_a_number_of_vcpus_is_one_of_its_own() -> None:
    workload, cases = selection.select("contention@4:fstat,getppid")
    assert (workload.name, workload.vcpus, workload.contends) == ("contention@4", 4, True)
    assert [case.name for case in cases] == ["fstat", "getppid"]
    assert selection.canonical("contention@4:fstat") == "contention@4:fstat"
    assert selection.only(["contention@1", "contention@4"], "contention@4", "dup") == "contention@4:dup"
    assert [found.name for found, _ in selection.select_all(["contention@1", "contention@4"])] == [
        "contention@1", "contention@4",
    ]  # fmt: skip
    plain = selection.load("contention")
    assert not plain.contends and plain.vcpus == 1
    assert selection.on_cpus("contention:fstat", (1, 4)) == ["contention@1:fstat", "contention@4:fstat"]
    assert selection.on_cpus("contention", (8,)) == ["contention@8"]
    with pytest.raises(UserError, match="names its vCPUs"):
        selection.on_cpus("contention@4:fstat", (1,))
    with pytest.raises(UserError, match="1 to 16 vCPUs"):
        selection.load("contention@17")


@pytest.mark.parametrize(("text", "has_limits"), [("contention", True), ("contention@4", False)])
def test_vcpus_that_contend_have_no_limit_of_turns(text: str, has_limits: bool) -> None:
    ((workload, _),) = selection.select_all([text])
    shown = render(workload).partition("exact mode does not see")[2]
    assert "devices" in shown
    assert ("\n  contention" in shown, "\n  false-sharing" in shown) == (has_limits, has_limits)
