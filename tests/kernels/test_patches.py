"""Patches in the forms in which people have them: each gives the tree that `git am` would."""

import base64
import gzip
import lzma
import quopri
import textwrap
from pathlib import Path

import pytest

from lab.core import settings
from lab.core.errors import UserError
from lab.kernels import patches
from lab.kernels.kernel import resolve

from ..fakes.kernel import git, make_kernel
from ..fakes.processes import program
from .conftest import tree_of

pytestmark = pytest.mark.usefixtures("own_home")

# With what quoted-printable encodes, and with a line that is longer than a mail's may be.
FIRST = f"""diff --git a/mm/mmap.c b/mm/mmap.c
--- a/mm/mmap.c
+++ b/mm/mmap.c
@@ -3,5 +3,6 @@
 \tint addr = 0;
\x20
-\taddr += 3;
+\taddr += 9; /* "=3D" = é */
+\t/* {"long " * 20} */
\x20
 \treturn addr;
"""
SECOND = """diff --git a/new.c b/new.c
new file mode 100644
--- /dev/null
+++ b/new.c
@@ -0,0 +1 @@
+int new = 1;
"""


def mail(subject: str, body: str, number: str = "0", to: str = "cover", encoding: str = "8bit") -> bytes:
    """One mail of a mailbox, as mail programs write it."""
    plain = body.encode()
    packed = {"8bit": plain, "base64": base64.encodebytes(plain), "quoted-printable": quopri.encodestring(plain)}
    links = f"Message-Id: <{number}@example.org>\nIn-Reply-To: <{to}@example.org>\n" if number else ""
    head = (
        f"From {number} Mon Sep 17 00:00:00 2001\nFrom: A U Thor <a@example.org>\nSubject: {subject}\n{links}"
        "MIME-Version: 1.0\n"
        f"Content-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: {encoding}\n\n"
    )
    return head.encode() + packed[encoding] + b"\n"


def patch(subject: str, diff: str, number: str, encoding: str = "8bit") -> bytes:
    return mail(subject, f"Why.\n---\n mm/mmap.c | 3 ++-\n\n{diff}-- \n2.39.5\n", number, encoding=encoding)


def flowed(subject: str, diff: str, *, trimmed: bool = True, flags: str = "format=flowed") -> bytes:
    """A mail as RFC 3676 has it: lines are wrapped behind a space, and those that begin with one get another.

    trimmed: spaces at the ends of lines are dropped, as the RFC asks for.
    """
    lines, soft = [], " " if "delsp" in flags else ""
    wrapper = textwrap.TextWrapper(
        70, expand_tabs=False, replace_whitespace=False, drop_whitespace=False, break_long_words=False
    )
    for line in f"Why.\n---\n\n{diff}".splitlines():
        pieces = wrapper.wrap(line) or [""]
        pieces[-1] = pieces[-1].rstrip(" ") if trimmed else pieces[-1]
        pieces[:-1] = [piece + soft for piece in pieces[:-1]]
        lines += [f" {piece}" if piece.startswith((" ", ">", "From ")) else piece for piece in pieces]
    sent = mail(subject, "\n".join(lines) + "\n", "1", encoding="base64")
    return sent.replace(b"charset=UTF-8", f"charset=UTF-8; {flags}".encode())


COVER = mail("[PATCH v2 0/2] two", "Both.\n\nbase-commit: 0123456789abcdef0123456789abcdef01234567\n", "cover", "none")
ONE, TWO = patch("[PATCH v2 1/2] one", FIRST, "one"), patch("[PATCH v2 2/2] two", SECOND, "two")
OLDER = patch("[PATCH 1/2] one", FIRST.replace("+= 9", "+= 8"), "older")
REPLY = mail("Re: [PATCH v2 1/2] one", "\n".join(f"> {line}" for line in FIRST.splitlines()), "reply", "one")
INSTEAD = mail("Re: [PATCH v2 2/2] two", f"Rather:\n\n{SECOND.replace('1', '2')}", "instead", "two")
ENCODED = [patch("[PATCH] one", FIRST, "1", encoding) for encoding in ("base64", "quoted-printable")]

ALONE = {
    "diff.patch": FIRST.encode(),
    "mail.patch": patch("[PATCH] one", FIRST, "1"),
    "no-from.eml": patch("[PATCH] one", FIRST, "1").partition(b"\n")[2],
    "crlf.patch": patch("[PATCH] one", FIRST, "1").replace(b"\n", b"\r\n"),
    "crlf.diff": FIRST.encode().replace(b"\n", b"\r\n"),
    "base64.patch": ENCODED[0],
    "base64-crlf.patch": mail("[PATCH] one", FIRST.replace("\n", "\r\n"), "1", encoding="base64"),
    "quoted.patch": ENCODED[1],
    "quoted-crlf.patch": ENCODED[1].replace(b"\n", b"\r\n"),
    "flowed.eml": flowed("[PATCH] one", FIRST),
    "flowed-delsp.eml": flowed("[PATCH] one", FIRST, flags="delsp=yes; format=flowed"),
    "packed.mbox.gz": gzip.compress(ENCODED[1]),
    "packed.patch.xz": lzma.compress(ENCODED[1]),
    "powershell.patch": FIRST.replace("\n", "\r\n").encode("utf-16"),
    "discussed.mbox": ENCODED[0] + mail("Re: [PATCH] one", f"> {FIRST}"[:400], "2", "1"),
}
SERIES = {
    "diff.patch": (FIRST + SECOND).encode(),
    "series.mbox": ONE + TWO,
    "thread.mbox": TWO + REPLY + OLDER + COVER + INSTEAD + ONE + TWO,
    "thread.mbox.gz": gzip.compress(COVER + ONE + REPLY + TWO),
    "crlf.mbox": (COVER + ONE + TWO).replace(b"\n", b"\r\n"),
    "mixed.mbox": patch("[PATCH v2 1/2] one", FIRST, "one", "base64")
    + patch("[PATCH v2 2/2] two", SECOND, "two", "quoted-printable"),
    "unnumbered.mbox": patch("one", FIRST, "") + patch("[PATCH v7] two", SECOND, ""),
}


@pytest.fixture
def linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel, beside the folder that is the current one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return make_kernel(tmp_path / "linux")


@pytest.mark.parametrize("forms", [ALONE, SERIES], ids=["alone", "series"])
def test_every_form_of_a_patch_gives_the_tree_of_git_am(linux: Path, forms: dict[str, bytes]) -> None:
    trees = {}
    for name, content in forms.items():
        Path(name).write_bytes(content)
        trees[name] = tree_of(f"HEAD+{name}", linux).tree_id
    Path("am.mbox").write_bytes(ENCODED[1] if forms is ALONE else ONE + TWO)
    git(linux, "am", "-q", str(Path("am.mbox").absolute()))
    assert trees == dict.fromkeys(forms, git(linux, "rev-parse", "HEAD^{tree}"))


@pytest.mark.parametrize(("content", "said", "hint"), [
    (b"", "it is empty", "save the mails"),
    (b"nothing\n", "no line of it begins a diff", "save the mails"),
    (REPLY, "it is a reply that quotes one", "of the patches themselves"),
    (COVER, "it is the cover letter of a series", "b4 am"),
    (mail("[PATCH] one", f"<html><body>{FIRST}".replace("\n", "<br>"), "1"), "it is HTML", "unchanged"),
    (quopri.encodestring(FIRST.encode()), "is quoted-printable, without the mail header", "unchanged"),
    (COVER + ONE, "2/2 of '[PATCH v2 1/2] one' is missing", "whole thread"),
    (ONE + TWO + patch("[PATCH v2 2/2] two", SECOND, "again"), "two different mails 2/2", "by itself"),
    (gzip.compress(ONE)[:200], "is damaged", ""),
    (lzma.compress(ONE)[:200], "is damaged", ""),
    (FIRST.replace("+= 3", "+= 4").encode(), "mm/mmap.c, the hunk at line 3", "fits only roughly"),
    (COVER + ONE.replace(b"+= 3", b"+= 4") + TWO, "([PATCH v2 1/2] one) does not apply", "it is for 0123456789ab"),
    (patch("one", FIRST, "") + patch("bad", FIRST.replace("+= 3", "+= 4"), ""), "(bad) does not apply", ""),
    (FIRST.replace("\t", "    ").encode(), "the hunk at line 3", "only white space differs"),
    (FIRST.replace("-3,5 +3,6", "-3,6 +3,7").encode(), "does not apply", "line numbers of its hunks are wrong"),
    (FIRST.replace("a/mm", "mm").replace("b/mm", "mm").encode(), "does not apply", "lack the a/ and b/"),
    (FIRST.replace("long long long", "long\nlong").encode(), "line 10 of the diff does not continue", "wrap lines"),
    (flowed("[PATCH] one", FIRST, flags="x=y"), "of the diff does not continue its hunk", "with its headers"),
    (flowed("[PATCH] one", FIRST, trimmed=False), "of the diff does not continue its hunk", "an attachment"),
])  # fmt: skip
def test_what_cannot_be_applied_names_its_cause(linux: Path, content: bytes, said: str, hint: str) -> None:
    Path("x.mbox").write_bytes(content)
    with pytest.raises(UserError) as caught:
        resolve("HEAD+x.mbox", str(linux))
    assert said in caught.value.message and hint in (caught.value.hint or "")


def test_a_patch_that_the_tree_has_is_called_that(linux: Path) -> None:
    Path("x.patch").write_text(FIRST)
    with pytest.raises(UserError) as caught:
        resolve("HEAD+x.patch+x.patch", str(linux))
    assert "the tree has this change already" in (caught.value.hint or "")


def test_a_mailbox_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(patches, "SIZE_MAX", 1 << 16)
    (tmp_path / "x.mbox.gz").write_bytes(gzip.compress(bytes(1 << 20)))
    with pytest.raises(UserError, match="larger than"):
        patches.read(tmp_path / "x.mbox.gz")


@pytest.mark.parametrize("where", ["mailbox", "folder", "Maildir", "configured", "b4"])
def test_a_series_is_found_by_the_id_of_any_of_its_mails(
    linux: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    everything = [OLDER, COVER, ONE, REPLY, TWO, patch("[PATCH] other", SECOND, "other").replace(b"<cover@", b"<no@")]
    thread = b"".join(everything)
    if where == "mailbox":
        Path("box.mbox").write_bytes(thread)
    elif where == "b4":
        (tmp_path / "thread").write_bytes(thread)
        (tmp_path / "bin").mkdir()
        program(tmp_path / "bin" / "b4", f'[ "$1 $2" = "mbox --outdir" ] && cp {tmp_path}/thread "$3/$5.mbx"')
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    else:
        folder = tmp_path / "mails" if where == "configured" else Path("new" if where == "Maildir" else ".")
        folder.mkdir(exist_ok=True)
        for number, one in enumerate(everything):
            (folder / f"{number}{'' if where == 'Maildir' else '.eml'}").write_bytes(one)
        if where == "configured":
            settings.file().parent.mkdir(parents=True)
            settings.file().write_text(f'mails = "{folder}"\n')
    (tmp_path / "both").write_bytes(ONE + TWO)
    both = tree_of(f"HEAD+{tmp_path / 'both'}", linux).tree_id
    for name in ("cover@example.org", "<two@example.org>", "https://lore.kernel.org/linux-mm/one@example.org/"):
        found = tree_of(f"HEAD+lore:{name}@thp=never", linux)
        assert found.tree_id == both and found.patches == (f"lore:{name}",)
    assert tree_of("HEAD+lore:other@example.org", linux).tree_id != both
    for name, said in (("reply@example.org", "a reply that quotes one"), ("gone@example.org", "has the mail gone@")):
        with pytest.raises(UserError, match=said):
            resolve(f"HEAD+lore:{name}", str(linux))
