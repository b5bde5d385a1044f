"""`run.sh`: every guest of a bundle with plain QEMU, for a shell that knows nothing of the lab."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from lab import runs
from lab.bundle import contents
from lab.bundle.contents import Boot, Bundle
from lab.core.text import visible
from lab.guests.exact import ExactMachine, Qemu
from lab.guests.plugin import Instrument

# Where the script puts the kernel and QEMU, whatever they are called on the machine that it is run on.
_KERNEL = "KERNEL"
_QEMU = Qemu(path="QEMU", version="", numbers=(0, 0))
_HERE = Path()

#: Compiles the plugin; what it counts does not depend on the compiler.
BUILD_WORDS = ("cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
#: The same by hand, from the bundle's folder.
BUILD = f"{' '.join(BUILD_WORDS)} -o libcost.so plugin/*.c -ldl"

_HEAD = """\
#!/bin/sh
# Runs the guests of {result} again: sh run.sh [NAME...]
#
# Needs QEMU alone; the numbers are those of QEMU {qemu}.
# QEMU=program      another qemu-system-x86_64
# OUT=folder        where each guest's report.jsonl goes (default: out, beside this file)
{plugin}
# Without NAMEs all of these, one after the other:
{names}

set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
qemu=${{QEMU:-qemu-system-x86_64}}
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
    words = contents.words(
        boot, _QEMU, parameters, kernel=Path(_KERNEL), initrd=_HERE / runs.INITRD, guest=_HERE
    ) + contents.plugin_words(instrument, folder / boot.root, _HERE)
    yield f"    {shlex.quote(boot.name)})"
    yield " \\\n".join(
        f"        {'' if number == 0 else '    '}{line}" for number, line in enumerate(_lines(words, boot))
    )
    yield "        ;;"


def _lines(words: Sequence[str], boot: Boot) -> list[str]:
    lines = ['exec "$qemu"']
    for before, word in pairwise(words):
        quoted = f'"$here"/{shlex.quote(boot.kernel)}' if before == "-kernel" and word == _KERNEL else shlex.quote(word)
        if word.startswith("-"):
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return lines
