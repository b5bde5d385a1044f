"""The golden table: small measurements that change only when numbers do, so that the version of the model is raised.

The part `probe` is programs counted by hand (`probe.c`), whose windows have no kernel code: they depend on the lab
alone. `package` is cases on a package, which depend on the kernel, on QEMU and on the compiler, too; `contended` is
cases on several vCPUs, which another QEMU runs.
"""

import json
from pathlib import Path

from lab.core import records
from lab.core.records import Record
from lab.guests import model_version

PATH = Path(__file__).with_suffix(".json")
PARTS = {"probe": ("probe",), "package": ("syscalls", "alloc-burst", "pointer-chase"), "contended": ("contention",)}
"""The workloads of each part."""
HINT = "if that is meant, raise the version in machines/model.toml with the reason, and run `make golden`"

Numbers = dict[str, float]
Cells = dict[str, Numbers]


class Table(Record, frozen=True, kw_only=True):
    """`golden.json`: numbers by cell. surroundings: those of a part that depends on more than the lab."""

    version: int
    surroundings: dict[str, dict[str, str]]
    probe: Cells
    package: Cells
    contended: Cells


def load() -> Table:
    return records.decode(PATH.read_bytes(), Table)


def changed(recorded: Cells, measured: Cells) -> list[str]:
    """A line for each cell that has other numbers than before, with the old and the new ones."""
    lines = []
    for cell in sorted(recorded.keys() & measured.keys()):
        before, after = recorded[cell], measured[cell]
        names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
        if names:
            lines.append(f"{cell}: {', '.join(f'{name} {before.get(name)} -> {after.get(name)}' for name in names)}")
    return lines


def complaint(table: Table, version: int, part: str, measured: Cells) -> str:
    """The reason why a part of the table fails; empty if it holds. version: the current one."""
    if table.version != version:
        return f"golden.json is of model version {table.version}, and this is {version}: run `make golden`"
    recorded: Cells = getattr(table, part)
    if lines := changed(recorded, measured):
        return "\n".join([f"numbers changed, and the model version did not ({version}):", *lines, HINT])
    if others := sorted(recorded.keys() ^ measured.keys()):
        return f"golden.json has not the cells that are measured ({', '.join(others)}): run `make golden`"
    return ""


def record(table: Table, before: Table | None) -> None:
    """Record a table, a line for each cell.

    Numbers that changed are refused unless a version since is about their workloads, or their surroundings are others.
    """
    lines = _undue(table, before) if before else []
    assert not lines, "\n".join([f"numbers changed: raise the version ({table.version}) first", *lines])
    blocks = [f'"version": {table.version}', f'"surroundings": {json.dumps(table.surroundings)}']
    for part in PARTS:
        rows = [f"{json.dumps(cell)}: {json.dumps(numbers)}" for cell, numbers in sorted(getattr(table, part).items())]
        blocks.append(f'"{part}": {{\n' + ",\n".join(rows) + "\n}")
    PATH.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def _undue(table: Table, before: Table) -> list[str]:
    """A line for each cell whose numbers changed for no known reason."""
    return [
        line
        for part, workloads in PARTS.items()
        if model_version.current(workloads) <= before.version
        and not moved(before, part, table.surroundings.get(part, {}))
        for line in changed(getattr(before, part), getattr(table, part))
    ]


def moved(table: Table, part: str, around: dict[str, str]) -> str:
    """The surroundings of a part that differ, by name, so that it cannot be compared; empty if none does."""
    then = table.surroundings.get(part, {})
    return ", ".join(
        f"{name} {then.get(name)} then, {around[name]} here" for name in around if then.get(name) != around[name]
    )
