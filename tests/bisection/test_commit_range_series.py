"""Packages by version, and patches one by one."""

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.bisection import commit_range, search
from lab.bisection.answer import Answer, load
from lab.bisection.commit_range import Candidate
from lab.bisection.proof import Prover
from lab.cli import main
from lab.compare import result_folders, runs
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.kernels import debs, trees
from lab.kernels.debs import DebSource
from lab.kernels.kernel import Kernel, KernelSpec
from lab.kernels.package_lists import Offer, PackageLists

from ..fakes import bisection as fakebisect
from ..fakes.bisection import line, start
from ..fakes.bisector import Bisector
from ..fakes.kernel import git

NAMES = {"linux-image-6.12.9-cloud-amd64": "6.12.9-1", "linux-image-6.12.10-cloud-amd64": "6.12.10-1",
         "linux-image-6.12.57-cloud-amd64": "6.12.57-1", "linux-image-6.1.0-cloud-amd64": "6.1.1-1"}  # fmt: skip
SERIES = "deb:linux-image-6.12.*-cloud-amd64"


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lists(PackageLists):
        def kernel_names(self) -> list[str]:
            return sorted(NAMES)

        def offers(self, packages: Sequence[str]) -> list[Offer]:
            return [Offer("sid", name, NAMES[name]) for name in packages]

    monkeypatch.setattr(debs, "HOST", Lists())
    monkeypatch.setattr(debs, "all_suites", lambda progress, **_: Lists())


@pytest.mark.usefixtures("offered")
def test_packages_are_ordered_by_version_and_settings_behind_a_pattern_are_those_of_each() -> None:
    found = commit_range.packages(SERIES, None, None)
    names = [found.old.id, *(one.id for one in found.candidates)]
    assert names == [f"linux-image-6.12.{n}-cloud-amd64" for n in (9, 10, 57)]
    assert found.new.spec == "deb:linux-image-6.12.57-cloud-amd64"
    assert [one.title for one in found.candidates] == ["6.12.10-1", "6.12.57-1"]
    assert found.graph().is_line
    found = commit_range.packages(f"{SERIES}@mount.fs=ext4", None, None)
    assert [one.spec for one in (found.old, *found.candidates)] == [f"deb:{name}@mount.fs=ext4" for name in names]
    assert found.old.id == names[0]


@pytest.mark.usefixtures("offered")
def test_packages_may_be_narrowed_to_two_ends() -> None:
    pattern, last = "deb:linux-image-6.*", "deb:linux-image-6.12.10-cloud-amd64"
    assert commit_range.packages(pattern, "deb:linux-image-6.12.9-cloud-amd64", last).new.spec == last
    with pytest.raises(UserError, match="does not come after"):
        commit_range.packages(pattern, last, "deb:linux-image-6.12.9-cloud-amd64")
    with pytest.raises(UserError, match="is not in the series"):
        commit_range.packages(pattern, "deb:6.12", None)
    with pytest.raises(UserError, match="0 packages"):
        commit_range.packages("deb:nothing*", None, None)


@pytest.fixture
def deb_bisector(bisector: Bisector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: None) -> Bisector:
    """A bisector whose packages are files: 6.12.57 is slow."""
    bisector.fates["6.12.57-1"] = 60.0

    def obtain(spec: KernelSpec, *_: object, **__: object) -> Kernel:
        if not isinstance(spec.source, DebSource):
            return fakebisect.obtain(spec)
        path = tmp_path / spec.source.package
        path.write_text(f"{bisector.fates.get(spec.source.version, 100.0)}\n{path.name}")
        return Kernel(spec=spec, key=path.name, release="6.12", commit=None, bzimage=path, vmlinux=None, symbols=None)

    monkeypatch.setattr(KernelSpec, "obtain", obtain)
    monkeypatch.setattr(debs, "resolve", lambda name, *_: DebSource(package=name, version=NAMES[name]))
    return bisector


def searched(bisector: Bisector, *more: str, series: str = SERIES) -> Answer:
    assert bisector.run("--series", series, "-w", bisector.workload, "--json", *more) == 0, bisector.said
    return msgspec.json.decode(bisector.printed, type=Answer)


def test_the_package_that_did_it_is_found_and_what_leads_inside_is_said(deb_bisector: Bisector) -> None:
    (found,) = searched(deb_bisector).changes
    assert found.commit == "linux-image-6.12.57-cloud-amd64" and found.proof is not None and found.proof.confirmed
    said = found.inside or ""
    assert said.startswith("no tree known here leads from v6.12.10 to v6.12.57; `lab tree add https://")
    assert f"lab bisect --old v6.12.10 --new v6.12.57 --tree stable -w {deb_bisector.workload}" in said
    assert "  inside      no tree" in deb_bisector.report()


def test_packages_are_not_called_commits(deb_bisector: Bisector) -> None:
    deb_bisector.fates["6.12.10-1"] = "panic"
    answer = searched(deb_bisector)
    assert answer.reason.endswith("the packages left cannot be tested, or lie between such")
    said = deb_bisector.report()
    assert "one of 2 packages, up to linux-image-6.12.57-cloud-amd64" in said and "seeds a package" in said
    deb_bisector.fates.clear()
    assert deb_bisector.run("--series", SERIES, "-w", deb_bisector.workload) == 5
    assert "the ends are alike (0.0 %), and 1 package between them, too" in deb_bisector.printed
    assert "measuring up to 3 packages between them" in deb_bisector.said
    assert "commit" not in deb_bisector.printed + deb_bisector.said


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [(1, "patches", "1 patch"), (2, "patches", "2 patches"), (1_000, "commits", "1,000 commits")],
)
def test_candidates_are_counted_by_their_kind(number: int, kind: str, text: str) -> None:
    assert commit_range.counted(number, kind) == text


@pytest.mark.parametrize(("failing", "ends", "found", "said"), [
    (["6.12.57-1"], "good bad", "linux-image-6.12.57-cloud-amd64", "works -> fails"),
    (["6.12.9-1"], "old new", "linux-image-6.12.10-cloud-amd64", "fails -> works"),
    (["6.12.9-1"], "good bad", "", "the bad end is better"),
    ([], "old new", "", "the ends are alike (the command works)"),
    (list(NAMES.values()), "old new", "", "the ends are alike (the command fails)"),
])  # fmt: skip
def test_a_series_by_whether_a_command_works(
    deb_bisector: Bisector, failing: list[str], ends: str, found: str, said: str
) -> None:
    deb_bisector.fates = {version: "workload" if version in failing else speed for speed, version in
                          enumerate(NAMES.values(), start=50)}  # fmt: skip
    old, new = (f"--{word}" for word in ends.split())
    first, last = (f"deb:linux-image-6.12.{n}-cloud-amd64" for n in (9, 57))
    status = deb_bisector.run("--series", SERIES, old, first, new, last, "--run", "true x")
    assert status == (0 if found else 5), deb_bisector.said
    assert said in deb_bisector.printed
    (answer,) = [load(folder.parent) for folder in result_folders.results_dir().glob("*/result.json")]
    assert [change.commit for change in answer.changes] == ([found] if found else [])
    for change in answer.changes:
        assert change.proof is not None and change.proof.confirmed
        assert "--tree stable --run 'true x'" in (change.inside or "")
    assert deb_bisector.run("status") == 0


def test_a_tree_with_both_tags_is_named(deb_bisector: Bisector) -> None:
    tree = deb_bisector.tree
    start(tree)
    git(tree, "tag", "v6.12.57")
    fakebisect.commit(tree, "one more", 100.0)
    git(tree, "tag", "v6.12.10")
    name = trees.add(str(tree), "mine").name
    wrong_way = searched(deb_bisector).changes[0].inside or ""
    assert wrong_way.startswith("no tree known here")
    git(tree, "tag", "-f", "v6.12.57", fakebisect.commit(tree, "another", 60.0))
    assert searched(deb_bisector, "--no-inside").changes[0].inside == (
        f"lab bisect --old v6.12.10 --new v6.12.57 --tree {name} -w {deb_bisector.workload}"
    )
    shutil.rmtree(tree)
    assert (searched(deb_bisector).changes[0].inside or "").startswith("no tree known here")


def with_tags(bisector: Bisector, *fates: float | str) -> list[str]:
    """A known tree whose commits lead from one package's source to the other's."""
    commits = line(bisector.tree, [100.0, *fates])
    git(bisector.tree, "tag", "v6.12.10", commits[0])
    git(bisector.tree, "tag", "v6.12.57", commits[-1])
    trees.add(str(bisector.tree), "mine")
    return commits


def test_the_search_goes_on_inside_the_two_packages(deb_bisector: Bisector) -> None:
    commits = with_tags(deb_bisector, 100.0, 100.0, 60.0, 60.0, 60.0)
    (found,) = searched(deb_bisector).changes
    assert found.commit == "linux-image-6.12.57-cloud-amd64"
    assert f'found: change by {commits[3][:12]} ("change 3")' in (found.inside or "").replace("regression", "change")
    inner = result_folders.open_folder(found.inside_result or "")
    assert [one.commit for one in load(inner).changes] == [commits[3]]
    assert main.run(["report", str(inner)]) == 0
    assert commits[3] in deb_bisector.capsys.readouterr().out


def test_an_end_inside_that_does_not_build_leaves_the_packages_answer(deb_bisector: Bisector) -> None:
    with_tags(deb_bisector, 100.0, "build")
    answer = searched(deb_bisector)
    assert answer.outcome == "found"
    said = answer.changes[0].inside or ""
    assert "does not build" in said and "lab bisect --old v6.12.10" in said
    assert load(result_folders.open_folder(answer.result)) == answer


@pytest.mark.parametrize("left", ["the proof", "the search inside"])
def test_a_stop_after_the_packages_goes_on(deb_bisector: Bisector, monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    commits = with_tags(deb_bisector, 100.0, 60.0)
    with monkeypatch.context() as patch:
        where, last = (Prover, "prove") if left == "the search inside" else (search, "summarize")
        step, done = getattr(where, last), []

        def stop_after(*words: Any, **more: Any) -> Answer:
            answer: Answer = step(*words, **more)
            done.append(last)
            return answer

        patch.setattr(where, last, stop_after)
        patch.setattr(Work, "out_of_time", property(lambda work: bool(done)))
        stopped = searched(deb_bisector)
    (found,) = stopped.changes
    assert found.commit == "linux-image-6.12.57-cloud-amd64" and found.inside_result is None
    assert (found.proof is None) == (left == "the proof")
    assert f"lab bisect resume {stopped.result}" in deb_bisector.said.splitlines()[-1]
    assert not (result_folders.open_folder(stopped.result) / "result.json").exists()
    assert deb_bisector.run("status") == 0
    assert "the proof, or the search inside, is left" in deb_bisector.printed
    assert deb_bisector.run("resume") == 0
    whole = load(result_folders.open_folder(stopped.result))
    (found,) = whole.changes
    assert found.proof is not None and found.proof.confirmed and commits[2][:12] in (found.inside or "")
    guests = len(deb_bisector.guests.calls)
    assert deb_bisector.resumed() == whole and len(deb_bisector.guests.calls) == guests


def test_revisions_of_a_kernel_are_the_tags_of_its_version_or_its_own() -> None:
    def revisions(version: str, spec: str = "deb:linux-image-amd64") -> list[str]:
        return search._revisions(Candidate(id="", title=version, spec=spec, parents=()))

    assert revisions("6.1.76-1~bpo11+1") == ["debian/6.1.76-1_bpo11+1", "v6.1.76"]
    assert revisions("1:6.13~rc4-1~exp1")[1] == "v6.13-rc4"
    assert revisions("unknown") == []
    assert revisions("unknown", "efa7df3e3bb5^") == ["efa7df3e3bb5^"]
    assert revisions("6.12.9-1", "deb:linux-image-arm64:arm64@mount.fs=ext4,thp=never") == [
        f"{tag}%arch=arm64@mount.fs=ext4,thp=never" for tag in ("debian/6.12.9-1", "v6.12.9")
    ]


@pytest.mark.parametrize("mailbox", [False, True])
def test_the_patch_that_did_it_is_found(bisector: Bisector, tmp_path: Path, mailbox: bool) -> None:
    """Seven patches, of which the fifth makes it slow, from `git format-patch`."""
    tree, given = bisector.tree, tmp_path / "patches"
    base = start(tree)
    for i in range(1, 8):
        fakebisect.commit(tree, f"mm: step {i}", 60.0 if i >= 5 else 100.0, f"mm/file{i}.c")
    git(tree, "format-patch", "-q", "-o", str(given), base)
    git(tree, "reset", "-q", "--hard", base)
    files = sorted(given.iterdir())
    if mailbox:
        given = tmp_path / "series.mbox"
        given.write_bytes(b"".join(path.read_bytes() for path in files))
    answer = searched(bisector, "--good", base, "--tree", str(tree), series=str(given))
    (found,) = answer.changes
    assert answer.kind == "patches" and found.title.endswith("mm: step 5")
    assert found.commit == ("0005.patch" if mailbox else files[4].name)
    assert found.proof is not None and found.proof.confirmed
    assert bisector.run("log") == 0
    assert all(line.startswith("#") for line in bisector.printed.splitlines())


def test_options_change_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("CONFIG_SLUB_DEBUG=y\n# CONFIG_PSI is not set\nthp=never\n\n# a remark\n")
    (tmp_path / "b").write_text("CONFIG_PSI=y\nCONFIG_SLUB_DEBUG=y\nthp=always\nhugepages=8\n")
    found = commit_range.options(tmp_path / "a", tmp_path / "b", "v6.12%CONFIG_FOO=m", None)
    assert [one.id for one in found.candidates] == ["CONFIG_PSI", "thp", "hugepages"]
    assert found.old.spec == "v6.12%CONFIG_FOO=m,CONFIG_SLUB_DEBUG=y,CONFIG_PSI=n@thp=never"
    assert found.candidates[1].title == "thp: never -> always"
    assert found.new.spec == "v6.12%CONFIG_FOO=m,CONFIG_SLUB_DEBUG=y,CONFIG_PSI=y@thp=always,hugepages=8"
    with pytest.raises(UserError, match="the same options"):
        commit_range.options(tmp_path / "a", tmp_path / "a", "v6.12", None)
    (tmp_path / "b").write_text("CONFIG_PSI=y\nnonsense\n")
    with pytest.raises(UserError, match="b:2: 'nonsense' is no option"):
        commit_range.options(tmp_path / "a", tmp_path / "b", "v6.12", None)
    (tmp_path / "b").write_text("thpp=never\n")
    with pytest.raises(UserError, match="unknown setting"):
        commit_range.options(tmp_path / "a", tmp_path / "b", "v6.12", None)


def test_the_option_that_did_it_is_found(bisector: Bisector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guests, base = bisector.guests, start(bisector.tree)
    plain, one_at_a_time = guests.measure, threading.Lock()

    def measure(guest: Any, running: Any) -> Any:
        with one_at_a_time:
            guests.value = lambda value, seed, case: 60.0 if guest.arm.settings.get("thp") == "always" else 100.0
            return plain(guest, running)

    monkeypatch.setattr(runs, "measure", measure)
    (tmp_path / "a").write_text("thp=never\n")
    (tmp_path / "b").write_text("sysctl.vm.a=1\nthp=always\nsysctl.vm.b=1\nhugepages=4\n")
    more = ["--good", base, "--tree", str(bisector.tree), "-w", bisector.workload]
    assert bisector.run("--options", str(tmp_path / "a"), str(tmp_path / "b"), *more, "--json") == 0, bisector.said
    answer = msgspec.json.decode(bisector.printed, type=Answer)
    assert [one.commit for one in answer.changes] == ["thp"]
