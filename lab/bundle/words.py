"""What a bundle says to people: `README.txt` and `LICENCES.txt`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from lab.bundle import contents, script, sums
from lab.bundle.contents import Bundle
from lab.core.text import visible, visible_record
from lab.guests.image import Image
from lab.reporting import figures
from lab.results import AbResult, primary_of

_WIDTH = 78


def readme(raw: AbResult, bundle: Bundle) -> str:
    """What this is, what it says, and how to repeat it."""
    result = visible_record(raw)
    modelled = bundle.plugin is not None
    parts = [
        "A comparison of two kernels, to be repeated",
        "===========================================",
        "",
        f"base: {figures.arm_words(result.base)}",
        f"test: {figures.arm_words(result.test)}",
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
            f"Check the files first: `sha256sum -c {sums.NAME}`. That finds damage. It does not say who made them: "
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
        primary = primary_of(case)
        unit = figures.unit(primary, result)
        yield f"{figures.case_name(case)}: {case.verdict}, {primary.name} {figures.change(primary)} ({unit})"


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
        yield f"{'':6}{script.BUILD}"
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
    """Whose the files are. foreign: the workloads that are not the lab's."""
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
