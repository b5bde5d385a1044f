"""Running a bundle's guests again, and comparing every number: what `lab replay BUNDLE` does.

The files are checked first. QEMU's arguments are put together here from the bundle's values; nothing of the bundle
is run on this machine but inside the guest, unless its cost plugin is another than the lab's, and trusted by word.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import __version__
from lab.compare import runs
from lab.compare.replay import Replay, differences
from lab.compare.runs import GuestOutput
from lab.core import process, records
from lab.core.errors import GuestFailed, UserError
from lab.core.executor import Work
from lab.guests import exact, hardware, plugin
from lab.guests.exact import Qemu
from lab.guests.plugin import COSTS, Instrument, Model
from lab.guests.run import INITRD, REPORT, RunningGuests
from lab.report.bundle import archive, contents, texts
from lab.report.bundle.contents import ExpectedGuest, Guest, Opened


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """Options of a replay. trust: build and run a cost plugin that is not this lab's."""

    qemu: str
    guest_timeout_s: float
    trust: bool = False


def is_bundle(reference: str) -> bool:
    """True if an argument is the path of a bundle, and not the id of a result."""
    path = Path(reference)
    return path.is_file() or any((path / name).is_file() for name in (contents.DESCRIPTION, contents.NAME))


def replay(path: Path, asked: ReplayOptions, work: Work) -> Replay:
    """All guests of a bundle once more; `UserError` before anything runs if it is damaged."""
    qemu = exact.find_qemu(asked.qemu)
    with tempfile.TemporaryDirectory(prefix="lab-replay-") as scratch, _folder(path, Path(scratch)) as folder:
        contents.check(folder)
        opened = contents.load(folder)
        library = _library(opened, Path(scratch), asked)
        found = _run_all(opened, qemu, library, Path(scratch), asked, work)
    differing = [line for guest in opened.bundle.guests for line in found[guest.name]]
    return Replay(
        result=opened.bundle.result,
        guests=len(found),
        differences=differing,
        environment=_around(opened, qemu),
    )


@contextmanager
def _folder(path: Path, scratch: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path.resolve()
        return
    into = scratch / "unpacked"
    into.mkdir()
    try:
        yield archive.unpack(path, into)
    finally:
        shutil.rmtree(into, ignore_errors=True)


def _around(opened: Opened, qemu: Qemu) -> list[str]:
    """Differences between the environment then and here; the files are equal, or nothing would have been run."""
    then = opened.result.environment
    found = [("qemu", then.qemu, qemu.version), ("lab", then.lab, __version__)]
    if opened.bundle.plugin and not _same_plugin(opened):
        found.append(("plugin", opened.bundle.plugin.sources[:12], "this lab's is another; the bundle's was run"))
    return [f"{name} ({before} then, {now} here)" for name, before, now in found if before != now]


# ---- the plugin


def _same_plugin(opened: Opened) -> bool:
    mine = records.digest(plugin.sources(plugin.source_folder()))
    return opened.bundle.plugin is not None and opened.bundle.plugin.sources == mine


def _library(opened: Opened, scratch: Path, asked: ReplayOptions) -> Path | None:
    """The cost plugin to use: this lab's own where it is the same."""
    if opened.bundle.plugin is None:
        return None
    if _same_plugin(opened):
        return plugin.obtain()
    if not asked.trust:
        raise UserError(
            f"{opened.folder} was measured with another cost plugin than this lab's",
            hint=f"it would run on this machine: read {contents.PLUGIN}/, then allow it with --trust-plugin",
        )
    target = scratch / plugin.NAME
    words: list[str | Path] = [
        *texts.BUILD_WORDS,
        "-o",
        target,
        *sorted((opened.folder / contents.PLUGIN).glob("*.c")),
        "-ldl",
    ]
    process.run(words)
    return target


# ---- the guests


def _run_all(
    opened: Opened, qemu: Qemu, library: Path | None, scratch: Path, asked: ReplayOptions, work: Work
) -> dict[str, list[str]]:
    """The differences in each guest, by name; the first that fails stops the rest."""
    running = RunningGuests()
    guests = opened.bundle.guests
    with work.progress.task("replaying", len(guests)) as task, ThreadPoolExecutor(max_workers=work.jobs) as pool:

        def one(guest: Guest) -> list[str]:
            folder = scratch / "guests" / guest.name
            found = _compare(opened, guest, folder, _boot(opened, guest, qemu, library, folder, asked, running))
            shutil.rmtree(folder)
            task.advance()
            return found

        try:
            futures = {guest.name: pool.submit(one, guest) for guest in guests}
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop_all()
            raise


def _boot(
    opened: Opened,
    guest: Guest,
    qemu: Qemu,
    library: Path | None,
    folder: Path,
    asked: ReplayOptions,
    running: RunningGuests,
) -> GuestOutput:
    boot, workload = opened.bundle.boot(guest), opened.readings[guest.workload]
    folder.mkdir(parents=True)
    initrd, root = folder / INITRD, opened.folder / boot.root
    initrd.write_bytes(root.read_bytes() + (opened.folder / guest.job).read_bytes())
    instrument = _instrument(opened, boot.model, library)
    described = contents.guest_of(boot, qemu, opened.machine, instrument)
    argv = described.argv(kernel=opened.folder / boot.kernel, folder=folder, root=root)
    try:
        return runs.boot_and_read(
            argv, folder, workload, guest.seed, [workload.case(name) for name in guest.cases],
            modelled=instrument is not None, timeout_s=asked.guest_timeout_s, running=running,
        )  # fmt: skip
    except GuestFailed as error:
        error.message = f"{guest.name}: {error.message}"
        error.log = None  # it is gone with the rest
        raise


def _instrument(opened: Opened, model: Model | None, library: Path | None) -> Instrument | None:
    if model is None or library is None or opened.bundle.plugin is None:
        return None
    machine = hardware.read(opened.folder / opened.bundle.plugin.machine)
    return Instrument(library=library, machine=machine, model=model)


def _compare(opened: Opened, guest: Guest, folder: Path, output: GuestOutput) -> list[str]:
    """Every number that is not the same; and the files, which hold more than the numbers."""
    expected = opened.expected.guests[guest.name]
    found = differences(guest, expected.numbers, {case: output.metrics(case) for case in guest.cases})
    if not found:
        found = [
            f"{guest.name}: {name} has other bytes, though every number is the same"
            for name in _other(folder, expected)
        ]
    return found


def _other(folder: Path, expected: ExpectedGuest) -> list[str]:
    files = ((REPORT, expected.report_sha256), (COSTS, expected.costs_sha256))
    return [name for name, digest in files if digest and records.file_digest(folder / name) != digest]
