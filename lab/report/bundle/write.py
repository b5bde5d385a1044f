"""Writes the bundle of a stored comparison: kernels, roots, jobs, numbers, and the source of all of them.

It measures nothing. It makes the guests' files again and proves them equal to the measured ones, by the
fingerprint, the kernels' keys and QEMU's recorded arguments.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lab.compare import runs
from lab.compare.measurement import Measurement, prepare_around
from lab.compare.plan import Plan
from lab.compare.replay import environment_changes
from lab.compare.runs import Bench, Run
from lab.core import process, records
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.paths import data_folder
from lab.core.progress import Progress
from lab.guests import hardware, model_version, plugin
from lab.guests import image as guest_image
from lab.guests.exact import Qemu
from lab.guests.plugin import COSTS
from lab.guests.run import REPORT, Arm
from lab.kernels import architecture, compilers, store
from lab.kernels.files import CONFIG
from lab.kernels.kernel import Kernel
from lab.kernels.store import Build
from lab.report.bundle import archive, contents, texts
from lab.report.bundle.contents import Boot, Bundle, Expected, ExpectedGuest, Guest, Plugin
from lab.report.inputs import StoredComparison
from lab.workloads import selection, spec

NAME = "SOURCE.txt"


def describe(kernel: Kernel, booted: Path) -> None:
    """Write beside a kernel all needs of a rebuild except the published source: patch, kconfig, compiler."""
    folder = booted.parent
    lines = [*kernel.spec.source.provenance(folder), *_build(kernel, folder)]
    head = [f"Linux {kernel.release}, as {booted.name}", f"sha256 {records.file_digest(booted)}", ""]
    (folder / NAME).write_text("\n".join([*head, *lines]) + "\n")


def _build(kernel: Kernel, folder: Path) -> Iterator[str]:
    build = store.find(kernel.key)
    if build is None:
        return
    shutil.copyfile(store.folder_of(build.key) / "config", folder / CONFIG)
    yield f"Built with: {build.inputs.compiler}"
    yield f"            {build.inputs.linker}"
    yield ""
    yield "Build, from the source's folder (here is this file's folder):"
    yield f"  mkdir ../out && cp here/{CONFIG} ../out/.config"
    yield f"  {make_command(build, kernel.guest_architecture.images)}"


def make_command(build: Build, images: Sequence[str]) -> str:
    """The make command that builds a kernel of the store, as these images."""
    compilers_of = [f"CC={build.compiler_command}", f"HOSTCC={compilers.host_command(build.compiler_command)}"]
    return shlex.join(["make", "O=../out", *build.inputs.make, *compilers_of, *images])


class _Part(NamedTuple):
    """A measured run with its bench and its arm. kernel: the kernel's path in the bundle."""

    name: str
    run: Run
    bench: Bench
    arm: Arm
    kernel: str


def write(report: StoredComparison, output: Path, work: Work) -> None:
    """Write a result's bundle, as a new folder or, if the suffix says so, one file."""
    _check_output(output)
    plan = _plan(report)
    beside = output.absolute().parent
    with process.scratch(".lab-bundle-", beside) as scratch:
        folder = scratch / "bundle"
        folder.mkdir()
        _fill(folder, report, plan, _parts(report, plan, scratch, work), work.progress)
        contents.write(folder)
        if archive.is_archive(output):
            work.progress.log("packing")
            packed = scratch / output.name
            archive.pack(folder, packed, f"bundle-{report.folder.name}")
            packed.replace(output)
        else:
            folder.replace(output)


def _check_output(output: Path) -> None:
    if not output.absolute().parent.is_dir():
        raise UserError(f"there is no folder {output.parent}", hint="make it, or write elsewhere")
    if archive.is_archive(output):
        if output.is_dir():
            raise UserError(f"{output} is a folder", hint="name a file that is not there yet")
    elif output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(
            f"{output} is there already",
            hint=f"a bundle is a new folder, or a file called *{' or *'.join(archive.SUFFIXES)}",
        )


def _plan(report: StoredComparison) -> Plan:
    result, plan = report.raw, report.plan
    if result.mode != "exact":
        raise UserError(
            f"{result.result} was measured in {result.mode} mode, whose numbers nothing repeats",
            hint="only results of exact mode can be bundled",
        )
    if plan is None or not any((report.folder / "runs").glob("*.json")):
        raise UserError(f"the guests of {result.result} were not kept", hint="measure it again, then bundle that")
    return plan


# ---- the measured guests, made again


def _parts(report: StoredComparison, plan: Plan, scratch: Path, work: Work) -> list[_Part]:
    # The measurement's QEMU, not the installed one: it does not run here.
    then = Qemu(path=plan.qemu, version=report.raw.environment.qemu, numbers=(0, 0))
    measurement = Measurement.of(plan, scratch, plan.base.spec, then)
    arms = measurement.arms(plan.planned, work)
    ready = prepare_around(measurement, arms, work.progress)
    if changes := environment_changes(report.raw.environment, ready.environment):
        raise _gone(report, ", ".join(changes))
    benches = {series.bench.workload.name: series.bench for series in ready.series}
    folders = {arm.kernel.key: arm.name for arm in reversed(arms)}  # a kernel of both arms is stored once
    parts = []
    for path in sorted((report.folder / "runs").glob("*.json")):
        run = records.load(path, Run)
        bench, arm = benches[run.workload], next(arm for arm in arms if arm.name == run.arm)
        image = architecture.image_of(bench.machine)
        part = _Part(path.stem, run, bench, arm, f"kernels/{folders[arm.kernel.key]}/{image}")
        _require_argv(report, part)
        parts.append(part)
    return parts


def _require_argv(report: StoredComparison, part: _Part) -> None:
    """Refuse a bundle if a guest's QEMU arguments or commands differ from the recorded ones."""
    run, argv = part.run, part.run.argv
    if run.kernel != part.arm.kernel.key:
        raise _gone(report, f"the kernel of {run.arm}")
    qemu = Qemu(path=argv[0], version="", numbers=(0, 0))
    guest = contents.guest_of(_boot(part), qemu, part.bench.parameters, part.bench.instrument)
    again = guest.argv(
        kernel=Path(argv[argv.index("-kernel") + 1]),
        folder=Path(argv[argv.index("-initrd") + 1]).parent,
        root=part.bench.packed_root,
    )
    commands = {case.name: part.bench.workload.command(case) for case in _cases(part)}
    if commands != run.commands or _but_library(again) != _but_library(argv):
        raise _gone(report, "the command line of its guests")


def _but_library(argv: Sequence[str]) -> list[str]:
    """Arguments without the plugin's path. The fingerprint covers the numbers that it gives."""
    library = _library(argv)
    return [word.removeprefix(library) for word in argv] if library else list(argv)


def _library(argv: Sequence[str]) -> str:
    """The plugin's path in QEMU's arguments; empty without a plugin."""
    return argv[argv.index("-plugin") + 1].partition(",out=")[0] if "-plugin" in argv else ""


def _gone(report: StoredComparison, fact: str) -> UserError:
    return UserError(
        f"the guests of {report.raw.result} cannot be made again: {fact} differs",
        hint="measure it again with this lab, then bundle that",
    )


def _cases(part: _Part) -> list[spec.Case]:
    return [part.bench.workload.case(name) for name in part.run.cases]


def _boot(part: _Part) -> Boot:
    workload, instrument = part.bench.workload, part.bench.instrument
    if workload.contends:
        raise UserError(
            f"{workload.name}: a bundle cannot repeat guests whose vCPUs contend",
            hint="bundle a result of one vCPU, or repeat it with `lab replay`",
        )
    return Boot(
        workload=workload.name,
        arm=part.arm.name,
        turn=part.run.turn,
        kernel=part.kernel,
        root=f"guests/{workload.name}.cpio",
        machine=part.bench.machine,
        vcpus=workload.vcpus,
        memory_mb=workload.memory_mb,
        append=list(part.bench.guest(part.arm.settings, part.run.turn).cmdline),
        model=instrument.model if instrument else None,
    )


# ---- the files


def _fill(folder: Path, report: StoredComparison, plan: Plan, parts: Sequence[_Part], progress: Progress) -> None:
    benches = {part.bench.workload.name: part.bench for part in parts}
    # The path of the result is private.
    result = msgspec.structs.replace(report.raw, result=report.folder.name, reproduce="lab replay .")
    _kernels(folder, parts)
    _roots(folder, benches)
    bundle = Bundle(
        result=result.result,
        boots=list({boot.name: boot for boot in map(_boot, parts)}.values()),
        guests=[_guest(folder, part) for part in parts],
        readings={name: _reading(name, parts) for name in benches},
        plugin=_plugin(folder, plan, list(benches.values())),
    )
    expected = Expected(guests={part.name: _expected(report.folder, part) for part in parts})
    contents.save(folder, bundle, expected, result)
    sums = [
        f"{digest}  {name}/{file}\n"
        for name, guest in expected.guests.items()
        for digest, file in ((guest.report_sha256, REPORT), (guest.costs_sha256, COSTS))
        if digest
    ]
    (folder / contents.REPORTS).write_text("".join(sums))
    _script(folder, bundle, benches, report)
    _texts(folder, bundle, benches, report, progress)


def _kernels(folder: Path, parts: Sequence[_Part]) -> None:
    """Write the kernels that the guests boot, with their sources."""
    for part in {part.kernel: part for part in parts}.values():
        target = folder / part.kernel
        target.parent.mkdir(parents=True)
        shutil.copyfile(part.arm.kernel.image(part.bench.machine), target)
        describe(part.arm.kernel, target)


def _roots(folder: Path, benches: Mapping[str, Bench]) -> None:
    """Write the guests' roots and parameters, and the sources of the lab's own programs in them."""
    (folder / "guests").mkdir()
    guests = architecture.of_machine(next(iter(benches.values())).machine).name
    shutil.copyfile(data_folder("machines") / guests / "exact.toml", folder / contents.MACHINE)
    _copy_sources(data_folder("images") / "guest" / "init", folder / "sources" / "init")
    _copy_sources(data_folder("workloads") / "include", folder / "sources" / "include")
    for name, bench in benches.items():
        shutil.copyfile(bench.packed_root, folder / f"guests/{name}.cpio")
        if selection.is_shipped(bench.workload):
            _copy_sources(bench.workload.folder, folder / "sources" / name)


def _copy_sources(source: Path, target: Path) -> None:
    for path in sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _guest(folder: Path, part: _Part) -> Guest:
    job = f"jobs/{part.name}.cpio"
    (folder / "jobs").mkdir(exist_ok=True)
    ran = part.run
    guest = runs.GuestRun(
        bench=part.bench, arm=part.arm, seed=ran.seed, cases=_cases(part), windows=ran.repeats, turn=ran.turn
    )
    (folder / job).write_bytes(guest.job())
    return Guest(
        name=part.name,
        workload=ran.workload,
        arm=ran.arm,
        seed=ran.seed,
        cases=ran.cases,
        job=job,
        turn=ran.turn,
    )


def _reading(workload: str, parts: Sequence[_Part]) -> dict[str, Any]:
    of_workload = [part for part in parts if part.run.workload == workload]
    cases = {case.name: case for part in of_workload for case in _cases(part)}
    return contents.reading(of_workload[0].bench.workload, list(cases.values()))


def _plugin(folder: Path, plan: Plan, benches: Sequence[Bench]) -> Plugin | None:
    """Write the cost plugin, its source and the machine that it models; None if no guest ran a model."""
    instrument = next((bench.instrument for bench in benches if bench.instrument), None)
    if instrument is None:
        return None
    target = folder / contents.PLUGIN
    target.mkdir()
    for name in compilers.source_digests(plugin.PROGRAM.source):
        shutil.copyfile(plugin.PROGRAM.source / name, target / name)
    shutil.copyfile(instrument.library, target / plugin.NAME)
    machine = f"machines/{instrument.machine.name}.toml"
    (folder / "machines").mkdir()
    shutil.copyfile(hardware.path_of(plan.machine or hardware.DEFAULT), folder / machine)
    sources = records.digest(compilers.source_digests(target))
    version = model_version.current(bench.workload.name for bench in benches)
    return Plugin(sources=sources, machine=machine, model_version=version)


def _expected(result: Path, part: _Part) -> ExpectedGuest:
    guest = runs.guest_folder(result, part.name)
    names, instrument = [REPORT], part.bench.instrument
    # The same numbers from other sources of the plugin than the bundle's need not be the same bytes.
    if instrument and Path(_library(part.run.argv)).parent.name == instrument.library.parent.name:
        names.append(COSTS)
    kept = {name: records.file_digest(guest / name) for name in names if (guest / name).is_file()}
    return ExpectedGuest(
        numbers={case: part.run.metrics(case) for case in part.run.cases},
        report_sha256=kept.get(REPORT),
        costs_sha256=kept.get(COSTS),
    )


def _script(folder: Path, bundle: Bundle, benches: Mapping[str, Bench], report: StoredComparison) -> None:
    library = Path("..") / plugin.NAME
    instruments = {
        name: replace(bench.instrument, library=library) for name, bench in benches.items() if bench.instrument
    }
    parameters = next(iter(benches.values())).parameters
    text = texts.render(bundle, parameters, instruments, folder, report.raw.environment.qemu)
    (folder / contents.SCRIPT).write_text(text)
    (folder / contents.SCRIPT).chmod(0o755)


def _texts(
    folder: Path, bundle: Bundle, benches: Mapping[str, Bench], report: StoredComparison, progress: Progress
) -> None:
    packages = [package for bench in benches.values() for package in bench.workload.packages]
    guests = architecture.of_machine(next(iter(benches.values())).machine).name
    image, _ = guest_image.obtain(progress, packages=packages, guests=guests)
    foreign = [name for name in bundle.readings if not (folder / "sources" / name).is_dir()]
    (folder / "README.txt").write_text(texts.readme(report.raw, bundle))
    (folder / "LICENCES.txt").write_text(texts.licences(image, foreign))
