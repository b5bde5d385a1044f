"""`lab bisect --by files` and `--by hunks`, from the command line to the answer, with kernels that are fakes."""

import re
from pathlib import Path

import pytest

from lab.bisection.answer import Answer, Function, HunkSet, Proof
from lab.bisection.journal import Event, Journal
from lab.bisection.proof import Prover
from lab.compare import result_folders
from lab.core.errors import BuildFailed
from lab.kernels.kernel import Kernel, KernelSpec
from lab.report import wording

from ..fakes import mixes
from ..fakes.bisector import Bisector
from ..fakes.command import Lab
from ..fakes.mixes import commit, text


@pytest.fixture
def bisector(bisector: Bisector, monkeypatch: pytest.MonkeyPatch) -> Bisector:
    for (where, name), what in mixes.REPLACEMENTS.items():
        monkeypatch.setattr(where, name, what)
    return bisector


NEUTRAL = {f"lib/file{number}.c": text("a", "b", "c") for number in range(6)}
CHANGED = {f"lib/file{number}.c": text("A", "b", "C") for number in range(6)}


def committed(top: Path, old: dict[str, str], new: dict[str, str]) -> tuple[str, str]:
    return commit(top, old), commit(top, new)


def planted(top: Path, old: dict[str, str], new: dict[str, str]) -> tuple[str, str]:
    """Two commits with planted files among neutral ones."""
    return committed(top, {**NEUTRAL, **old}, {**CHANGED, **new})


def by(bisector: Bisector, kind: str, ends: tuple[str, str], *more: str) -> Answer:
    return bisector.search(*ends, "--by", kind, *more, words="old new")


def the_only(answer: Answer) -> tuple[HunkSet, Proof]:
    """What carries the only change that was found, and its proof, which confirms it."""
    (found,) = answer.changes
    assert found.hunks is not None and found.proof is not None and found.proof.confirmed
    return found.hunks, found.proof


def test_a_hunk_is_found_and_proved_both_ways(bisector: Bisector) -> None:
    old, new = text("x", "cost 100", "y", "z"), text("X", "cost 130", "Y", "z")
    answer = by(bisector, "hunks", planted(bisector.tree, {"mm/slow.c": old}, {"mm/slow.c": new}))
    assert answer.outcome == "found" and answer.kind == "hunks" and answer.candidates == 15
    hunks, proof = the_only(answer)
    assert (hunks.files, hunks.hunks, hunks.functions) == (["mm/slow.c"], 1, ["f1"])
    assert hunks.share == pytest.approx(1) and hunks.diff[-2:] == ["-\tcost 100", "+\tcost 130"]
    assert proof.fresh is not None and proof.applied is not None
    assert proof.fresh.ratio == pytest.approx(100 / 130) == proof.applied.ratio, "throughput, both ways"
    assert [commit.partition(" ")[2] for commit in hunks.commits] == ["a change"]
    applied = result_folders.load_result(result_folders.open_folder(proof.applied_result or ""))
    assert not set(applied.seeds) & set(answer.seeds)


def test_the_answer_is_shown_in_every_format(bisector: Bisector) -> None:
    ends = planted(bisector.tree, {"mm/slow.c": text("x", "cost 100")}, {"mm/slow.c": text("X", "cost 130")})
    by(bisector, "hunks", ends)
    shown = bisector.report()
    for part in ("14 hunks that the builds read differ", "100 % of the change", "in f1()", "cost 130", "other way"):
        assert part in shown, shown
    for form in ("md", "html", "json"):
        assert "mm/slow.c" in bisector.report(form)
    mail = bisector.report("mail")
    assert "mm/slow.c" in mail and f"{ends[0][:12]}..{ends[1][:12]}" in mail and "+       cost 130" in mail
    assert bisector.run("status") == 0 and "finished" in bisector.printed
    assert bisector.run("log") == 0 and bisector.printed.startswith("# lab bisect --old")


@pytest.mark.long
@pytest.mark.parametrize(("files", "lines"), [(1, 1), (65, 2)])
def test_lines_that_are_close_are_one_hunk_between_distant_releases(bisector: Bisector, files: int, lines: int) -> None:
    """A remark beside the costly line is a hunk of its own only if few files differ."""
    old = {f"mm/far{number}.c": "int a;\n" for number in range(files - 1)} | {"mm/slow.c": "// old\n\n\tcost 100\n"}
    new = {f"mm/far{number}.c": "int b;\n" for number in range(files - 1)} | {"mm/slow.c": "// new\n\n\tcost 130\n"}
    hunks, _ = the_only(by(bisector, "hunks", committed(bisector.tree, old, new)))
    assert hunks.files == ["mm/slow.c"] and hunks.hunks == 1
    assert sum(line.startswith("+") and not line.startswith("+++") for line in hunks.diff) == lines


@pytest.mark.parametrize("kept", [False, True])
def test_names_that_changed_everywhere_are_no_differences(bisector: Bisector, kept: bool) -> None:
    """Between distant releases: each file calls a function by its older name, and the newer end lacks that name.

    kept: a file of the newer end has the older name, too, so it is no rename.
    """
    far = {f"mm/far{number}.c": "\tuses {name}\nint a;\n" for number in range(65)}
    costly, head = text("uses {name}\n\tcost {cost} {name}", "q"), text("has {name}", "r")
    old, new = (
        {path: body.replace("{name}", name).replace("{cost}", cost) for path, body in
         {**far, "mm/slow.c": costly, "include/one.h": head}.items()}
        for name, cost in (("older_name", "100"), ("newer_name", "130"))
    )  # fmt: skip
    more = {"mm/kept.c": text("older_name", "s")} if kept else {}
    answer = by(bisector, "hunks", planted(bisector.tree, {**old, "mm/kept.c": text("s")}, {**new, **more}))
    hunks, proof = the_only(answer)
    assert proof.applied is not None and "+\tcost 130 newer_name" in hunks.diff
    assert (answer.candidates > 70, bool(answer.skipped)) == (kept, kept), answer.reason
    (applied,) = result_folders.open_folder(answer.result).glob("proof/*/apply-*.patch")
    changed = [line for line in applied.read_text().splitlines() if re.match(r"[-+]\s", line)]
    assert kept or (hunks.diff[-2:] == ["-\tcost 100 newer_name", "+\tcost 130 newer_name"])
    assert kept or changed == ["-\tcost 100 older_name", "+\tcost 130 older_name"], "in the names of the older end"
    assert kept == (", with 1 name as in the newer end" not in bisector.said)


@pytest.mark.long
def test_two_files_are_independent_parts_with_their_shares(bisector: Bisector) -> None:
    old = {"mm/one.c": text("cost 100", "q"), "fs/two.c": text("cost 100", "q")}
    new = {"mm/one.c": text("cost 120", "Q"), "fs/two.c": text("cost 160", "Q")}
    answer = by(bisector, "files", planted(bisector.tree, old, new))
    parts = {found.hunks.files[0]: found.hunks.share for found in answer.changes if found.hunks}
    assert answer.outcome == "found" and parts.keys() == {"mm/one.c", "fs/two.c"}
    assert 0.15 < parts["mm/one.c"] < 0.35 and 0.65 < parts["fs/two.c"] < 0.85
    assert all(found.proof and found.proof.confirmed for found in answer.changes)


@pytest.mark.long
def test_a_file_behind_a_header_is_found_with_it(bisector: Bisector, monkeypatch: pytest.MonkeyPatch) -> None:
    named = [Function(name="f0", space="kernel", base=1, test=5)]
    monkeypatch.setattr(Prover, "_explained", lambda *_: (named, []))
    old = {"fs/pipe.c": text("uses spare\n\tcost 10", "cost 100"), "include/pipe.h": text("has spare")}
    new = {"fs/pipe.c": text("uses pool\n\tcost 60", "cost 130"), "include/pipe.h": text("has pool")}
    answer = by(bisector, "files", planted(bisector.tree, old, new))
    hunks, proof = the_only(answer)
    assert sorted(hunks.files) == ["fs/pipe.c", "include/pipe.h"] and proof.applied is not None
    assert any("undeclared" in step.why for step in answer.skipped)
    assert "not decided: fs/pipe.c:" in bisector.said, "not the way to the lab's own folder"


@pytest.mark.long
def test_a_source_gets_the_declarations_of_headers_that_its_old_lines_use(bisector: Bisector) -> None:
    """Neither end builds with the header of the other one, because another file needs its own."""
    old, new = (
        {
            "fs/pipe.c": text(f"uses {name}\n\tcost {cost}", "q"),
            "include/pipe.h": f"static inline void {name}(void)\n{{\n\thas {name}\n}}\n",
            "fs/other.c": text(f"uses {name}"),
        }
        for name, cost in (("spare", 100), ("pool_of", 130))
    )  # fmt: skip
    hunks, proof = the_only(by(bisector, "hunks", planted(bisector.tree, old, new)))
    assert (hunks.files, hunks.lent) == (["fs/pipe.c"], ["spare"])
    assert proof.applied is not None and proof.applied_more == 0
    for form in ("text", "html"):
        assert "declarations of the older headers" in bisector.report(form)


@pytest.mark.long
def test_the_older_end_gets_the_hunks_that_named_ones_need(bisector: Bisector, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newer end builds with the old hunk, the older one with the new hunk only together with another."""
    old = {"fs/pipe.c": text("cost 100"), "fs/other.c": text("q")}
    new = {"fs/pipe.c": text("uses pool\n\tcost 130"), "fs/other.c": text("has pool")}
    failed: list[str] = []

    def obtain(spec: KernelSpec, *args: object, **options: object) -> Kernel:
        try:
            return mixes.obtain(spec, *args, **options)
        except BuildFailed:
            failed.append(Path(spec.text).name)
            raise

    monkeypatch.setattr(KernelSpec, "obtain", obtain)
    whole = by(bisector, "hunks", planted(bisector.tree, old, new))
    hunks, proof = the_only(whole)
    assert hunks.files == ["fs/pipe.c"] and proof.applied_more == 1 and proof.applied is not None
    assert proof.applied.ratio == pytest.approx(100 / 130)
    for form in ("text", "md", "html", "mail"):
        assert "and 1 more hunk that they need" in " ".join(bisector.report(form).split())
    assert len([name for name in failed if name.startswith("apply-")]) == 1
    failed.clear()
    assert bisector.resumed().changes == whole.changes and not failed


@pytest.mark.long
def test_the_older_end_gets_the_needed_hunks_of_the_same_file_alone(bisector: Bisector) -> None:
    old = {"fs/pipe.c": text("cost 100", "q"), "fs/far.c": text("q", "q")}
    new = {"fs/pipe.c": text("uses pool\n\tcost 130", "has pool"), "fs/far.c": text("has pool", "has ring")}
    _, proof = the_only(by(bisector, "hunks", planted(bisector.tree, old, new)))
    assert proof.applied is not None and proof.applied_more == 1


@pytest.mark.long
def test_the_older_end_does_not_keep_a_hunk_that_it_cannot_build(bisector: Bisector) -> None:
    """Two hunks bring the name that it lacks; one of them does not build beside what the older end has."""
    old = {"fs/pipe.c": text("cost 100"), "fs/a.c": text("q"), "fs/b.c": text("q"), "fs/c.c": text("has ring")}
    new = {"fs/pipe.c": text("uses pool\n\tcost 130"), "fs/a.c": text("has pool")}
    new |= {"fs/b.c": text("has pool\n\tgone ring"), "fs/c.c": text("r")}
    _, proof = the_only(by(bisector, "hunks", planted(bisector.tree, old, new)))
    assert proof.applied is not None and proof.applied_more == 1
    assert "3 hunks does not build; without 1 of them" in bisector.said


@pytest.mark.long
def test_the_older_end_may_contradict_what_fresh_seeds_say(bisector: Bisector, lab: Lab) -> None:
    """The costly hunk costs nothing in the older end. Its other hunk is far below the dead band."""
    bisector.guests.value = lambda value, seed, case: 1e6 / {1130: 1100}.get(cost := round(1e6 / value), cost)
    old, new = text("cost 100", "cost 1000"), text("cost 130", "cost 1001")
    answer = by(bisector, "hunks", planted(bisector.tree, {"mm/slow.c": old}, {"mm/slow.c": new}))
    (found,) = answer.changes
    proof = found.proof
    assert proof and proof.fresh and proof.fresh.is_change and proof.applied and not proof.applied.is_change
    assert proof.contradicted and not proof.confirmed
    assert answer.outcome == "undecided"
    assert answer.reason == f"the older end with the hunks of {found.commit[:12]} does not change like that"
    for form in ("text", "md", "html"):
        said = " ".join(lab("report", answer.result, "--format", form).out.split())
        assert "say the same" in said and not re.search("do not confirm", said, re.IGNORECASE)


@pytest.mark.long
def test_a_side_that_does_not_build_is_said(bisector: Bisector) -> None:
    """The newer end with the old hunk builds, the older one with the new hunk does not, and nothing brings its need."""
    old = {"fs/pipe.c": text("cost 100"), "fs/other.c": text("has pool"), "fs/more.c": text("uses pool")}
    new = {"fs/pipe.c": text("gone pool\n\tcost 130"), "fs/other.c": text("q"), "fs/more.c": text("r")}
    hunks, proof = the_only(by(bisector, "files", planted(bisector.tree, old, new)))
    assert hunks.files == ["fs/pipe.c"] and proof.applied is None and "undeclared" in (proof.not_applied or "")


def test_neutral_differences_carry_nothing_and_cost_no_build(bisector: Bisector) -> None:
    ends = planted(bisector.tree, {"mm/a.c": text("cost 100")}, {"mm/a.c": text("cost 100", "new")})
    answer = by(bisector, "hunks", ends)
    assert answer.outcome == "no culprit" and answer.path == []
    assert answer.candidates == 0 and wording.searched(answer) == "no hunks were looked at"


@pytest.mark.long
def test_the_sources_may_be_of_two_trees(bisector: Bisector, tmp_path: Path) -> None:
    other = tmp_path / "other"
    commit(bisector.tree, {**NEUTRAL, "mm/slow.c": text("cost 100")})
    commit(other, {**CHANGED, "mm/slow.c": text("cost 130"), "mm/more.c": text("new")})
    hunks, proof = the_only(by(bisector, "hunks", (f"worktree:{bisector.tree}", f"worktree:{other}")))
    assert hunks.files == ["mm/slow.c"] and proof.applied is not None


@pytest.mark.long
@pytest.mark.parametrize("guests", [6, 8])
def test_a_budget_that_is_used_up_leaves_the_rest_to_resume(bisector: Bisector, guests: int) -> None:
    ends = committed(bisector.tree, {"mm/a.c": text("cost 100", "q")}, {"mm/a.c": text("cost 130", "Q")})
    with bisector.stopped_after(guests):
        stopped = by(bisector, "hunks", ends, "--budget", "1h", "--jobs", "1")
    assert stopped.outcome == "undecided" and "budget" in stopped.reason
    assert bisector.run("status") == 0
    hunks, _ = the_only(bisector.resumed())
    assert hunks.hunks == 1


def interrupted(bisector: Bisector, ends: tuple[str, str]) -> None:
    words = ["--by", "hunks", "--old", ends[0], "--new", ends[1], "--tree", str(bisector.tree)]
    assert bisector.run(*words, "-w", bisector.workload) == 130


def require_the_same(resumed: Answer, whole: Answer) -> None:
    assert [found.hunks for found in resumed.changes] == [found.hunks for found in whole.changes] != []
    assert [step.commit for step in resumed.path] == [step.commit for step in whole.path] != []


@pytest.mark.long
def test_a_stop_after_any_event_resumes_to_the_same_answer(bisector: Bisector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose kernel does not build: the search asks for the same mixes in the same order."""
    old = {"mm/a.h": text("has spare"), "mm/b.c": text("cost 100", "quiet"), "mm/c.c": text("one", "two", "three")}
    new = {"mm/a.h": text("empty"), "mm/b.c": text("cost 130", "Quiet"), "mm/c.c": text("gone spare", "Two", "Three")}
    ends = committed(bisector.tree, old, new)
    whole, append = by(bisector, "hunks", ends), Journal.append
    assert whole.skipped and len(whole.path) >= 4
    for stop in range(1, 4 + len(whole.path)):
        left = [stop]

        def until_stopped(journal: Journal, event: Event, left: list[int] = left) -> None:
            append(journal, event)
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", until_stopped)
            interrupted(bisector, ends)
        require_the_same(bisector.resumed(), whole)


def test_a_stop_within_a_build_resumes_to_the_same_answer(bisector: Bisector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its patch is written and its name is in the history, but no reading is in the journal."""
    old, new = {"mm/a.c": text("cost 100", "q"), "mm/c.c": "c\n"}, {"mm/a.c": text("cost 130", "Q"), "mm/c.c": "C\n"}
    ends = committed(bisector.tree, old, new)
    whole = by(bisector, "hunks", ends)
    with monkeypatch.context() as patch:

        def stopped(spec: KernelSpec, *args: object, **options: object) -> Kernel:
            if "mix-" in spec.text:
                raise KeyboardInterrupt
            return mixes.obtain(spec, *args, **options)

        patch.setattr(KernelSpec, "obtain", stopped)
        interrupted(bisector, ends)
        assert bisector.run("resume") == 130
    require_the_same(bisector.resumed(), whole)


def test_a_recipe_names_the_ends_and_its_limits_do_not_count(bisector: Bisector, tmp_path: Path) -> None:
    ends = committed(bisector.tree, {"mm/a.c": text("cost 100")}, {"mm/a.c": text("cost 130")})
    (tmp_path / "mine.toml").write_text(
        f'schema = 1\nworkload = "{bisector.workload}"\nold = "{ends[0]}"\nnew = "{ends[1]}"\npaths = ["lib"]\n'
    )
    words = ["--by", "hunks", "--recipe", str(tmp_path / "mine.toml"), "--tree", str(bisector.tree)]
    assert bisector.run(*words) == 0 and "mm/a.c" in bisector.printed


def test_what_cannot_be_split_is_refused(bisector: Bisector) -> None:
    ends = planted(bisector.tree, {}, {})
    assert "same source" in bisector.refused(2, "--by", "files", "--old", ends[0], "--new", ends[0])
    settings = bisector.refused(2, "--by", "files", "--old", ends[0], "--new", f"{ends[1]}@thp=never")
    assert "differ in kconfig or settings" in settings
    live = bisector.refused(2, "--by", "hunks", "--mode", "live", "--old", ends[0], "--new", ends[1])
    assert "needs exact mode" in live
