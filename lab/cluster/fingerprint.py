"""What a machine's guests and builds depend on, and so which machines may stand in for one another. Pure but for
`here`, which looks at this one.

A worker carries its fingerprints as dask's resources, and a task asks for the one that it needs: so it lands only
where it gives the same numbers, and waits while there is no such worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from lab.core import records
from lab.core.errors import LabError
from lab.core.records import Record
from lab.guests import exact, plugin
from lab.guests.exact import Qemu
from lab.kernels.compilers import Compiler

_GUESTS = "lab-guests-"
_BUILDS = "lab-builds-"
_WORDS = {
    "lab": "the lab itself",
    "qemu": "QEMU",
    "parameters": "machines/exact.toml",
    "plugin": "the cost plugin, or what compiles it",
}


class Facts(Record, frozen=True, kw_only=True):
    """What the numbers of a machine's guests depend on, besides what a task brings along.

    lab: digest of its modules. parameters: of exact mode's machine. plugin: of the cost plugin's sources and their
    compiler; empty where there is none.
    """

    lab: str
    qemu: str
    parameters: str
    plugin: str

    @property
    def fingerprint(self) -> str:
        """Equal ones give equal numbers."""
        return records.digest(self)[:16]


def here(qemu: Qemu) -> Facts:
    """This machine's, with a QEMU of it."""
    try:
        cost = plugin.digest()
    except LabError:
        cost = ""
    return Facts(lab=_own(), qemu=qemu.version, parameters=records.digest(exact.exact_machine()), plugin=cost)


@cache
def _own() -> str:
    top = Path(__file__).resolve().parents[1]
    return records.digest({str(path.relative_to(top)): records.file_digest(path) for path in sorted(top.rglob("*.py"))})


def differences(mine: Facts, other: Facts) -> list[str]:
    """In what two machines differ, in words."""
    pairs = [(name, getattr(mine, name), getattr(other, name)) for name in _WORDS]
    return [
        f"{_WORDS[name]} ({theirs or 'none'} there, {own or 'none'} here)" if name == "qemu" else _WORDS[name]
        for name, own, theirs in pairs
        if own != theirs
    ]


def guests_resource(facts: Facts) -> str:
    """What a worker has as many of as it runs guests at a time."""
    return _GUESTS + facts.fingerprint


def builds_resource(compiler: Compiler) -> str:
    """What a worker has one of for each compiler that it can build with: a build uses all of its cores."""
    return _BUILDS + records.digest([compiler.family, compiler.version, compiler.linker])[:16]


def able(workers: Mapping[str, Mapping[str, float]], resource: str) -> dict[str, int]:
    """The workers that carry a resource, and how much of it; workers: their resources by address."""
    return {address: int(has[resource]) for address, has in workers.items() if has.get(resource)}
