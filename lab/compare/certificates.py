"""Noise certificates: the difference between two runs of one kernel on this host, and the smallest change it can find.

`lab aa` makes them for the host's setup at that time; later verdicts of live mode quote them.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec

from lab.compare.results import AbResult, CaseResult
from lab.core import paths, records
from lab.core.errors import HostFailed
from lab.core.records import Record
from lab.guests import host
from lab.stats import evidence
from lab.stats.sequential import SequentialTest
from lab.stats.verdict import Outcome

ROUNDS = (6, 10, 15, 20, 30, 40)
"""Numbers of rounds that a certificate says the smallest change of."""

_SHARES = (5, 25, 50, 75, 95)


class Certificate(Record, frozen=True, kw_only=True):
    """The outcome of comparing a kernel with itself, for one case.

    setup: the host's, by name.
    fingerprint: of the setup.
    pairs: seeds or rounds.
    disturbed: the number of kept pairs during which the host was not quiet.
    quantiles: of the pairs' ratios test/base, by share in %.
    block_sd, boot_sd, iteration_sd: of logs.
    resolves: the change, as a fraction, that so many planned rounds find with 80 % chance.
    equal: True if every metric of every pair is equal to the last digit.
    """

    schema: int = 1
    host: str
    setup: dict[str, str]
    fingerprint: str
    made: str
    result: str
    spec: str
    kernel: str
    mode: str
    accelerator: str | None
    duet: bool
    case: str
    metric: str
    verdict: Outcome
    pairs: int
    disturbed: int
    quantiles: dict[str, float]
    block_sd: float
    boot_sd: float | None
    iteration_sd: float | None
    resolves: dict[str, float]
    alpha: float
    equal: bool

    def smallest(self, rounds: int) -> float | None:
        """The change that so many rounds find with 80 % chance; None where they cannot find any."""
        if self.block_sd == 0:
            return 0.0
        found = SequentialTest(self.alpha, rounds).detectable_effect(rounds, self.block_sd)
        return None if found is None else math.expm1(found)


# ---- making them


def setup(qemu: str, root: Path = Path("/")) -> dict[str, str]:
    """This host and its set-up: everything that a certificate holds for. qemu: its version."""
    cpus = host.online(root)
    return {
        "CPU": host.cpu_model(root),
        "CPUs": str(len(cpus)),
        "memory": f"{host.memory_gb(root)} GiB",
        "kernel": host.read_text(root, "proc/sys/kernel/osrelease") or "unknown",
        "QEMU": qemu,
        **host.setup(host.survey(cpus, root)),
    }


def certify(result: AbResult, root: Path = Path("/")) -> list[Certificate]:
    """The certificates of a comparison of a kernel with itself. HostFailed: exact mode gave two different numbers."""
    if result.mode == "exact":
        _require_equal(result)
    present = setup(result.environment.qemu, root)
    return [_certificate(result, case, present) for case in result.cases]


def _require_equal(result: AbResult) -> None:
    for case in result.cases:
        for metric in case.metrics:
            differing = [
                seed for seed, b, t in zip(result.seeds, metric.base, metric.test, strict=False) if b != t
            ]  # NaN is stored as None, which equals itself
            if differing:
                raise HostFailed(
                    f"exact mode is not exact here: {metric.name} of {case.workload}:{case.case} differs between two "
                    f"runs of one kernel with seed {differing[0]}",
                    hint=f"`lab replay {result.result}` tries it again",
                )


def _certificate(result: AbResult, case: CaseResult, present: dict[str, str]) -> Certificate:
    primary = case.primary
    x = [math.log(t / b) for b, t in zip(primary.base, primary.test, strict=True) if b and t and b > 0 and t > 0]
    sd = evidence.moments(evidence.clip(x)).sd if x else 0.0
    name = f"{case.workload}:{case.case}"
    sampling = result.live.sampling[name] if result.live else None
    made = Certificate(
        host=platform.node(),
        setup=present,
        fingerprint=records.digest(present)[:16],
        made=result.started,
        result=result.result,
        spec=result.base.spec,
        kernel=result.base.build,
        mode=result.mode,
        accelerator=result.live.accelerator if result.live else None,
        duet=result.live.duet if result.live else False,
        case=name,
        metric=primary.name,
        verdict=case.verdict,
        pairs=len(primary.base),
        disturbed=sum(one.state == "disturbed" for one in result.live.rounds) if result.live else 0,
        quantiles=_quantiles(x),
        block_sd=sd,
        boot_sd=sampling.boot_sd if sampling else None,
        iteration_sd=sampling.iteration_sd if sampling else None,
        resolves={},
        alpha=result.alpha,
        equal=all(metric.base == metric.test for metric in case.metrics),
    )
    found = {str(n): made.smallest(n) for n in ROUNDS} if len(x) > 1 else {}
    return msgspec.structs.replace(made, resolves={n: v for n, v in found.items() if v is not None})


def _quantiles(x: Sequence[float]) -> dict[str, float]:
    if len(x) < 2:
        return {}
    cuts = quantiles(x, n=100, method="inclusive")
    return {str(share): math.exp(cuts[share - 1]) for share in _SHARES}


# ---- keeping them


def keep(made: Sequence[Certificate]) -> None:
    """Store certificates, by the host's fingerprint; newer ones take the place of older ones."""
    for one in made:
        how = "-".join(filter(None, (one.mode, one.accelerator, "duet" if one.duet else None)))
        records.save(paths.data_dir("certificates", one.fingerprint) / f"{one.case.replace(':', '+')}-{how}.json", one)


def kept() -> list[Certificate]:
    """All certificates, newest first; what is no longer readable is passed over."""
    found = []
    for path in paths.data_dir("certificates").glob("*/*.json"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Certificate))
        except (OSError, msgspec.MsgspecError):
            continue
    return sorted(found, key=lambda one: one.made, reverse=True)


def changed(one: Certificate, present: Mapping[str, str]) -> list[str]:
    """In what the host is not what it was when a certificate was made."""
    names = dict.fromkeys((*one.setup, *present))
    return [
        f"{name}: {one.setup.get(name, 'unknown')} -> {present.get(name, 'unknown')}"
        for name in names
        if one.setup.get(name) != present.get(name)
    ]


def quotes(cases: Iterable[str], present: Mapping[str, str], **conditions: Any) -> dict[str, str]:
    """Quotes from this host's certificates, for the cases that have one; see `quote`."""
    found = {case: quote(case, present, **conditions) for case in cases}
    return {case: text for case, text in found.items() if text}


def quote(
    case: str, present: Mapping[str, str], *, accelerator: str, duet: bool, rounds: int, host: str | None = None
) -> str | None:
    """The quote from this host's certificate for a verdict over so many rounds; None where there is none.

    The one of the host as it is set up now; else the newest, with what has changed since.
    """
    fitting = [
        one
        for one in kept()
        if (one.case, one.accelerator, one.duet, one.host) == (case, accelerator, duet, host or platform.node())
    ]
    if not fitting:
        return None
    best = next((one for one in fitting if not changed(one, present)), fitting[0])
    found = best.smallest(rounds)
    told = "nothing yet" if found is None else f"{100 * found:.1f} %"
    day = datetime.fromisoformat(best.made).strftime("%Y-%m-%d")
    text = f"by its noise certificate ({day}, {best.pairs} rounds) this host resolves {told} in {rounds} rounds"
    since = changed(best, present)
    return f"{text}; but the host has changed since ({'; '.join(since)}): lab aa makes a new one" if since else text
