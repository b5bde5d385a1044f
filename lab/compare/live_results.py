"""The part of a result that only live mode has: its rounds, boots and commands, and the host's state during them."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from lab.compare.rounds import Covariate, Sampling
from lab.core.records import Record
from lab.core.text import plural
from lab.guests.host import HostFact, RoundHost
from lab.guests.live_machine import Accelerator
from lab.guests.perf_record import Difference
from lab.guests.perf_stat import PerfSummary
from lab.guests.topology import CpuSet, Shape

RoundState = Literal["kept", "disturbed", "repeated", "died"]


class LiveBoot(Record, frozen=True, kw_only=True):
    """One guest of a round. cpus: the host CPU of each vCPU. values: by case and metric, of each iteration."""

    name: str
    arm: str
    cpus: list[int]
    seconds: float
    values: dict[str, dict[str, list[float | None]]] = msgspec.field(default_factory=dict)
    failure: str | None = None


class LiveRound(Record, frozen=True, kw_only=True):
    """One try at a round: boots of both arms next to each other.

    state: `kept`, it counts; `disturbed`, it counts although the host was never quiet; `repeated`, it was disturbed
    and done again; `died`, a guest did. reasons: of the last three.
    """

    number: int
    attempt: int
    order: list[str]
    iterations: int
    state: RoundState
    reasons: list[str]
    host: RoundHost | None
    seconds: float
    boots: list[LiveBoot]

    @property
    def counts(self) -> bool:
        """True if its numbers are in the verdict."""
        return self.state in ("kept", "disturbed")


class Command(Record, frozen=True, kw_only=True):
    """Commands of an arm's guests: `vng`, and the QEMU command that it gave. Paths are a guest's own."""

    vng: list[str]
    qemu: list[str]


class Counted(Record, frozen=True, kw_only=True):
    """Instructions for one operation, by perf in hardware and by exact mode. ratio: perf's over exact mode's."""

    perf: float
    model: float
    ratio: float


class ModelCheck(Record, frozen=True, kw_only=True):
    """The instructions of whole programs, divided by the operations of their measured part, in user and kernel mode."""

    operations: float
    user: Counted
    kernel: Counted


class Live(Record, frozen=True, kw_only=True):
    """The part of a result that only live mode has. commands: by workload and arm. sampling, profiles: by case.

    planned_rounds: the number that verdicts are about, see `lab.stats.sequential`; None if it ended before a plan.
    model_checks: by case and arm, if a PMU counted instructions.
    certificates: by case, the words of this host's noise certificate. covariates: by case, the control whose
    difference was taken off.
    """

    accelerator: Accelerator
    virtme_ng: str
    duet: bool
    shapes: dict[str, Shape]
    cpu_sets: dict[str, list[CpuSet]] = msgspec.field(name="seats")
    hugepage_kb: int | None
    commands: dict[str, dict[str, Command]]
    host: list[HostFact]
    rounds: list[LiveRound]
    planned_rounds: int | None = None
    sampling: dict[str, Sampling]
    perf: PerfSummary | None = None
    model_checks: dict[str, dict[str, ModelCheck]] = msgspec.field(default_factory=dict)
    profiles: dict[str, Difference] = msgspec.field(default_factory=dict)
    certificates: dict[str, str] = msgspec.field(default_factory=dict)
    covariates: dict[str, Covariate] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        """The quietness of the host, in words."""
        counts = Counter(one.state for one in self.rounds)
        counted = counts["kept"] + counts["disturbed"]
        planned = f" of {self.planned_rounds} planned" if self.planned_rounds and self.planned_rounds > counted else ""
        words = [f"{plural(counted, 'round')}{planned}"]
        words += [f"{counts['disturbed']} of them disturbed"] if counts["disturbed"] else []
        words += [f"{counts['repeated']} repeated because of the host"] if counts["repeated"] else []
        words += [f"{counts['died']} repeated because a guest died"] if counts["died"] else []
        return ", ".join(words)
