"""A workload as text for people: what it needs, what it measures, its cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lab.workloads.spec import Metric, Workload


def render(workload: Workload) -> str:
    """The whole page that `lab workload show` prints."""
    lines = [f"{workload.name}: {workload.story}", *_guest(workload), "", "metrics (* is the one a verdict is about):"]
    lines += rows(_metric(metric, workload) for metric in workload.metrics)
    if workload.open_metrics:
        lines.append("  and every number that its program prints beside them")
    if workload.operations:
        lines.append(f"  modelled cycles are per {workload.operations}")
    if workload.cases:
        lines += ["", "cases (controls are expected not to change):"]
        lines += rows((f"  {case.name}", "control" if case.control else "", case.note) for case in workload.cases)
    if workload.case_pattern:
        lines += ["", f"any other case of this form can be asked for:\n  {workload.case_pattern}"]
    if workload.case_files:
        lines += ["", f"a file of yours is a case, too: --workload {workload.name}:PATH ({workload.case_files})"]
    return "\n".join(lines)


def _guest(workload: Workload) -> list[str]:
    """What the guest is, and what is done in it."""
    facts = [
        ("guest", f"{workload.memory_mb} MiB, {workload.vcpus} vCPU, {_guests(workload)}"),
        ("runs", " ".join((workload.program, *workload.argv))),
        ("setup", " ".join(workload.setup)),
        ("files", ", ".join(workload.files)),
        ("settings", ", ".join(f"{name}={value}" for name, value in workload.settings.items())),
        ("cmdline", " ".join(workload.cmdline)),
        ("env", " ".join(f"{name}={value}" for name, value in workload.env.items())),
        ("kconfig", ", ".join(workload.kconfig)),
        ("cost model", workload.model),
        ("read as", workload.parse),
    ]
    return [f"{name + ':':<12}{value}" for name, value in facts if value]


def _guests(workload: Workload) -> str:
    return "one for each case" if workload.isolate else "one for all cases"


def _metric(metric: Metric, workload: Workload) -> tuple[str, ...]:
    return (
        ("* " if metric.primary else "  ") + metric.name,
        metric.unit,
        "" if metric.better == "neither" else f"{metric.better} is better",
        metric.description + (" (may be missing)" if metric.optional else ""),
    )


def rows(cells: Iterable[Sequence[str]]) -> list[str]:
    """Lines of aligned columns."""
    table = list(cells)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
