"""What a plan and a result say of live mode beyond what both modes have."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from lab.compare.rounds import Sampling
from lab.core.records import Record
from lab.guests.host import HostFact, RoundHost
from lab.guests.live_machine import Accelerator
from lab.guests.perf_record import Difference
from lab.guests.perf_stat import PerfSummary
from lab.guests.topology import Seat, Shape

RoundState = Literal["kept", "disturbed", "repeated", "died"]


class LivePlan(Record, frozen=True, kw_only=True):
    """How a comparison in live mode is done. vcpus: of a guest; None: each workload's own, or the host's (mirror).

    perf: `perf stat` around every case. perf_record: a profile of both arms, in boots of their own.
    """

    accelerator: Accelerator
    vcpus: int | None = None
    mirror: bool = False
    nodes: int | None = None
    duet: bool = False
    max_rounds: int
    fixed_rounds: bool = False
    iterations: int | None = None
    perf: bool = False
    perf_record: bool = False
    seed: int


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
        """Whether its numbers are in the verdict."""
        return self.state in ("kept", "disturbed")


class Command(Record, frozen=True, kw_only=True):
    """What made an arm's guests: the `vng` command, and the QEMU command that it gave. Paths are a guest's own."""

    vng: list[str]
    qemu: list[str]


class Live(Record, frozen=True, kw_only=True):
    """How a result in live mode was measured. commands: by workload and arm. sampling, profiles: by case.

    planned_rounds: that verdicts are about, see `lab.stats.sequential`; None: it ended before they could be planned.
    certificates: by case, what this host's noise certificate says to it.
    """

    accelerator: Accelerator
    virtme_ng: str
    duet: bool
    shapes: dict[str, Shape]
    seats: dict[str, list[Seat]]
    hugepage_kb: int | None
    commands: dict[str, dict[str, Command]]
    host: list[HostFact]
    rounds: list[LiveRound]
    planned_rounds: int | None = None
    sampling: dict[str, Sampling]
    perf: PerfSummary | None = None
    profiles: dict[str, Difference] = msgspec.field(default_factory=dict)
    certificates: dict[str, str] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        """How quiet the host was, in words."""
        counts = Counter(one.state for one in self.rounds)
        counted = counts["kept"] + counts["disturbed"]
        planned = f" of {self.planned_rounds} planned" if self.planned_rounds and self.planned_rounds > counted else ""
        words = [f"{counted} round{'s' * (counted != 1)}{planned}"]
        words += [f"{counts['disturbed']} of them disturbed"] if counts["disturbed"] else []
        words += [f"{counts['repeated']} repeated because of the host"] if counts["repeated"] else []
        words += [f"{counts['died']} repeated because a guest died"] if counts["died"] else []
        return ", ".join(words)
