"""`lab selftest`: the abilities of a bench host, on one page and in one document that can be posted."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from lab.cli import options
from lab.core import process, records
from lab.core.errors import HostFailed, LabError, UserError
from lab.core.progress import Progress
from lab.core.records import Record
from lab.core.text import visible_lines, width_of, wrapped
from lab.guests import exact, host, kvm, perf_stat
from lab.guests.exact import QEMU
from lab.stats.verdict import percent

BASE, TEST, CASE = "efa7df3e3bb5^", "efa7df3e3bb5", "alloc-burst:layout-4632k"
"""The headline: a regression that every host should see."""

_MARKS = {"ok": "ok      ", "failed": "FAILED  ", "not done": "not done"}


class Step(Record, frozen=True, kw_only=True):
    """One part of the self-test. text: the finding, or the reason why there is none. values: its numbers."""

    name: str
    state: Literal["ok", "failed", "not done"]
    text: str
    values: dict[str, Any] = msgspec.field(default_factory=dict)


class SelfTest(Record, frozen=True, kw_only=True):
    """`lab selftest --json`. host: its facts, without its name."""

    schema: str = "lab.selftest/1"
    host: dict[str, str]
    steps: list[Step]


class NotDone(Exception):
    """A step that this host cannot do; says why."""


class SelfTester:
    """The steps, and the documents that several of them read."""

    def __init__(self, rounds: int, qemu: str, progress: Progress) -> None:
        self.rounds = rounds
        self.qemu = qemu
        self.progress = progress

    def steps(self) -> Iterator[Step]:
        """Do one step after the other; after a failed step, try the next."""
        todo: Mapping[str, Callable[[], Step]] = {
            "doctor": self.doctor,
            "KVM boot": self.kvm_boot,
            "headline, exact mode": self.headline_exact,
            "A/A, live mode": self.aa,
            "headline, live mode": self.headline_live,
            "hardware events": self.events,
            "machine measure": self.measure,
        }
        for name, do in todo.items():
            self.progress.log(f"self-test: {name}")
            try:
                yield msgspec.structs.replace(do(), name=name)
            except NotDone as reason:
                yield Step(name=name, state="not done", text=str(reason))
            except LabError as error:
                yield Step(name=name, state="failed", text=error.message)

    def doctor(self) -> Step:
        """The limits and missing parts, by name."""
        findings = _lab("doctor", "--qemu", self.qemu, "--json", statuses=(0, 4))["findings"]
        by_state = {
            state: [one["name"] for one in findings if one["state"] == state] for state in ("limited", "missing")
        }
        told = [f"{state}: {', '.join(names)}" for state, names in by_state.items() if names]
        text = "; ".join(told) or "nothing is missing"
        states = {one["name"]: one["state"] for one in findings}
        return Step(name="", state="failed" if by_state["missing"] else "ok", text=text, values=states)

    def kvm_boot(self) -> Step:
        """A guest that boots under KVM."""
        return Step(name="", state="ok", text=f"a kernel boots, with -cpu {self._cpu()}")

    def headline_exact(self) -> Step:
        """The headline in exact mode, which is the same on every host."""
        return _headline(self._exact)

    def aa(self) -> Step:
        """A kernel beside itself, by the clock."""
        self._cpu()
        (made,) = _lab("aa", TEST, "-w", CASE, "--mode", "live", "--rounds", str(self.rounds), "--json")["certificates"]
        values = {key: made[key] for key in ("verdict", "pairs", "disturbed", "quantiles", "block_sd", "resolves")}
        is_same = made["verdict"] not in ("regression", "improvement")
        text = f"{made['verdict']} over {made['pairs']} rounds, {made['disturbed']} of them disturbed"
        return Step(name="", state="ok" if is_same else "failed", text=text, values=values)

    def headline_live(self) -> Step:
        """The headline by the clock, and its sign beside that of exact mode."""
        self._cpu()
        step, modelled = _headline(self._live), _headline(self._exact)
        signs = [one.values["verdict"] for one in (step, modelled)]
        decided = {"regression", "improvement"}.issuperset(signs)
        agree = "agrees with exact mode" if signs[0] == signs[1] else "exact mode says " + signs[1]
        state: Literal["ok", "failed"] = "failed" if decided and signs[0] != signs[1] else "ok"
        return msgspec.structs.replace(step, state=state, text=f"{step.text}; {agree}")

    def events(self) -> Step:
        """Perf's counts in hardware beside exact mode's, for one operation of the base arm."""
        self._cpu()
        if not perf_stat.has_pmu():
            raise NotDone("this host has no PMU")
        checks = [arms["base"] for arms in self._live["live"]["model_checks"].values()]
        if not checks:
            raise NotDone("perf counted no instructions in the guests")
        values = {f"{side} instructions": checks[0][side] for side in ("user", "kernel")}
        misses = _means(self._live).get("perf-dtlb-load-misses")
        walks = _means(self._exact).get("dtlb_misses")
        if misses and walks:
            perf = misses / checks[0]["operations"]
            values["dTLB misses"] = {"perf": perf, "model": walks, "ratio": perf / walks}
        told = [f"{name} {one['perf']:.4g} and {one['model']:.4g}" for name, one in values.items()]
        text = f"an operation by perf and by exact mode: {'; '.join(told)} (perf counts whole programs)"
        return Step(name="", state="ok", text=text, values=values)

    def measure(self) -> Step:
        """This host as a machine of the model."""
        with process.scratch("lab-selftest-") as folder:
            document = _lab("machine", "measure", "--quick", "--json", "--output", f"{folder}/measured.toml")
        machine = document["machine"]
        values = {table: machine.get(table) for table in ("tlb", "cache", "clock") if machine.get(table)}
        notes = document["notes"]
        text = f"measured; {len(notes)} values could not be told apart" if notes else "measured"
        return Step(name="", state="ok", text=text, values={**values, "notes": notes})

    @cache  # noqa: B019 - it lives as long as the command
    def _cpu(self) -> str:
        """The CPU model of guests under KVM; `NotDone` without it."""
        try:
            return kvm.require(self.qemu, anew=True)
        except kvm.Refusal as error:
            raise NotDone(error.message) from error

    @cached_property
    def _exact(self) -> Any:
        return _lab("ab", "--base", BASE, "--test", TEST, "-w", CASE, "--mode", "exact", "--json")

    @cached_property
    def _live(self) -> Any:
        argv = ("ab", "--base", BASE, "--test", TEST, "-w", CASE, "--mode", "live", "--accel", "kvm", "--json")
        return _lab(*argv, "--rounds", str(self.rounds))


def _lab(*arguments: str, statuses: tuple[int, ...] = (0,)) -> Any:
    """The document of a command of this lab; `HostFailed` with its error if it fails."""
    try:
        return json.loads(process.run([sys.executable, "-m", "lab", *arguments]))
    except process.CommandFailed as error:
        if error.status in statuses:
            return json.loads(error.stdout)
        complaints = [line for line in error.stderr.splitlines() if line.startswith("lab: ")]
        message = complaints[-1].removeprefix("lab: ") if complaints else error.message
        raise HostFailed(f"`lab {arguments[0]}` failed: {message}") from error


def _headline(document: Any) -> Step:
    (case,) = document["cases"]
    primary = next(metric for metric in case["metrics"] if metric["primary"])
    text = f"{case['verdict']}, {primary['name']} {percent(primary['ratio'])}"
    values = {"verdict": case["verdict"], "metric": primary["name"], "ratio": primary["ratio"]}
    return Step(name="", state="ok", text=text, values=values)


def _means(document: Any) -> dict[str, float]:
    """The mean of the base arm, by metric."""
    (case,) = document["cases"]
    measured = ((metric["name"], [one for one in metric["base"] if one is not None]) for metric in case["metrics"])
    return {name: sum(values) / len(values) for name, values in measured if values}


def describe_host(qemu: str) -> dict[str, str]:
    """The description of this host, without its name and addresses."""
    root = Path("/")
    return {
        "CPU": host.cpu_model(root),
        "CPUs": str(len(host.online(root))),
        "memory": f"{host.memory_gb(root)} GiB",
        "kernel": host.read_text(root, "proc/sys/kernel/osrelease") or "unknown",
        "QEMU": exact.find_qemu(qemu).version,
    }


def anonymous(value: Any) -> Any:
    """Texts, in any container, without the names of this host and its user, and without the user's home."""
    if isinstance(value, dict):
        return {key: anonymous(one) for key, one in value.items()}
    if isinstance(value, list):
        return [anonymous(one) for one in value]
    if not isinstance(value, str):
        return value
    value = value.replace(str(Path.home()), "~")
    user = "" if os.geteuid() == 0 else getpass.getuser()  # everybody has a root
    for name, word in ((platform.node(), "HOST"), (user, "USER")):
        value = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", word, value) if name else value
    return value


def page(test: SelfTest, width: int) -> Iterator[str]:
    """The lines of the page for people."""
    facts = ", ".join(f"{name} {value}" for name, value in test.host.items())
    yield wrapped(f"lab selftest: {facts}", 2, width)
    yield ""
    for step in test.steps:
        yield wrapped(f"{_MARKS[step.state]}  {step.name}: {step.text}", 10, width)


@click.command()
@click.option("--rounds", type=click.IntRange(min=6), default=10, show_default=True, help="Rounds of live mode.")
@click.option("--qemu", default=QEMU, show_default=True, help="The QEMU to test.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("selftest.json"),
    show_default=True,
    help="The document to write.",
)
@click.option("--force", is_flag=True, help="Overwrite the document if it is there.")
@options.json_output
def selftest(rounds: int, qemu: str, output: Path, force: bool, as_json: bool) -> int:
    """Test this bench host: KVM, both modes, hardware events, and the host as a machine of the model.

    Prints one page and writes one document, without names and serial numbers: both can be posted. It names the steps
    that cannot be done. Exits 4 if a step failed.

    \b
    Example:
      lab selftest
      lab selftest --rounds 30 --output bench.json
    """
    if output.exists() and not force:
        raise UserError(f"{output} exists", hint="give another --output, or --force to overwrite it")
    if not os.access(output.parent, os.W_OK):
        raise UserError(f"{output.parent} cannot be written", hint="give another --output")
    with Progress() as progress:
        steps = [
            msgspec.structs.replace(step, text=anonymous(step.text), values=anonymous(step.values))
            for step in SelfTester(rounds, qemu, progress).steps()
        ]
    test = SelfTest(host=describe_host(qemu), steps=steps)
    records.write_atomic(output, records.encode(test))
    if as_json:
        options.print_json(test)
    else:
        click.echo("\n".join(map(visible_lines, page(test, width_of()))))
        click.echo(f"\nwritten: {output}")
    return 4 if any(step.state == "failed" for step in test.steps) else 0
