"""Patches as people have them: a diff, a mail in any encoding, a mailbox with a series, a message id.

git takes mails apart (`git mailsplit`, `git mailinfo`), so a patch has the bytes that `git am` would apply. Threads are
read as b4 reads them: a series is in the order of its numbers, its newest version counts, and replies do not.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import NamedTuple

from lab.core import git, paths, process, settings
from lab.core.errors import UserError
from lab.core.process import CommandFailed
from lab.core.text import listed
from lab.core.user_files import unpacked

_NAMES = (".patch", ".diff", ".mbox", ".mbx", ".eml", ".patch.gz", ".patch.xz", ".mbox.gz")

LORE = "lore:"
"""The start of a patch that is named by the id of its mail."""

SIZE_MAX = 64 << 20
"""The most bytes of a mailbox, unpacked."""

_FETCH_S = 60.0
_DIFF = re.compile(rb"^(diff -|Index: |--- .*\n\+\+\+ )", re.MULTILINE)
_HEADER = re.compile(rb"[!-9;-~]+:|[ \t]")
_VERSION = re.compile(r"\bv(\d+)\b", re.IGNORECASE)
_NUMBERS = re.compile(r"\b(\d+)/(\d+)\b")
_REPLY = re.compile(r"(re|aw|fwd?)\s*:", re.IGNORECASE)
_BASE = re.compile(rb"^base-commit: ([0-9a-f]{12,40})", re.MULTILINE)


class Patch(NamedTuple):
    """One diff. name: its file, and the subject of its mail. base: the commit that its author made it for."""

    name: str
    title: str
    diff: bytes
    base: str = ""


class _Mail(NamedTuple):
    """A mail. links: its own id and the ids that it refers to. total: the patches of its series; 0 without numbers."""

    subject: str
    id: str
    links: frozenset[str]
    diff: bytes
    text: bytes
    version: int
    number: int
    total: int

    @property
    def is_reply(self) -> bool:
        """True for an answer, whose diff is at most a proposal."""
        return bool(_REPLY.match(self.subject))

    @property
    def is_cover(self) -> bool:
        """True for the letter that comes before a series."""
        return self.total > 0 and self.number == 0 and not self.is_reply


def is_name(text: str) -> bool:
    """True for a name that can only be a patch's, whether there is such a file or mail or not."""
    return text.endswith(_NAMES) or text.startswith(LORE)


def read(path: Path) -> list[Patch]:
    """The patches of a file, in the order in which they are applied."""
    text = unpacked(path, SIZE_MAX).lstrip(b"\r\n")
    if not _is_mail(text):
        return [Patch(path.name, path.name, _plain(text, path.name), _base([text]))]
    mails = _split(text, path.name)
    threads = _threads(mails)
    named = [patch for thread in threads for patch in _series(thread, path.name, _newest(thread))]
    if not named:
        raise UserError(f"{path.name} has no patch in it: {_why_none(mails)}", hint=_SAVE)
    return named


def by_id(text: str) -> list[Patch]:
    """The series of a mail, named by id or by its address at lore: from a mailbox, or fetched by b4 if there is one."""
    name = text.removeprefix(LORE).strip("<>")
    if "://" in name:
        name = name.rstrip("/").rpartition("/")[2]
    named_folder = settings.load().mails
    folders = [*([paths.expanded(named_folder)] if named_folder else []), Path.cwd(), paths.cache_dir("mails")]
    if not name:
        raise UserError(f"{text!r} has no message id", hint="write e.g. v6.12+lore:20240101.1234@example.org")
    thread = _thread_of(name, folders) or (_fetch(name, folders[-1]) and _thread_of(name, folders[-1:]))
    if not thread:
        raise UserError(
            f"no mailbox in {listed([str(folder) for folder in folders[:-1]], 'or')} has the mail {name}",
            hint=f"save its thread there, e.g. `b4 mbox {name}`, or name the folder: mails = PATH in {settings.file()}",
        )
    (named,) = (mail for mail in thread if mail.id == name)
    if not named.diff and not named.is_cover:
        raise UserError(f"the mail {name} has no patch in it: {_why_none([named])}", hint="name the mail of the patch")
    found = _series(thread, f"{LORE}{name}", named.version) if named.total else [_patch(named, f"{LORE}{name}", [])]
    if not found:
        raise UserError(f"{LORE}{name} has no patches: the mailbox has the cover letter alone", hint=_SAVE)
    return found


_SAVE = "save the mails of the patches themselves, unchanged, e.g. with `b4 am`"


# ---- files


def _is_mail(text: bytes) -> bool:
    """True for a text that `git am` takes for a mail: a line `From ` of a mailbox, or headers alone at its start."""
    if text.startswith((b"From ", b"From:")):
        return True
    head = re.split(rb"\r?\n\r?\n", text, maxsplit=1)[0].splitlines()
    return bool(head) and head[0][:1].strip() != b"" and all(map(_HEADER.match, head))


def _plain(text: bytes, name: str) -> bytes:
    """A diff without mail headers. A mail program may have dropped the name of its encoding."""
    found = _DIFF.search(text)
    if found is None:
        why = "it is empty" if not text.strip() else _why_none_in(text)
        raise UserError(f"{name} has no patch in it: {why}", hint=_SAVE)
    if text[found.start() :].partition(b"\n")[0].endswith(b"\r"):
        text = text.replace(b"\r\n", b"\n")
    if b"=3D" in text and not re.search(rb"=(?![0-9A-F]{2}|\r?$)", text, re.MULTILINE):
        raise UserError(f"{name} is quoted-printable, without the mail header that says so", hint=_SAVE)
    return text


# ---- mails


def _split(text: bytes, name: str) -> list[_Mail]:
    with process.scratch("lab-mails-") as folder:
        box, into = folder / "box", folder / "mails"
        box.write_bytes(text)
        into.mkdir()
        try:
            git.run("mailsplit", "-b", f"-o{into}", "--", box)
            return [_mail(path, folder) for path in sorted(into.iterdir())]
        except CommandFailed as error:
            raise UserError(f"{name} has a mail that git cannot read: {error.message}", hint=_SAVE) from error


def _mail(path: Path, folder: Path) -> _Mail:
    text = path.read_bytes()
    argv = ("mailinfo", "-k", "--no-scissors", "--quoted-cr=strip", "--encoding=UTF-8")
    info = git.run(*argv, folder / "message", folder / "diff", stdin=text).decode(errors="replace")
    diff = (folder / "diff").read_bytes()
    subject = re.search(r"^Subject: (.*)", info, re.MULTILINE)
    headers = BytesHeaderParser().parsebytes(text)
    own, *others = (_ids(headers[key]) for key in ("message-id", "in-reply-to", "references"))
    title = subject[1].strip() if subject else ""
    brackets = " ".join(re.findall(r"\[([^]]*)\]", title))
    version, numbers = _VERSION.search(brackets), _NUMBERS.search(brackets)
    return _Mail(
        subject=title,
        id=own[0] if own else "",
        links=frozenset(own).union(*others),
        diff=diff if _DIFF.search(diff) else b"",
        text=(folder / "message").read_bytes() + diff,
        version=int(version[1]) if version else 0,
        number=int(numbers[1]) if numbers else 0,
        total=int(numbers[2]) if numbers else 0,
    )


def _ids(header: object) -> list[str]:
    return re.findall(r"<([^<>\s]+)>", str(header or ""))


def _threads(mails: Sequence[_Mail]) -> list[list[_Mail]]:
    """The mails by thread, in the order of the mailbox, and each mail once. Without links, a mail is by itself."""
    threads: list[tuple[set[str], list[_Mail]]] = []
    known = set[str]()
    for mail in mails:
        if mail.id and mail.id in known:
            continue
        known.add(mail.id)
        linked = [thread for thread in threads if thread[0] & mail.links]
        links = set(mail.links).union(*(links for links, _ in linked))
        joined = (links, [*(one for _, others in linked for one in others), mail])
        at = threads.index(linked[0]) if linked else len(threads)
        threads = [thread for thread in threads if thread not in linked]
        threads.insert(at, joined)
    return [thread for _, thread in threads]


def _newest(thread: Sequence[_Mail]) -> int:
    return max((mail.version for mail in thread if mail.diff and not mail.is_reply), default=0)


def _series(thread: Sequence[_Mail], name: str, version: int) -> list[Patch]:
    """The patches of a thread's version, by number; patches of replies only if there is nothing else."""
    every = [mail for mail in thread if mail.diff]
    mails = [mail for mail in every if not mail.is_reply and mail.version == version] or every
    mails.sort(key=lambda mail: mail.number)
    total = max((mail.total for mail in mails), default=0)
    numbers = [mail.number for mail in mails if mail.total]
    lacking = [f"{number}/{total}" for number in range(1, total + 1) if number not in numbers]
    if lacking and len(thread) > 1:
        raise UserError(
            f"{name} has not all patches of its series: {listed(lacking, 'and')} of {mails[0].subject!r} is missing",
            hint="save the whole thread, or give single patches one by one: REV+FIRST.patch+SECOND.patch",
        )
    if twice := next((number for number in numbers if numbers.count(number) > 1), None):
        raise UserError(f"{name} has two different mails {twice}/{total}", hint="save the right one by itself")
    return [_patch(mail, name, thread) for mail in mails]


def _patch(mail: _Mail, name: str, thread: Sequence[_Mail]) -> Patch:
    texts = [one.text for one in thread if one.version == mail.version] or [mail.text]
    return Patch(f"{name} ({mail.subject})" if mail.subject else name, mail.subject or name, mail.diff, _base(texts))


def _base(texts: Sequence[bytes]) -> str:
    return next((found[1].decode() for text in texts if (found := _BASE.search(text))), "")


def _why_none(mails: Sequence[_Mail]) -> str:
    if len(mails) == 1 and mails[0].is_cover:
        return "it is the cover letter of a series"
    return next((_why_none_in(mail.text) for mail in mails if mail.text.strip()), "it is empty")


def _why_none_in(text: bytes) -> str:
    if re.search(rb"^[>|] ?(diff -|--- |\+\+\+ )", text, re.MULTILINE):
        return "it is a reply that quotes one"
    return "it is HTML" if re.search(rb"<html|<body|<div", text, re.IGNORECASE) else "no line of it begins a diff"


# ---- mails by their ids


def _thread_of(name: str, folders: Sequence[Path]) -> list[_Mail]:
    """The thread of a mail, from all mailboxes that have a part of it; empty without the mail."""
    boxes = [path for folder in folders for path in _boxes(folder)]
    wanted, mails = {name}, list[_Mail]()
    for _ in range(2):  # a patch does not name the others of its series: they and it name the cover letter
        mails = [mail for path in boxes for mail in _mentioning(path, wanted)]
        wanted.update(*(mail.links for mail in mails if mail.id == name))
    return next((thread for thread in _threads(mails) if name in (mail.id for mail in thread)), [])


def _mentioning(path: Path, wanted: set[str]) -> list[_Mail]:
    """The mails of a file that has one of some ids; none if it cannot be read."""
    try:
        text = unpacked(path, SIZE_MAX).lstrip(b"\r\n")
        return _split(text, path.name) if _is_mail(text) and any(one.encode() in text for one in wanted) else []
    except UserError:
        return []


def _boxes(folder: Path) -> Iterator[Path]:
    """The mailboxes of a folder, and the mails of Maildirs; a file is a mailbox itself."""
    if folder.is_file():
        yield folder
    elif folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name.endswith(_NAMES) and path.stat().st_size <= SIZE_MAX:
                yield path
            elif path.name in ("cur", "new") and path.is_dir():
                yield from sorted(one for one in path.iterdir() if one.is_file())
            elif (path / "cur").is_dir():
                yield from _boxes(path)


def _fetch(name: str, into: Path) -> bool:
    """Have b4, if it is installed, put the thread of a mail into a folder."""
    if shutil.which("b4") is None:
        return False
    try:
        process.run(["b4", "mbox", "--outdir", into, "--", name], timeout_s=_FETCH_S)
    except (CommandFailed, process.TimedOut):
        return False
    return True
