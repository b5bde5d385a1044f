"""The texts of a bundle: `README.txt`, `LICENCES.txt`, and `run.sh`, which runs every guest with QEMU alone."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from lab.compare.results import AbResult
from lab.core.text import visible, visible_record
from lab.guests.exact import ExactMachine, Qemu
from lab.guests.image import Image
from lab.guests.plugin import Instrument
from lab.kernels.architecture import of_machine
from lab.report import wording
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

_HEAD = """\
#!/bin/sh
# Runs the guests of {result} again: sh run.sh [NAME...]
#
# Needs QEMU alone; the numbers are those of QEMU {qemu}.
# QEMU=program      another {program}
# OUT=folder        where each guest's report.jsonl goes (default: out, beside this file)
{plugin}
# Without NAMEs all of these, one after the other:
{names}

set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
qemu=${{QEMU:-{program}}}
out=${{OUT:-$here/out}}
wanted=" $* "

mkdir -p -- "$out"
out=$(CDPATH='' cd -- "$out" && pwd)
"""
_PLUGIN_NOTE = """\
# PLUGIN=file       another build of the cost plugin; its source is beside it in plugin/:
#                   {build}
"""
_PLUGIN = 'cp -- "${PLUGIN:-$here/plugin/libcost.so}" "$out/libcost.so"\n'

_RUN = """\
run() {
    # run NAME BOOT ROOT JOB: a guest's initrd is its root, then its job.
    case $wanted in
    '  ' | *" $1 "*) ;;
    *) return 0 ;;
    esac
    echo "$1"
    rm -rf -- "${out:?}/$1"
    mkdir -- "$out/$1"
    cat -- "$here/$3" "$here/$4" > "$out/$1/initrd.cpio"
    (cd -- "$out/$1" && boot "$2" < /dev/null)
    rm -- "$out/$1/initrd.cpio"
    ran=$((ran + 1))
    # What the guest wrote when it was measured, where that is known.
    if grep -F "  $1/" "$here/expected.sha256" > "$out/$1/expected.sha256"; then
        (cd -- "$out" && sha256sum -c -- "$1/expected.sha256") || differing=$((differing + 1))
    fi
}

ran=0
differing=0
"""
_TAIL = """
if [ "$ran" -eq 0 ]; then
    echo "no guest is called:$wanted" >&2
    exit 2
fi
if [ "$differing" -gt 0 ]; then
    echo "$differing guests reported something else; is this the same QEMU ($("$qemu" --version | head -n 1))?" >&2
    exit 1
fi
"""


def render(
    bundle: Bundle, parameters: ExactMachine, instruments: dict[str, Instrument], folder: Path, qemu: str
) -> str:
    """The script. instruments: the cost model by workload, where one is run. qemu: the version measured with."""
    modelled = any(boot.model for boot in bundle.boots)
    head = _HEAD.format(
        result=visible(bundle.result),
        qemu=visible(qemu),
        program=of_machine(bundle.boots[0].machine).qemu,
        plugin=_PLUGIN_NOTE.format(build=BUILD).rstrip("\n") if modelled else "#",
        names="\n".join(f"#   {guest.name}" for guest in bundle.guests),
    )
    lines = [head + (_PLUGIN if modelled else "")]
    lines += ["boot() {", "    case $1 in"]
    for boot in bundle.boots:
        lines += _case(boot, parameters, instruments.get(boot.workload), folder)
    lines += ["    esac", "}", "", _RUN]
    for guest in bundle.guests:
        boot = bundle.boot(guest)
        lines.append(shlex.join(["run", guest.name, boot.name, boot.root, guest.job]))
    return "\n".join(lines) + "\n" + _TAIL


def _case(boot: Boot, parameters: ExactMachine, instrument: Instrument | None, folder: Path) -> Iterator[str]:
    """One branch of `boot`: QEMU's command, one option a line, run in the guest's own folder."""
    guest = contents.guest_of(boot, _QEMU, parameters, instrument)
    argv = guest.argv(kernel=Path(_KERNEL), folder=_HERE, root=folder / boot.root)
    yield f"    {shlex.quote(boot.name)})"
    yield " \\\n".join(
        f"        {'' if number == 0 else '    '}{line}" for number, line in enumerate(_lines(argv, boot))
    )
    yield "        ;;"


def _lines(argv: Sequence[str], boot: Boot) -> list[str]:
    lines = ['exec "$qemu"']
    for before, word in pairwise(argv):
        quoted = f'"$here"/{shlex.quote(boot.kernel)}' if before == "-kernel" and word == _KERNEL else shlex.quote(word)
        if word.startswith("-"):
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return lines


_WIDTH = 78


def readme(raw: AbResult, bundle: Bundle) -> str:
    """The README: the result, the verdict, and the commands that repeat it."""
    result = visible_record(raw)
    modelled = bundle.plugin is not None
    parts = [
        "A comparison of two kernels, to be repeated",
        "===========================================",
        "",
        f"base: {result.base}",
        f"test: {result.test}",
        "",
        *_text(f"Verdict: {result.verdict}. {result.reason}"),
        "",
        *(f"    {line}" for line in _cases(result)),
        "",
        *_text(
            "Every number was counted by QEMU, not timed: the same files under the same QEMU give the same numbers to "
            "the last digit, on any machine, however busy it is. No KVM, no root and no network is needed."
        ),
        *(
            _text(
                f"Modelled cycles and misses are those of a model ({result.environment.model}), not of hardware; the "
                f"machine that is modelled is {bundle.plugin.machine}."
            )
            if bundle.plugin
            else ()
        ),
        "",
        "Measured with",
        "",
        f"    QEMU {result.environment.qemu}",
        f"    {len(bundle.guests)} guests: every arm with the seeds {_seeds(bundle)}",
        "",
        "Repeat it",
        "",
        *_option("sh run.sh", "with QEMU alone: all guests, one after the other; what each reported is compared."),
        *_option("sh run.sh NAME", "one guest, e.g. " + bundle.guests[0].name),
        *_option("lab replay .", "with the lab, on all cores; says which numbers differ, and what in the environment."),
        "",
        *_text(
            f"Check the files first: `sha256sum -c {contents.NAME}`. That finds damage. It does not say who made them: "
            f"kernels{', plugin' if modelled else ''} and run.sh are programs. Take a bundle from people you trust."
        ),
        "",
        "What is here",
        "",
        *_contents(bundle),
    ]
    return "\n".join(parts) + "\n"


def _cases(result: AbResult) -> Iterator[str]:
    for case in result.cases:
        primary = case.primary
        unit = wording.unit(primary, result)
        yield f"{case.name}: {case.word}, {primary.name} {wording.change(primary)} ({unit})"


def _seeds(bundle: Bundle) -> str:
    seeds = sorted({guest.seed for guest in bundle.guests})
    whole = seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if whole and len(seeds) > 1 else ", ".join(map(str, seeds))


def _contents(bundle: Bundle) -> Iterator[str]:
    for kernel in dict.fromkeys(boot.kernel for boot in bundle.boots):
        where = kernel.rpartition("/")[0]
        yield from _option(kernel, f"a kernel; {where}/SOURCE.txt says what it was made from, and how to build it")
    for root in dict.fromkeys(boot.root for boot in bundle.boots):
        yield from _option(root, "the guest's root: init, the program that is measured, what they need")
    yield from _option("jobs/", "what each guest is told to run; follows the root in the guest's initrd")
    yield from _option(contents.MACHINE, "the guest's parameters")
    if bundle.plugin:
        yield from _option("plugin/", "the cost plugin for QEMU: source, and built. By hand:")
        yield f"{'':6}{BUILD}"
    yield from _option(contents.EXPECTED, "every number of every guest")
    yield from _option(contents.REPORTS, "checksums of what the guests wrote")
    yield from _option(contents.RESULT, "the comparison as the lab stored it")
    yield from _option(contents.DESCRIPTION, "all of this, for programs")
    yield from _option("sources/", "sources of the programs in the guest that are the lab's own")


def _text(text: str) -> list[str]:
    return textwrap.wrap(visible(text), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _option(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=f"  {name:<24} ", subsequent_indent=" " * 27, break_long_words=False
    )


def licences(image: Image, foreign: Sequence[str]) -> str:
    """The licences of the files. foreign: the workloads that are not part of the lab."""
    lines = [
        "Licences",
        "========",
        "",
        *_text(
            "kernels/: the Linux kernel, GPL-2.0 WITH Linux-syscall-note. Each SOURCE.txt names the published source, "
            "and holds all that was changed. Whoever passes the kernel on owes its source to who asks for it."
        ),
        "",
        *_text(
            f"guests/: cut from packages of Debian {image.suite}, listed below with their versions; not all of them "
            "are in every root. Licences: /usr/share/doc/PACKAGE/copyright of each package. Source: "
            "https://snapshot.debian.org/ by package and version."
        ),
        "",
        *_text(
            "init, the programs of the workloads, plugin/, run.sh: part of kernel-ab-lab, GPL-2.0-or-later. Their "
            "source is in sources/ and plugin/."
        ),
        "",
    ]
    for name in foreign:
        lines += [
            *_text(f"The workload {name} is not part of the lab: its program and files are those of who measured it."),
            "",
        ]
    lines += [f"    {name} {version}" for name, version in sorted(image.packages.items())]
    return "\n".join(lines) + "\n"
