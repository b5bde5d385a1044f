"""Set this machine up for measuring, or put it back, with an Ansible role."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from lab.core import ansible, records
from lab.core.ansible import PlaybookFailed
from lab.core.errors import HostFailed
from lab.core.records import Record

STATE_FILE = Path("/var/lib/kernel-ab-lab/bench-host.json")
_ROOT = Path("/")

Outcome = Literal["set", "to set", "as is", "refused", "absent"]


class Change(Record, frozen=True, kw_only=True):
    """The outcome for one switch. `to set`: with --check. `absent`: not on this machine. `refused`: by the kernel."""

    name: str
    outcome: Outcome
    text: str


class _File(msgspec.Struct, kw_only=True):
    path: str
    before: str | None
    after: str | None
    changed: bool
    refused: str | None = None


def fix(*, without_smt: bool, check: bool, root: Path = _ROOT, state: Path = STATE_FILE) -> list[Change]:
    """Set every switch that can be set, and store its old value. check: change nothing."""
    switches = _play("bench_host", {"bench_host_without_smt": without_smt}, check=check, root=root, state=state)
    return [_change(name, files, check=check) for name, files in switches.items()]


def restore(*, check: bool, root: Path = _ROOT, state: Path = STATE_FILE) -> list[Change]:
    """Put back the files that `fix` changed, if it did; one change for each."""
    if not state.exists():
        return []
    switches = _play("bench_host_restore", {}, check=check, root=root, state=state)
    return [_change(file.path, [file], check=check) for files in switches.values() for file in files]


def succeeded(changes: list[Change]) -> bool:
    """True if there was a switch to set, and the kernel refused none."""
    outcomes = {change.outcome for change in changes}
    return "refused" not in outcomes and bool(outcomes - {"absent"})


def _play(name: str, variables: dict[str, bool], *, check: bool, root: Path, state: Path) -> dict[str, list[_File]]:
    with tempfile.TemporaryDirectory(prefix="lab-bench-host-") as folder:
        report = Path(folder) / "report.json"
        files = {"bench_host_root": str(root), "bench_host_state": str(state), "bench_host_report": str(report)}
        try:
            ansible.play(name, {**variables, **files}, check=check)
        except PlaybookFailed as error:
            raise HostFailed(error.message, hint="it needs root: run it by sudo, or as root") from error
        return records.load(report, dict[str, list[_File]])


def _change(name: str, files: list[_File], *, check: bool) -> Change:
    if not files:
        return Change(name=name, outcome="absent", text="this machine has no such switch")
    refused = [file for file in files if file.refused]
    if refused:
        count = f"{len(refused)} of {len(files)}: " if len(files) > 1 else ""
        return Change(name=name, outcome="refused", text=f"{count}/{refused[0].path}: {refused[0].refused}")
    changed = [file for file in files if file.changed]
    number = f" ({len(files)} CPUs)" if len(files) > 1 else ""
    if not changed:
        return Change(name=name, outcome="as is", text=f"{files[0].after}{number}")
    outcome: Outcome = "to set" if check else "set"
    return Change(name=name, outcome=outcome, text=f"{changed[0].before} -> {changed[0].after}{number}")
