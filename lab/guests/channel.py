"""The channel to a guest: the job that goes in, the report that comes out. Pure functions over bytes.

The job is a text file of TAB-separated fields (`images/guest/init/job.h`); the report is one JSON object per line,
tagged by `t`. A guest can be killed at any instant, so a report can stop anywhere, even inside a line: the lines before
are kept, and `complete` is false.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from lab.core import cpio
from lab.core.errors import GuestFailed, GuestFailure, UserError
from lab.core.records import DAMAGED

SEED_MAX = 2**64 - 1

Count = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number that a guest counted."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="hello"):
    """The guest, as its init sees it."""

    release: str
    clocksource: str
    mem_kb: int
    cmdline: str
    cpus: int


class Refusal(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="refused"):
    """A setting that the guest's kernel did not accept."""

    name: str
    value: str
    error: str


class _Setting(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="setting"):
    name: str
    value: str


class _Begin(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="begin"):
    case: str
    now_ns: int


class _Out(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="out"):
    case: str
    line: str
    more: bool = False


class _Err(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="err"):
    case: str
    line: str
    more: bool = False


class _Vmstat(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="vmstat"):
    case: str
    delta: dict[str, Count]


class _End(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="end"):
    case: str
    status: int
    signal: int
    oom_kills: int
    now_ns: int
    usage: dict[str, Count] = msgspec.field(default_factory=dict)
    error: str | None = None
    truncated: bool = False


class _Fatal(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="fatal"):
    error: str


class _Done(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="done"):
    lines: int


_Line = Hello | _Setting | Refusal | _Begin | _Out | _Err | _Vmstat | _End | _Fatal | _Done
_decoder: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


class CaseFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of one case in a guest that ran to its end. log: the name of the file that says more."""

    kind: GuestFailure
    message: str
    hint: str | None = None
    log: str | None = None


class CaseOutcome(msgspec.Struct, kw_only=True):
    """The outcome of one case. `ended` is false for the case in which the guest was lost."""

    name: str
    begin_ns: int
    end_ns: int | None = None
    ended: bool = False
    status: int | None = None  # as a shell gives it: 127 could not be started, 128 + signal if killed
    signal: int = 0
    oom_kills: int = 0
    error: str | None = None  # why the program could not be started
    truncated: bool = False  # more output than the guest keeps
    usage: dict[str, int] = msgspec.field(default_factory=dict)  # guest time, faults, memory of the program
    metrics: dict[str, float] = msgspec.field(default_factory=dict)  # see lab.guests.output
    series: dict[str, list[list[float]]] = msgspec.field(default_factory=dict)  # curves, likewise
    vmstat: dict[str, int] = msgspec.field(default_factory=dict)
    stdout: list[str] = msgspec.field(default_factory=list)
    stderr: list[str] = msgspec.field(default_factory=list)
    failure: CaseFailure | None = None  # see lab.guests.output


class GuestReport(msgspec.Struct, kw_only=True):
    """All that a guest reported. `complete` is true only if its last line arrived, and no line is missing."""

    hello: Hello | None = None
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    refused: list[Refusal] = msgspec.field(default_factory=list)
    fatal: str | None = None
    cases: list[CaseOutcome] = msgspec.field(default_factory=list)
    complete: bool = False

    def case(self, name: str) -> CaseOutcome | None:
        """The last outcome of that name; None if the case never began."""
        return next((case for case in reversed(self.cases) if case.name == name), None)

    def outcomes(self, name: str) -> list[CaseOutcome]:
        """All outcomes of that name: a case can run several times in one guest."""
        return [case for case in self.cases if case.name == name]

    @property
    def running(self) -> str:
        """The case that began and did not end; empty without one."""
        return self.cases[-1].name if self.cases and not self.cases[-1].ended else ""


# --- the job ---


def encode_job(
    *,
    settings: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    setups: Iterable[Sequence[str]] = (),
) -> bytes:
    """The bytes of /job; the order is kept."""
    lines = [["set", name, value] for name, value in (settings or {}).items()]
    lines += [["env", f"{name}={value}"] for name, value in (env or {}).items()]
    lines += [["setup", *setup] for setup in setups]
    return "".join(_job_line(fields) for fields in lines).encode()


def encode_cases(seed: int, cases: Sequence[tuple[str, Sequence[str]]]) -> bytes:
    """The bytes of /cases. cases: the name and the command of each, in their order."""
    if not 0 <= seed <= SEED_MAX:
        raise UserError(f"seed {seed} is not between 0 and {SEED_MAX}")
    lines = [["seed", str(seed)]]
    for name, argv in cases:
        if not argv:
            raise UserError(f"case {name} has no program")
        lines.append(["case", name, *argv])
    return "".join(_job_line(fields) for fields in lines).encode()


def pack_job(job: bytes, cases: bytes, size: int = 0) -> bytes:
    """The end of a guest's archive, with both files padded to a size."""
    files = (("job", job), ("cases", cases))
    return b"".join(cpio.entry(name, 0o100444, text.ljust(size, b"\0")) for name, text in files) + cpio.trailer()


def _job_line(fields: Sequence[str]) -> str:
    for field in fields:
        if bad := next((character for character in "\t\n\0" if character in field), None):
            name = {"\t": "TAB", "\n": "newline", "\0": "NUL"}[bad]
            raise UserError(f"{fields[0]} {field!r} has a {name} in it, which a guest's job cannot carry")
    return "\t".join(fields) + "\n"


# --- the report ---


def parse(content: bytes) -> GuestReport:
    """Read a report. A cut last line is dropped; any other line that cannot be read raises `GuestFailed`."""
    report = GuestReport()
    pending: dict[str, list[str]] = {}  # by stream, the pieces of a line that the next record continues
    is_done = False
    # One by one: a guest can write millions of lines.
    for number, line in enumerate(io.BytesIO(content), start=1):
        if is_done:
            raise _malformed(number, "there is more after the guest said it was done", line)
        is_whole = line.endswith(b"\n")
        try:
            record = _decoder.decode(line)
        except DAMAGED as error:
            if not is_whole:
                break
            raise _malformed(number, str(error), line) from error
        if isinstance(record, _Done):
            is_done = True
            report.complete = is_whole and record.lines == number - 1
        else:
            _add(report, record, pending, number, line)
    return report


def _malformed(number: int, why: str, line: bytes) -> GuestFailed:
    shown = line.rstrip(b"\r\n")[:80].decode("ascii", errors="backslashreplace")
    return GuestFailed(GuestFailure.MALFORMED, f"line {number} of the guest's report cannot be read: {why}: {shown!r}")


def _add(report: GuestReport, record: _Line, pending: dict[str, list[str]], number: int, line: bytes) -> None:
    match record:
        case Hello():
            report.hello = record
        case _Setting():
            report.settings[record.name] = record.value
        case Refusal():
            report.refused.append(record)
        case _Fatal() if len(report.fatal or "") < _FATAL_MAX:
            report.fatal = f"{report.fatal}; {record.error}" if report.fatal else record.error
        case _Begin():
            report.cases.append(CaseOutcome(name=record.case, begin_ns=record.now_ns))
            pending.clear()
        case _Out() | _Err() | _Vmstat() | _End():
            outcome = report.cases[-1] if report.cases else None
            if outcome is None or outcome.name != record.case or outcome.ended:
                raise _malformed(number, f"case {record.case!r} is not running", line)
            _add_to_case(outcome, record, pending)


_FATAL_MAX = 4096
"""The characters of fatal errors, behind which no other is added."""


def _add_to_case(outcome: CaseOutcome, record: _Out | _Err | _Vmstat | _End, pending: dict[str, list[str]]) -> None:
    match record:
        case _Out() | _Err():
            stream, lines = ("out", outcome.stdout) if isinstance(record, _Out) else ("err", outcome.stderr)
            pending.setdefault(stream, []).append(record.line)
            if not record.more:
                lines.append("".join(pending.pop(stream)))
        case _Vmstat():
            outcome.vmstat.update(record.delta)
        case _End():
            outcome.ended = True
            outcome.end_ns = record.now_ns
            outcome.usage = record.usage
            outcome.status = record.status
            outcome.signal = record.signal
            outcome.oom_kills = record.oom_kills
            outcome.error = record.error
            outcome.truncated = record.truncated


# --- settings by hand ---

_THP = "/sys/kernel/mm/transparent_hugepage"
_FILES = {
    "thp": f"{_THP}/enabled",
    "thp.defrag": f"{_THP}/defrag",
    "thp.khugepaged": f"{_THP}/khugepaged/scan_sleep_millisecs",
    "hugepages": "/proc/sys/vm/nr_hugepages",
    "lru_gen": "/sys/kernel/mm/lru_gen/enabled",
}


_DEBUGFS = "/sys/kernel/debug"
_CGROUPS = "/sys/fs/cgroup"


def setting_command(name: str, value: str) -> str | None:
    """The shell command for one setting; None if no command can make it."""
    group, _, rest = name.partition(".")
    match group:
        case "sysctl":
            return f"sysctl -w {shlex.quote(rest + '=' + value)}"
        case "sched_feat":
            return f"echo {'NO_' if value == '0' else ''}{rest} > {_DEBUGFS}/sched/features"
        case "debugfs":
            return f"echo {shlex.quote(value)} > {shlex.quote(f'{_DEBUGFS}/{rest}')}"
        case "mthp":
            kib = int(rest[:-1]) << (10 if rest.endswith("m") else 0)  # of a size such as 64k or 2m
            return f"echo {shlex.quote(value)} > {_THP}/hugepages-{kib}kB/enabled"
        case "cgroup":
            return _cgroup_command(rest, value)
    return f"echo {shlex.quote(value)} > {_FILES[name]}" if name in _FILES else None


def _cgroup_command(file: str, value: str) -> str:
    """The shell's own cgroup with one file of it set; the shell's programs are in it."""
    own = f"{_CGROUPS}/lab"
    commands = (
        f"{{ mountpoint -q {_CGROUPS} || mount -t cgroup2 none {_CGROUPS}; }}",
        f"echo +{file.partition('.')[0]} > {_CGROUPS}/cgroup.subtree_control",
        f"mkdir -p {own}",
        f"echo {shlex.quote(value)} > {own}/{file}",
        f"echo $$ > {own}/cgroup.procs",
    )
    return " && ".join(commands)
