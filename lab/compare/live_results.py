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


# `perf record` of both arms in boots of their own, as older labs made it: their results have it.

_SHOWN = 5
#: In standard errors: among the hundreds of functions of a profile, some reach three by chance.
_BEYOND_CHANCE = 4.0


class SymbolDifference(Record, frozen=True, kw_only=True):
    """A function in both arms: its part of the event's count, its share, and the difference of the shares in standard
    errors of sampling."""

    name: str
    place: str
    base: int
    test: int
    base_share: float
    test_share: float
    errors: float


class Difference(Record, frozen=True, kw_only=True):
    """The difference of two arms' profiles, the largest first. samples: the number in each arm."""

    event: str
    samples: tuple[int, int]
    symbols: list[SymbolDifference]

    def __str__(self) -> str:
        if not all(self.samples):
            return "perf took no samples: the case is too short for it"
        if not self.symbols:
            return "the arms were sampled by different events, which do not compare"
        moved = [symbol for symbol in self.symbols if abs(symbol.errors) >= _BEYOND_CHANCE]
        shares = [f"{one.name} {100 * one.base_share:.1f} % -> {100 * one.test_share:.1f} %" for one in moved[:_SHOWN]]
        event = "cpu-clock, there being no PMU" if self.event == "cpu-clock" else self.event
        of = f"share of {event}, {self.samples[0]} and {self.samples[1]} samples of one boot each"
        return f"{of}: {'; '.join(shares) or 'no function moved beyond the noise of sampling'}"


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
