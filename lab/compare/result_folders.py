"""Stored results: one folder each, filled while measuring, never half-written.

<id>/plan.json          the request, resolved: enough to continue, or to repeat everything
<id>/runs/*.json        every guest's raw report, saved as soon as the guest ended
<id>/boots/*.json       live mode: the same of every boot, and rounds/*.json of every round
<id>/horizon.json       live mode: how many rounds are planned
<id>/guests/*/          console, report and QEMU's messages of each guest
<id>/result.json        the finished document; a folder without it can be resumed
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from filelock import FileLock, Timeout

from lab.compare.plan import ComparisonPlan, Plan
from lab.compare.results import AbResult
from lab.core import paths, records
from lab.core.errors import GuestFailed, HostFailed, UserError
from lab.core.progress import Progress

T = TypeVar("T")

LATEST = "latest"
_LISTED = "`lab report` lists them"


class Clock:
    """The beginning of a measurement."""

    def __init__(self) -> None:
        self.started = records.now()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._began, 3)


def finish(folder: Path, plan: ComparisonPlan, clock: Clock, document: Callable[..., T], **fields: Any) -> T:
    """Save the finished document of a measurement. document: its type; fields: its own, beside the common ones."""
    result = document(
        mode=plan.mode,
        threshold=plan.threshold,
        alpha=plan.alpha,
        started=clock.started,
        seconds=clock.seconds,
        result=reference(folder),
        **fields,
    )
    store_result(folder, result)
    return result


def store_result(folder: Path, result: object) -> None:
    """Save the finished document of a measurement in its folder."""
    records.save(folder / "result.json", result)


def results_dir() -> Path:
    return paths.data_dir("results")


def new_folder(chosen: Path | None) -> Path:
    """A fresh result folder: the requested one, or a new one named by time."""
    if chosen is not None:
        _require_unused(chosen)
        (chosen / "runs").mkdir(parents=True, exist_ok=True)
        return chosen.resolve()
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    folder = results_dir() / name
    (folder / "runs").mkdir(parents=True)
    return folder


def open_folder(reference: str, *, unfinished: bool = False) -> Path:
    """The folder of a result, by id, the unique beginning of an id, `latest`, path, or path below the usual folder.

    `latest` is the newest finished one, or with `unfinished` the newest that can continue; without one the newest of
    all.
    """
    if (Path(reference) / "plan.json").is_file():
        return Path(reference).resolve()
    if "/" in reference and (results_dir() / reference / "plan.json").is_file():
        return results_dir() / reference
    known = [path.parent for path in paths.entries(results_dir(), "*/plan.json")]
    if reference == LATEST and known:
        wanted = [folder for folder in known if is_finished(folder) != unfinished]
        return max(wanted or known, key=lambda folder: ((folder / "plan.json").stat().st_mtime_ns, folder.name))
    matching = [folder for folder in known if folder.name == reference] or [
        folder for folder in known if folder.name.startswith(reference)
    ]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UserError(
            f"'{reference}' is ambiguous: {', '.join(folder.name for folder in matching[:5])}",
            hint="give more of the id",
        )
    raise UserError(f"there is no result '{reference}'", hint=_LISTED)


def is_finished(folder: Path) -> bool:
    """True for a result that has its document; another can continue."""
    return (folder / "result.json").exists()


def unfinished() -> list[Path]:
    """The folders of results that are under way, or were stopped or failed, oldest first."""
    return [path.parent for path in paths.entries(results_dir(), "*/plan.json") if not is_finished(path.parent)]


def delete(folder: Path) -> None:
    """Delete a result with all its measurements; a result that is being written is refused."""
    with claimed(folder):
        shutil.rmtree(folder)


def reference(folder: Path) -> str:
    """The name of a result on the command line: its id, or its path below the usual folder; elsewhere the folder."""
    return folder.relative_to(results_dir()).as_posix() if folder.is_relative_to(results_dir()) else str(folder)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a result folder for writing; a second lab in the same folder is refused, and harms nothing."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"another lab is writing to {folder}",
            hint="wait for it, or measure into another folder with --result",
        ) from None
    except OSError as error:
        raise HostFailed(f"cannot write to {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def kept(folder: Path, progress: Progress) -> Iterator[None]:
    """Around measuring: after a stop, say that results are kept and how to continue. An empty folder is deleted.

    A request that cannot work cannot continue.
    """
    try:
        yield
    except BaseException as error:
        runs = sum(len(list((folder / kind_of_guest).glob("*.json"))) for kind_of_guest in ("runs", "boots"))
        is_empty = all(path.name in ("plan.json", ".lock") for path in folder.rglob("*") if path.is_file())
        if folder.parent == results_dir() and is_empty:
            shutil.rmtree(folder, ignore_errors=True)
            progress.log("stopped before any measurement; downloads and compiled objects are kept")
        elif not _is_impossible(error):
            progress.log(
                f"stopped; {runs} run{' is' if runs == 1 else 's are'} kept. To go on: {resume_command(folder)}"
            )
        if isinstance(error, OSError):
            raise paths.failure(error, folder) from error
        raise


def _is_impossible(error: BaseException) -> bool:
    """True if the request or its program is wrong, so that going on would end alike."""
    return isinstance(error, UserError) or (
        isinstance(error, GuestFailed) and error.kind.blames in ("request", "workload")
    )


def store_plan(folder: Path, plan: ComparisonPlan) -> None:
    """Write a plan into a claimed folder; it must still be unused."""
    _require_unused(folder)
    records.save(folder / "plan.json", plan)


def _require_unused(folder: Path) -> None:
    if (folder / "plan.json").exists():
        raise UserError(
            f"{folder} already holds a result",
            hint=f"go on with it by `{resume_command(folder)}`, or name another",
        )


def kind(folder: Path) -> str:
    """The command that a result is of: `ab`, unless its plan says otherwise."""
    return _stored_kind(folder).kind


def _stored_kind(folder: Path) -> _Kind:
    plan = folder / "plan.json"
    return records.load(plan, _Kind) if plan.exists() else _Kind()


def resume_command(folder: Path) -> str:
    """The command that resumes a result that was interrupted."""
    command = "aa" if _stored_kind(folder).certificate else kind(folder)
    return f"lab {command} {'resume' if command == 'bisect' else '--resume'} {reference(folder)}"


class _Kind(msgspec.Struct):
    kind: str = "ab"
    certificate: bool = False


def require_kind(folder: Path, wanted: str) -> None:
    if (found := kind(folder)) != wanted:
        raise UserError(
            f"{reference(folder)} is a result of `lab {found}`, not of `lab {wanted}`",
            hint=f"`lab report {reference(folder)}` shows it",
        )


def load_plan(folder: Path) -> Plan:
    require_kind(folder, "ab")
    return records.load(folder / "plan.json", Plan)


def load_result(folder: Path) -> AbResult:
    require_kind(folder, "ab")
    return load_finished(folder, AbResult)


def load_finished(folder: Path, kind_of_result: type[T]) -> T:
    """A result's document, once there is one."""
    if not is_finished(folder):
        raise UserError(f"{folder.name} is not finished", hint=f"go on with it by `{resume_command(folder)}`")
    return records.load(folder / "result.json", kind_of_result)


def finished() -> list[AbResult]:
    """All finished comparisons, oldest first."""
    return all_finished(AbResult)


def all_finished(kind_of_result: type[T]) -> list[T]:
    """All finished results of a kind, oldest first; an unreadable one is named, and passed over."""
    documents = paths.entries(results_dir(), "*/result.json")
    wanted = records.schema_of(kind_of_result).partition("/")[0]
    own = [path for path, found in records.load_each(documents, _Schema) if found.schema.partition("/")[0] == wanted]
    return [result for _, result in records.load_each(own, kind_of_result)]


class _Schema(msgspec.Struct):
    """The kind of a finished document."""

    schema: str
