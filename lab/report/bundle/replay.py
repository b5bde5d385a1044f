"""`lab replay BUNDLE`: runs a bundle's guests again, and compares every number.

It checks the files first, and builds QEMU's arguments from the bundle's values. Nothing of the bundle runs outside the
guest, except a cost plugin that differs from the lab's, and that only with --trust-plugin.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab import __version__
from lab.compare import runs
from lab.compare.replay import Replay, differences
from lab.compare.runs import GuestOutput
from lab.core import process, records
from lab.core.errors import GuestFailed, UserError
from lab.core.executor import Work
from lab.guests import exact, hardware, model_version, plugin
from lab.guests.exact import Qemu
from lab.guests.plugin import COSTS, Instrument
from lab.guests.run import INITRD, REPORT, RunningGuests
from lab.kernels import compilers
from lab.kernels.architecture import of_machine
from lab.report.bundle import archive, contents, texts
from lab.report.bundle.contents import BundleFolder, Guest


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """Options of a replay. trust: build and run a cost plugin that differs from this lab's."""

    qemu: str
    guest_timeout_s: float
    trust: bool = False


def is_bundle(reference: str) -> bool:
    """True if an argument is the path of a bundle, and not the id of a result."""
    path = Path(reference)
    return path.is_file() or any((path / name).is_file() for name in (contents.DESCRIPTION, contents.NAME))


def replay(path: Path, options: ReplayOptions, work: Work) -> Replay:
    """Run all guests of a bundle; `UserError` before anything runs if the bundle is damaged."""
    with process.scratch("lab-replay-") as scratch:
        folder = path.resolve() if path.is_dir() else archive.unpack(path, scratch / "unpacked")
        contents.check(folder)
        opened = contents.load(folder)
        qemu = exact.find_qemu(options.qemu, of_machine(opened.bundle.boots[0].machine))
        library = _library(opened, scratch, options)
        differing = _run_all(opened, qemu, library, scratch, options, work)
    return Replay(
        result=opened.bundle.result,
        guests=len(opened.bundle.guests),
        differences=differing,
        environment=_changed_environment(opened, qemu),
    )


def _changed_environment(opened: BundleFolder, qemu: Qemu) -> list[str]:
    """The facts that differ from the measurement's environment. The bundle's own files are known to be equal."""
    then = opened.result.environment
    facts = [("qemu", then.qemu, qemu.version), ("lab", then.lab, __version__)]
    changed = [f"{name} ({before} then, {now} here)" for name, before, now in facts if before != now]
    if opened.bundle.plugin and not _same_plugin(opened):
        why = model_version.changes(opened.bundle.plugin.model_version, then.guests)
        changed.append(f"{why} (the bundle's plugin was run)")
    return changed


# ---- the plugin


def _same_sources(opened: BundleFolder) -> bool:
    mine = records.digest(compilers.source_digests(plugin.PROGRAM.source))
    return opened.bundle.plugin is not None and opened.bundle.plugin.sources == mine


def _same_plugin(opened: BundleFolder) -> bool:
    """True if this lab's plugin promises the numbers of the bundle's."""
    version = opened.bundle.plugin.model_version if opened.bundle.plugin else 0
    return version == model_version.current(opened.result.environment.guests) or _same_sources(opened)


def _library(opened: BundleFolder, scratch: Path, options: ReplayOptions) -> Path | None:
    """The cost plugin to use: this lab's own if it gives the same numbers, else the bundle's."""
    if opened.bundle.plugin is None:
        return None
    if _same_plugin(opened):
        return plugin.obtain()
    if not options.trust:
        raise UserError(
            f"{opened.folder} was measured with another cost plugin than this lab's",
            hint=f"it would run on this machine: read {contents.PLUGIN}/, then allow it with --trust-plugin",
        )
    target = scratch / plugin.NAME
    sources = sorted((opened.folder / contents.PLUGIN).glob("*.c"))
    process.run([*texts.BUILD_ARGV, "-o", target, *sources, "-ldl"])
    return target


# ---- the guests


def _run_all(
    opened: BundleFolder, qemu: Qemu, library: Path | None, scratch: Path, options: ReplayOptions, work: Work
) -> list[str]:
    """The differences in all guests; the first guest that fails stops the rest."""
    running = RunningGuests()
    guests = opened.bundle.guests
    # The same numbers from other sources of the plugin need not be the same bytes.
    files = (REPORT,) if _same_plugin(opened) and not _same_sources(opened) else (REPORT, COSTS)
    with work.progress.task("replaying", len(guests)) as task, ThreadPoolExecutor(max_workers=work.jobs) as pool:

        def run(guest: Guest) -> list[str]:
            folder = scratch / "guests" / guest.name
            output = _boot(opened, guest, qemu, library, folder, options, running)
            differing = _compare(opened, guest, folder, output, files)
            shutil.rmtree(folder)
            task.advance()
            return differing

        try:
            futures = [pool.submit(run, guest) for guest in guests]
            return [line for future in futures for line in future.result()]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop_all()
            raise


def _boot(
    opened: BundleFolder,
    guest: Guest,
    qemu: Qemu,
    library: Path | None,
    folder: Path,
    options: ReplayOptions,
    running: RunningGuests,
) -> GuestOutput:
    boot, workload = opened.bundle.boot(guest), opened.readings[guest.workload]
    folder.mkdir(parents=True)
    initrd, root = folder / INITRD, opened.folder / boot.root
    initrd.write_bytes(root.read_bytes() + (opened.folder / guest.job).read_bytes())
    instrument = None
    if boot.model is not None and library is not None and opened.bundle.plugin is not None:
        machine = hardware.read(opened.folder / opened.bundle.plugin.machine)
        instrument = Instrument(library=library, machine=machine, model=boot.model)
    exact_guest = contents.guest_of(boot, qemu, opened.machine, instrument)
    argv = exact_guest.argv(kernel=opened.folder / boot.kernel, folder=folder, root=root)
    try:
        found = runs.boot_and_read(
            argv, folder, workload, [workload.case(name) for name in guest.cases],
            step_ns=opened.machine.step_ns if instrument else None, timeout_s=options.guest_timeout_s, running=running,
        )  # fmt: skip
        return found.on(boot.machine, boot.model)
    except GuestFailed as error:
        error.message = f"{guest.name}: {error.message}"
        raise


def _compare(opened: BundleFolder, guest: Guest, folder: Path, output: GuestOutput, files: Sequence[str]) -> list[str]:
    """A line for each number that differs; without one, a line for each file that does: it holds more than numbers."""
    expected = opened.expected.guests[guest.name]
    known = {REPORT: expected.report_sha256, COSTS: expected.costs_sha256}
    numbers = {case: output.metrics(case) for case in guest.cases}
    return differences(guest.workload, guest.arm, guest.seed, expected.numbers, numbers) or [
        f"{guest.name}: {name} has other bytes, though every number is the same"
        for name in files
        if known[name] and records.file_digest(folder / name) != known[name]
    ]
