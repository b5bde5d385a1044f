"""Errors that users meet, and the exit status of each.

A message is one line: what happened, to which thing. The hint says what to do next. Only `lab.cli.main` prints
errors and exits.

Exit statuses: 2 for a request that cannot be met (found before work starts), 3 when a build failed, 4 when a guest or
the host failed, 5 when an answer was demanded and the measurements give none.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Literal


class LabError(Exception):
    """Base of all errors that are shown without a traceback."""

    exit_status = 4

    def __init__(self, message: str, *, hint: str | None = None, log: Path | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.log = log


class UserError(LabError):
    """The request cannot be met: a name does not exist, or the input is malformed."""

    exit_status = 2


class BuildFailed(LabError):
    """A kernel, an image or a program did not build."""

    exit_status = 3


class HostFailed(LabError):
    """This machine cannot do the work: a tool is missing or too old, or there is no network."""


class DiskFull(HostFailed):
    """The disk is full. Nothing else works until there is space."""


Blame = Literal["kernel", "workload", "request", "host"]


class GuestFailure(StrEnum):
    """The ways in which a guest fails; the values are stored in results."""

    BUILD = "build"  # a bisection's end did not build, so there was nothing to boot
    PANIC = "panic"
    OOPS = "oops"
    OOM = "oom"
    HANG = "hang"
    NO_REPORT = "no-report"  # the report is cut off, or never began
    WORKLOAD = "workload"  # the program failed, or did not report a metric
    MALFORMED = "malformed"  # the guest's report cannot be read
    UNSUPPORTED = "unsupported"  # the kernel lacks something that the case needs, as its program said
    REFUSED = "refused"  # the guest does not accept a setting
    QEMU_DIED = "qemu-died"

    @property
    def blames(self) -> Blame:
        """The cause of the failure. The host's failures say nothing about the kernel, and may be tried again."""
        match self:
            case GuestFailure.QEMU_DIED:  # by a kernel, maybe; but that is not a measurement of the kernel
                return "host"
            case GuestFailure.REFUSED:
                return "request"
            case GuestFailure.WORKLOAD | GuestFailure.MALFORMED | GuestFailure.UNSUPPORTED:
                return "workload"
        return "kernel"


class GuestFailed(LabError):
    """A guest ran and gave no report. case: the case that ran when it died, if any.

    wrong_flags: QEMU's flags made it die, not its kernel: the same guest with other timing may live.
    """

    wrong_flags = False

    def __init__(
        self, kind: GuestFailure, message: str, *, hint: str | None = None, log: Path | None = None, case: str = ""
    ) -> None:
        super().__init__(message, hint=hint, log=log)
        self.kind = kind
        self.case = case


class Undecided(LabError):
    """A decision was demanded, and the measurements support none."""

    exit_status = 5


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """A question that names the close matches of a word; None when nothing comes close."""
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else None
