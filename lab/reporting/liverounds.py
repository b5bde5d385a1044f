"""Of a result in live mode: the host as it was found, every round with what disturbed it, and each case's noise."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import NamedTuple

from lab.guests.host import HostFact
from lab.live.document import Live, LiveRound

_STATES = ("kept", "disturbed", "repeated", "died")


class Noise(NamedTuple):
    """How one case was sampled, in words."""

    case: str
    blocks: int
    iterations: str
    boot_sd: str
    iteration_sd: str
    warm_up: str
    outliers: str


@dataclass(frozen=True)
class LiveView:
    """What the page shows of it. Its strings are visible already."""

    live: Live

    @property
    def sentence(self) -> str:
        """How quiet the host was, in a sentence."""
        rounds, counted = self.live.rounds, sum(one.counts for one in self.live.rounds)
        limited = [fact.name for fact in self.live.host if fact.state == "limited"]
        words = [f"{counted} rounds count, of {len(rounds)} that were tried"]
        for state in _STATES[1:]:
            if number := sum(one.state == state for one in rounds):
                words.append(f"{number} {state}")
        quiet = f"the host adds noise: {', '.join(limited)}" if limited else "nothing about the host adds noise"
        return f"{', '.join(words)}; {quiet}"

    @property
    def host(self) -> list[HostFact]:
        """The host's facts, what adds noise first."""
        return sorted(self.live.host, key=lambda fact: fact.state != "limited")

    @property
    def rounds(self) -> list[LiveRound]:
        """All that were tried, in the order of time."""
        return list(self.live.rounds)

    @property
    def states(self) -> list[str]:
        """What rounds can be filtered by."""
        found = {one.state for one in self.live.rounds}
        return [state for state in _STATES if state in found]

    @property
    def noise(self) -> list[Noise]:
        """Each case's."""
        return [
            Noise(
                case=case,
                blocks=one.blocks,
                iterations=_span(one.iterations),
                boot_sd=_share(one.boot_sd),
                iteration_sd=_share(one.iteration_sd),
                warm_up=str(one.warm_up),
                outliers=", ".join(str(block + 1) for block in one.outliers),
            )
            for case, one in self.live.sampling.items()
        ]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """How the guests were run."""
        live = self.live
        found = [
            ("accelerator", live.accelerator),
            ("virtme-ng", live.virtme_ng),
            ("duet", "both arms' guests at once, side by side" if live.duet else ""),
            ("huge pages", f"guest memory in pages of {live.hugepage_kb} KiB" if live.hugepage_kb else ""),
        ]
        for name, shape in live.shapes.items():
            seats = "; ".join(",".join(map(str, seat.cpus)) for seat in live.seats.get(name, []))
            found.append((f"guest of {name}", f"-smp {shape.smp}, on host CPUs {seats}"))
        return [(name, words) for name, words in found if words]

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The command of each workload's guest in each arm."""
        return [
            (f"{workload}, {arm}", shlex.join(command.vng))
            for workload, arms in self.live.commands.items()
            for arm, command in arms.items()
        ]


def _share(sd: float | None) -> str:
    return "not known" if sd is None else f"{100 * sd:.2g} %"


def _span(counts: list[int]) -> str:
    found = sorted(set(counts))
    return "" if not found else str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
