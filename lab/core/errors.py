"""What can go wrong, by whose doing, and the exit status each kind has.

A message is one line: what happened, to which thing. The hint says what to do next. Only `lab.cli.main` prints
these and exits; nothing else in the package prints an error.

The rule for the status: 2 for anything the user asked for that cannot be (found before work starts),
3 when building failed, 4 when a guest or the host failed, 5 when an answer was demanded and there is none.

What somebody probably meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class LabError(Exception):
    """Anything a user can cause or meet. Shown without a traceback."""

    exit_status = 4

    def __init__(self, message: str, *, hint: str | None = None, log: Path | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.log = log


class UserError(LabError):
    """The request itself cannot be met: a name that does not exist, input that is malformed."""

    exit_status = 2


class BuildFailed(LabError):
    """Making a kernel or an image failed after it was started."""

    exit_status = 3


class HostFailed(LabError):
    """This machine cannot do it: a tool is missing or too old, the disk is full, no network."""

    exit_status = 4


class DiskFull(HostFailed):
    """There is no room to write. Nothing else will work either until there is."""


class GuestFailed(LabError):
    """A guest ran, and did not deliver. `kind` tells the ways apart.

    kind: one of `panic`, `oops`, `oom`, `hang`, `qemu-died`, `no-report`, `refused` (a setting),
    `workload` (the program failed), `malformed` (it reported something unreadable).
    """

    exit_status = 4

    def __init__(self, kind: str, message: str, *, hint: str | None = None, log: Path | None = None) -> None:
        super().__init__(message, hint=hint, log=log)
        self.kind = kind


class Undecided(LabError):
    """A decision was demanded, and the measurements do not support one."""

    exit_status = 5


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """A question that names the close matches of a word; None when nothing comes close."""
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else None
