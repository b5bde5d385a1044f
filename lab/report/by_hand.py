"""Commands that repeat a result without the lab: the guest's own, the settings in it, and QEMU's for each arm."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from lab.compare.results import CaseResult
from lab.compare.runs import Run
from lab.core.text import visible
from lab.guests import file_systems
from lab.guests.channel import setting_command
from lab.kernels import architecture, store
from lab.kernels.architecture import MachineType
from lab.kernels.debs import DebSource
from lab.kernels.file_source import FileSource
from lab.kernels.spec import MOUNT
from lab.report.inputs import StoredComparison

# A path of this host, inside one of QEMU's options.
_PATH = re.compile(r"(?<![\w.])/(?:[^/,=]+/)+(?=[^/,=]+(?:,|$))")


def qemu_commands(stored: StoredComparison, case: CaseResult) -> dict[str, str]:
    """QEMU's command of each arm for the first seed that ran the case; empty if no run was kept."""
    runs = {arm: _first_run(stored, case, arm) for arm in ("base", "test")}
    return {arm: _wrapped([visible(word) for word in local(run.argv, arm)]) for arm, run in runs.items() if run}


def packages(stored: StoredComparison) -> dict[str, list[str]]:
    """Shell commands that get the kernel of each arm from its package; empty unless both are built already."""
    if stored.plan is None:
        return {}
    sources = {"base": stored.plan.base.spec.source, "test": stored.plan.test.spec.source}
    found = {arm: source for arm, source in sources.items() if isinstance(source, DebSource | FileSource)}
    if len(found) < len(sources):
        return {}
    needs_elf = image_name(stored.result.environment.machine, packaged=True) == "vmlinux"
    commands: dict[str, list[str]] = {}
    for arm, source in found.items():
        *get, unpack = source.directions(arm)
        kernel = f"{arm}/{source.inside or Path(getattr(source, 'path', '')).name}"
        extract = [f"scripts/extract-vmlinux {kernel} >{arm}/vmlinux"] if needs_elf else []
        commands[arm] = [visible(line) for line in (*get, " && ".join([unpack, *extract]))]
    return commands


def image_name(machine: str, *, packaged: bool) -> str:
    """The image that a machine type boots, in the folder of a package or of a build."""
    if machine in (MachineType.MICROVM, MachineType.Q35_PVH):
        return "vmlinux"
    return "boot/vmlinuz-*" if packaged else f"arch/*/boot/{architecture.of_machine(machine).packed}"


def boot_commands(stored: StoredComparison, case: CaseResult, width: int) -> dict[str, str]:
    """QEMU's commands as `qemu_commands` has them, packed into lines, for a kernel in $K and without the cost model."""
    found = {}
    for arm in ("base", "test"):
        if run := _first_run(stored, case, arm):
            argv = local(run.argv, "K")
            at = argv.index("-plugin") if "-plugin" in argv else len(argv)
            options = _wrapped([visible(word) for word in argv[:at] + argv[at + 2 :]], "\n").split("\n")
            words = ['-kernel "$K"' if word.startswith("-kernel ") else word for word in options]
            lines = [words[0]]
            for word in words[1:]:
                lines = [*lines[:-1], f"{lines[-1]} {word}"] if len(lines[-1]) + len(word) < width else [*lines, word]
            found[arm] = " \\\n  ".join(lines)
    return found


def guest_command(stored: StoredComparison, case: CaseResult) -> list[str]:
    """Shell commands that run the case inside the guest: its preparations, then its program in its environment."""
    shape = stored.result.environment.guests.get(case.workload)
    if shape is None or case.case not in shape.commands:
        return []
    env = [f"{name}={shlex.quote(value)}" for name, value in shape.env.items()]
    return [*shape.setup, " ".join([*env, shlex.join(shape.commands[case.case])])]


def guest_settings(stored: StoredComparison, case: CaseResult, arm: str) -> list[str]:
    """Shell commands for the settings of the guest before the case ran."""
    run = _first_run(stored, case, arm)
    settings = run.report.settings.items() if run else ()
    commands = [command for key, value in settings if (command := setting_command(key, value))]
    kind = getattr(stored.result, arm).settings.get(MOUNT)
    return [visible(command) for command in (*(file_systems.by_hand(kind) if kind else ()), *commands)]


def kconfig_path(stored: StoredComparison) -> str | None:
    """The .config of the test kernel, if the lab built it and still has it."""
    build = store.find(stored.raw.test.build)
    path = store.folder_of(build.key) / "config" if build else None
    return str(path) if path is not None and path.is_file() else None


def local(argv: Sequence[str], arm: str) -> list[str]:
    """QEMU's arguments with the files of this host in the current folder; the kernel is named by its arm."""
    words = []
    for before, word in zip(["", *argv], argv, strict=False):
        if before != "-append":
            word = _PATH.sub("", word)
        words.append(f"{arm}/{word}" if before == "-kernel" else word)
    return words


def _first_run(stored: StoredComparison, case: CaseResult, arm: str) -> Run | None:
    runs = (run for run in stored.runs if run.arm == arm and run.workload == case.workload)
    return next((run for run in runs if case.case in run.cases), None)


def _wrapped(argv: Sequence[str], between: str = " \\\n    ") -> str:
    """A shell command with one option a line, or with something else between the options."""
    lines = [shlex.quote(argv[0])]
    for word in argv[1:]:
        if word.startswith("-"):
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return between.join(lines)
