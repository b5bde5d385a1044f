"""The draft of a regression report: its parts, its addresses, and what it must not say."""

import email
import email.policy
import json
import re
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.compare.cause import Cause, CauseFunction
from lab.compare.results import AbResult
from lab.core import records
from lab.core.errors import UserError
from lab.guests import channel
from lab.kernels import trees
from lab.report import by_hand, culprit, mail
from lab.report.inputs import Comparisons, StoredComparison
from lab.stats.whole import Amount, Whole

from ..fakes import result as fakeresult
from ..fakes.kernel import UPSTREAM, change, commit_all, git, make_kernel
from ..fakes.result import EQUAL, FASTER, HOSTILE, MODEL, SLOWER, arm, case, hostile, result

# Says who keeps the files of a patch, in the words of the kernel's script.
SCRIPT = """\
die "no list of maintainers" unless -e "MAINTAINERS";
die "it looks at git" unless grep { $_ eq "--no-git" } @ARGV;
open(my $patch, "<", $ARGV[-1]) or die;
while (<$patch>) { print "Keeper of $1 <keeper\\@example.org>\\n" if m{^\\+\\+\\+ b/mm/(\\w+)}; }
print "linux-mm\\@example.org\\nKeeper again <KEEPER\\@example.org>\\nnot an address\\n";
"""
TAGS = f"""\
Signed-off-by: Author One <one@example.org>
Reviewed-by: "Reviewer, with a comma" <two@example.org>
Cc: stable@vger.kernel.org # 6.7+
Acked-by: Nobody <nobody@localhost>
Tested-by: {HOSTILE.splitlines()[0]} <evil@example.org>
Reported-by: a\x1b[31m\u202eb <three@example.org>
"""


@pytest.fixture
def tree(tmp_path: Path, own_home: None) -> Path:
    """A kernel tree with a maintainers' script, and a culprit on top."""
    top = make_kernel(tmp_path / "linux")
    (top / "scripts").mkdir()
    (top / "scripts" / "get_maintainer.pl").write_text(SCRIPT)
    commit_all(top, "scripts: maintainers")
    change(top, 4)
    commit_all(top, f"mm: the culprit\n\ncommit {UPSTREAM} upstream.\n\n{TAGS}")
    return top


def _report(tmp_path: Path, top: Path, base: str, document: AbResult | None = None) -> Comparisons:
    commits = (git(top, "rev-parse", base), git(top, "rev-parse", "HEAD"))
    document = document or result(
        base=arm(base, "1", commit=commits[0], subject="before"),
        test=arm("HEAD", "2", commit=commits[1], subject="mm: the culprit"),
    )
    folder = tmp_path / "result"
    item = fakeresult.store(folder, document, commits=commits)
    text = records.unsealed((folder / "plan.json").read_bytes()).decode()
    name = trees.open_tree(str(top)).name
    (folder / "plan.json").write_text(text.replace('"tree": "default"', f'"tree": "{name}"'))
    return Comparisons(items=[item])


def _packaged(reports: Comparisons, **source: str | None) -> Comparisons:
    """The same result, of kernels that are packages."""
    (item,) = reports.items
    plan = records.unsealed((item.folder / "plan.json").read_bytes()).decode()
    (item.folder / "plan.json").write_text(re.sub(r'"source": \{[^}]*\}', f'"source": {json.dumps(source)}', plan))
    return Comparisons(items=[StoredComparison(raw=item.raw, folder=item.folder)])


def _parsed(text: str) -> EmailMessage:
    found = email.message_from_string(text, policy=email.policy.default)
    assert isinstance(found, EmailMessage)
    return found


def test_a_draft_has_what_the_kernel_asks_for(tmp_path: Path, tree: Path) -> None:
    text = mail.comparison(_report(tmp_path, tree, "HEAD^"))
    message = _parsed(text)
    body = message.get_content()
    assert message["Subject"].startswith(
        f"[REGRESSION] {UPSTREAM[:10]}: alloc-burst.layout-4632k.cycles_per_op +58.5 %"
    )
    assert message["To"] == "regressions@lists.linux.dev"
    assert f"\n\n#regzbot introduced: {UPSTREAM}\n\n" in body
    assert f'commit: {UPSTREAM} ("mm: the culprit")' in body
    assert "over 6 pairs of runs; threshold 2 %)" in " ".join(body.split())
    assert "micro-benchmark is unlikely to qualify as regression" in " ".join(body.split())
    for marked in ("| Reported-by: <<", "/r/<<MESSAGE-ID", "<<DRAFT, not sent", "<<attach"):
        assert marked in body
    assert "GLIBC_TUNABLES='a b' /usr/bin/alloc-burst --case layout-4632k\n" in body
    assert MODEL in body and "not measured on hardware" in " ".join(body.split())


def test_a_draft_tells_the_whole_cost_and_its_functions(tmp_path: Path, tree: Path) -> None:
    cost = Whole(caller=Amount(base=100, test=158, ratio=1.58), elapsed=Amount(base=1e6, test=2e6, ratio=2.0))
    document = result(
        msgspec.structs.replace(SLOWER, whole=cost),
        cause=Cause(case=SLOWER.name, cost="cycles", functions=[CauseFunction(name="flush", delta=59.2, share=0.987)]),
        base=arm("HEAD^", "1", commit=git(tree, "rev-parse", "HEAD^")),
        test=arm("HEAD", "2", commit=git(tree, "rev-parse", "HEAD")),
    )
    body = _parsed(mail.comparison(_report(tmp_path, tree, "HEAD^", document))).get_content()
    said = " ".join(body.split())
    assert "The whole cost of an operation: caller +58.0 %, elapsed 1 ms to 2 ms (+100.0 %)." in said
    assert "By function, +58.5 %: flush makes 99 % of it (+59.2 cycles per operation)." in said


def test_author_tree_and_command_are_there_once(tmp_path: Path, tree: Path) -> None:
    body = _parsed(mail.comparison(_report(tmp_path / "a", tree, "HEAD^"))).get_content()
    assert f"\nauthor: <<git show -s --format=%an {UPSTREAM[:12]}>>\n" in body, body
    assert body.count("qemu-system-x86_64") == 1 and '-kernel "$K"' in body and "-plugin" not in body
    assert "own folder (K: vmlinux):" in body and "3. Boot each K and read report.jsonl" in body
    git(tree, "remote", "add", "origin", "https://me:secret@git.example.org/linux.git")
    git(tree, "commit", "-q", "--amend", "--no-edit", "--author", "An Author <an@example.org>")
    body = _parsed(mail.comparison(_report(tmp_path / "b", tree, "HEAD^"))).get_content()
    assert "\nauthor: An Author <an@example.org>\n" in body
    assert re.search(r"^tree: \S+ https://git\.example\.org/linux\.git$", body, re.MULTILINE)
    assert "secret" not in body and str(tree) not in body


def test_everybody_of_the_commit_and_its_files_is_told_once(tmp_path: Path, tree: Path) -> None:
    cc = _parsed(mail.comparison(_report(tmp_path, tree, "HEAD^")))["Cc"]
    assert [str(address) for address in cc.addresses] == [
        "Author One <one@example.org>",
        "two@example.org",
        "three@example.org",
        "Keeper of mmap <keeper@example.org>",
        "linux-mm@example.org",
        "stable@vger.kernel.org",
    ]


def test_a_mainline_release_is_none_of_the_stable_teams_business() -> None:
    assert culprit.same_stable_series("6.12.3", "6.12.117")
    assert not culprit.same_stable_series("6.12.0", "6.12.1")
    assert not culprit.same_stable_series("6.11.9", "6.12.1")
    assert not culprit.same_stable_series("6.12.0-rc1", "6.12.0-rc2")


def test_a_range_blames_nobody(tmp_path: Path, tree: Path) -> None:
    message = _parsed(mail.comparison(_report(tmp_path, tree, "HEAD~2")))
    body = message.get_content()
    assert re.search(r"^#regzbot introduced: [0-9a-f]{12}\.\.[0-9a-f]{12}$", body, re.MULTILINE)
    assert "a range, not a commit" in body
    assert str(message["Cc"]) == "stable@vger.kernel.org"


def test_kernels_of_a_distributor_are_a_range_of_versions(tmp_path: Path, tree: Path) -> None:
    reports = _packaged(_report(tmp_path, tree, "HEAD^"), path="/x", release="r", sha256="s", type="file", modules=None)
    body = _parsed(mail.comparison(reports)).get_content()
    assert "#regzbot introduced: v6.12.117..v6.12.117" in body and "bisect first" in body
    searched = _parsed(mail.comparison(reports, trail=["Found by bisecting 7 packages"])).get_content()
    assert "Found by bisecting" in searched and "bisect first" not in searched


def test_packages_are_downloaded_and_the_mail_is_short(tmp_path: Path, tree: Path) -> None:
    reports = _report(tmp_path, tree, "HEAD^")
    text = mail.comparison(_packaged(reports, type="deb", package="linux-image-6.12-x", version="6.12.5-1"))
    assert text.count("apt-get download linux-image-6.12-x=6.12.5-1\n") == 2 and "git checkout" not in text
    assert "dpkg -x linux-image-6.12-x_*.deb test && scripts/extract-vmlinux test/boot/vmlinuz-* >test/vmlinux" in text
    assert text.count("qemu-system-x86_64") == 1 and "<<attach the .config" not in text
    assert len(text.splitlines()) < 70
    of_file = {"type": "file", "path": "/me/a.rpm", "release": "r", "sha256": "5" * 64, "inside": "lib/x/vmlinuz"}
    for address, get in (("", "# get kernel-core 6:"), ("https://h/a.rpm", "curl -LO https://h/a.rpm")):
        text = mail.comparison(_packaged(reports, **of_file, package="kernel-core 6", address=address))
        assert text.count(f"     {get}\n") == 2 and f"echo '{'5' * 64}  a.rpm' | sha256sum -c\n" in text
        assert "bsdtar -xf a.rpm -C test && scripts/extract-vmlinux test/lib/x/vmlinuz >test/vmlinux" in text
        assert "/me/" not in text and len(text.splitlines()) < 70


@pytest.mark.parametrize("documents", [(result(EQUAL),), (result(FASTER),), (result(), result())])
def test_what_is_no_single_regression_is_no_mail(documents: tuple[AbResult, ...], tmp_path: Path) -> None:
    with pytest.raises(UserError):
        mail.comparison(fakeresult.reports(tmp_path, *documents))


def test_the_same_source_in_both_arms_is_no_commits_doing(tmp_path: Path, tree: Path) -> None:
    with pytest.raises(UserError, match="same source"):
        mail.comparison(_report(tmp_path, tree, "HEAD"))


def test_hostile_words_stay_words(tmp_path: Path, tree: Path) -> None:
    text = mail.comparison(_report(tmp_path, tree, "HEAD^", hostile()))
    message = _parsed(text)
    assert set(message.keys()) == {"To", "Cc", "Subject", "Content-Type", "Content-Transfer-Encoding", "MIME-Version"}
    assert not set(text) & set("\x1b\x00\r\u202e\u2066\ufeff")
    assert "X-Injected" in message["Subject"] and not re.search(r"^X-Injected", text, re.MULTILINE)


# --- the table


def _rows(text: str) -> list[tuple[str, str, str, str]]:
    found = re.findall(r"^ +(\S+(?: ± *\d+%)?) +(\S+%?) +(\S+(?: ± *\d+%)?) +(\S+) \(", text, re.MULTILINE)
    return [tuple(row) for row in found]


def test_the_table_is_read_as_the_robots_is() -> None:
    noisy = case(
        "noisy", [100.0, 110.0, 90.0, 105.0, 95.0, 100.0], [200.0, 210.0, 190.0, 205.0, 195.0, 200.0], holm=True
    )
    text = "\n".join(mail._table(result(SLOWER, noisy), [SLOWER, noisy], SLOWER))
    rows = {row[3]: row for row in _rows(text)}
    assert rows["alloc-burst.layout-4632k.cycles_per_op"][:3] == ("102.50 ±  2%", "+58.5%", "162.50 ±  1%")
    assert rows["page_faults"][:3] == ("10.00", "+650.0%", "75.00")
    assert rows["hit_rate"][:3] == ("50.00", "-2.5", "47.50")  # points, without a percent sign
    assert "vmas" not in rows  # it did not move
    assert '  1111111111 ("mm: before")\n  2222222222 ("mm: the change")\n' in text
    assert "1111111111111111 222222222222222222222222222\n---------------- ---------------------------\n" in text


# --- by hand


def test_qemu_commands_hold_no_path_of_this_machine(tmp_path: Path) -> None:
    item = fakeresult.store(tmp_path / "r", result())
    commands = by_hand.qemu_commands(item, SLOWER)
    assert set(commands) == {"base", "test"}
    assert "somebody" not in "".join(commands.values())
    assert "-kernel base/vmlinux" in commands["base"] and "path=report.jsonl" in commands["base"]
    assert "-append 'quiet init=/init'" in commands["test"] and "-cpu Nehalem,-spec-ctrl" in commands["test"]


@pytest.mark.parametrize(("name", "value", "command"), [
    ("thp", "always", "echo always > /sys/kernel/mm/transparent_hugepage/enabled"),
    ("sysctl.vm.swappiness", "10", "sysctl -w vm.swappiness=10"),
    ("hugepages", "20", "echo 20 > /proc/sys/vm/nr_hugepages"),
    ("thp", "a; reboot", "echo 'a; reboot' > /sys/kernel/mm/transparent_hugepage/enabled"),
    ("sched_feat.DELAY_DEQUEUE", "0", "echo NO_DELAY_DEQUEUE > /sys/kernel/debug/sched/features"),
    ("sched_feat.DELAY_DEQUEUE", "1", "echo DELAY_DEQUEUE > /sys/kernel/debug/sched/features"),
    ("debugfs.sched/preempt", "full", "echo full > /sys/kernel/debug/sched/preempt"),
    ("cmdline.lsm", "landlock", None),
    ("idle", "yes", None),
])  # fmt: skip
def test_settings_are_commands(name: str, value: str, command: str | None) -> None:
    assert channel.setting_command(name, value) == command


def test_a_shell_enters_the_cgroup_that_it_made() -> None:
    steps = (channel.setting_command("cgroup.memory.max", "64M") or "").split(" && ")
    assert steps[1:] == [
        "echo +memory > /sys/fs/cgroup/cgroup.subtree_control",
        "mkdir -p /sys/fs/cgroup/lab",
        "echo 64M > /sys/fs/cgroup/lab/memory.max",
        "echo $$ > /sys/fs/cgroup/lab/cgroup.procs",
    ]


@pytest.mark.parametrize(("text", "found"), [
    ("A Name <a@example.org>", ["A Name <a@example.org>"]),
    ("a@example.org", ["a@example.org"]),
    ("A <a@example.org> (maintainer:X)", []),
    ("A <a@example.org>, B <b@example.org>", []),
    ("A\nBcc: <a@example.org>", ["a@example.org"]),
    ("kernel-ab-lab <lab@localhost>", []),
    ("Ünï Cödé <u@example.org>", ["Ünï Cödé <u@example.org>"]),
])  # fmt: skip
def test_addresses(text: str, found: list[Any]) -> None:
    assert list(culprit.addresses([text])) == found
