"""The texts of a bundle: `README.txt`, `LICENCES.txt`, and `run.sh`, which runs every guest with QEMU alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from lab.compare.results import AbResult
from lab.core.text import visible, visible_record
from lab.guests.exact import ExactMachine, Qemu
from lab.guests.image import Image
from lab.guests.plugin import Instrument
from lab.kernels.architecture import of_machine
from lab.report import templates
from lab.report.bundle import contents
from lab.report.bundle.contents import Boot, Bundle

# Placeholders in argv, which the script replaces by its own kernel and the user's QEMU.
_KERNEL = "KERNEL"
_QEMU = Qemu(path="QEMU", version="", numbers=(0, 0))
_HERE = Path()

#: Compiles the plugin. The compiler does not change its counts.
BUILD_ARGV = ("cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
#: The same by hand, from the bundle's folder.
BUILD = f"{' '.join(BUILD_ARGV)} -o libcost.so plugin/*.c -ldl"


def render(
    bundle: Bundle, parameters: ExactMachine, instruments: dict[str, Instrument], folder: Path, qemu: str
) -> str:
    """The script. instruments: the cost model by workload, if one runs. qemu: the version measured with."""
    boots = []
    for boot in bundle.boots:
        guest = contents.guest_of(boot, _QEMU, parameters, instruments.get(boot.workload))
        argv = guest.argv(kernel=Path(_KERNEL), folder=_HERE, root=folder / boot.root)
        boots.append((shlex.quote(boot.name), _lines(argv, boot)))
    return templates.text(
        "bundle/run.sh.j2",
        result=visible(bundle.result),
        qemu=visible(qemu),
        program=of_machine(bundle.boots[0].machine).qemu,
        modelled=any(boot.model for boot in bundle.boots),
        build=BUILD,
        guests=bundle.guests,
        boots=boots,
        runs=[
            shlex.join(["run", one.name, bundle.boot(one).name, bundle.boot(one).root, one.job])
            for one in bundle.guests
        ],
    )


def _lines(argv: Sequence[str], boot: Boot) -> list[str]:
    """QEMU's command, one option a line, run in the guest's own folder."""
    lines = ['exec "$qemu"']
    for before, word in pairwise(argv):
        quoted = f'"$here"/{shlex.quote(boot.kernel)}' if before == "-kernel" and word == _KERNEL else shlex.quote(word)
        if word.startswith("-"):
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return lines


def readme(raw: AbResult, bundle: Bundle) -> str:
    """The README: the result, the verdict, and the commands that repeat it."""
    seeds = sorted({guest.seed for guest in bundle.guests})
    whole = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1
    return templates.text(
        "bundle/README.txt.j2",
        result=visible_record(raw),
        bundle=bundle,
        contents=contents,
        seeds=f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds)),
        build=BUILD,
    )


def licences(image: Image, foreign: Sequence[str]) -> str:
    """The licences of the files. foreign: the workloads that are not part of the lab."""
    return templates.text("bundle/LICENCES.txt.j2", image=image, foreign=foreign)
