"""Noise certificates: the difference between two runs of one kernel on this host, and the smallest change it can find.

`lab aa` makes them for the host's setup at that time; later verdicts of live mode quote them. Certificates of builds,
which compare a kernel with itself in another layout, tell bisections in live mode how far layouts are apart.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import correlation, linear_regression, quantiles

import msgspec

from lab.compare.results import AbResult, CaseResult
from lab.compare.rounds import Covariate
from lab.core import paths, records
from lab.core.errors import HostFailed
from lab.core.records import Record
from lab.guests import host
from lab.kernels.layout import name_of
from lab.kernels.spec import layout_of
from lab.stats import evidence
from lab.stats.sequential import SequentialTest
from lab.stats.verdict import Outcome

ROUNDS = (6, 10, 15, 20, 30, 40)
"""Numbers of rounds that a certificate says the smallest change of."""

_SHARES = (5, 25, 50, 75, 95)

LEAST_CORRELATION = 0.4
"""A control that correlates less saves fewer rounds than its slope may cost."""

LEAST_PAIRS = 20
"""Rounds from which the slope is known well enough: its error then adds a twentieth to the variance."""


class Certificate(Record, frozen=True, kw_only=True):
    """The outcome of comparing a kernel with itself, for one case.

    setup: the host's, by name.
    fingerprint: of the setup.
    pairs: seeds or rounds.
    disturbed: the number of kept pairs during which the host was not quiet.
    quantiles: of the pairs' ratios test/base, by share in %.
    block_sd, boot_sd, iteration_sd: of logs. block_sd counts outliers in full.
    covariate: the control of the same boots that shares most of the noise.
    resolves: the change, as a fraction, that so many planned rounds find with 80 % chance, helped by the covariate.
    equal: True if every metric of every pair is equal to the last digit.
    layout: of the kernel that this one was compared with; 0 for itself.
    shift, shift_sd: the mean of the logs of test/base, and its standard error; None without pairs.
    """

    schema: int = 1
    host: str
    setup: dict[str, str]
    fingerprint: str
    made: records.Time
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
    layout: int = 0
    shift: float | None = None
    shift_sd: float | None = None
    covariate: Covariate | None = None

    @property
    def helps(self) -> Covariate | None:
        """The covariate if it is known well enough to pay: a weak one would only add noise of its own."""
        known = self.covariate
        return known if known and abs(known.correlation) >= LEAST_CORRELATION and known.pairs >= LEAST_PAIRS else None

    def smallest(self, rounds: int) -> float | None:
        """The change that so many rounds find with 80 % chance; None if they cannot find any."""
        if self.mode == "live" and self.pairs < 2:
            return None  # one pair scatters by nothing
        if self.block_sd == 0:
            return 0.0
        sd = self.block_sd * math.sqrt(1 - self.helps.correlation**2) if self.helps else self.block_sd
        found = SequentialTest(self.alpha, rounds).detectable_effect(rounds, sd)
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
    if result.mode == "exact" and not _layout(result):
        _require_equal(result)
    present = setup(result.environment.qemu, root)
    return [_certificate(result, case, present) for case in result.cases if not case.failed]


def _layout(result: AbResult) -> int:
    """The number by which the layouts of both arms differ; 0 for one and the same kernel."""
    return layout_of(result.test.spec) - layout_of(result.base.spec)


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
    x = [value for value in _log_ratios(case) if value is not None]
    moments = evidence.moments(x) if x else None
    sd = moments.sd if moments else 0.0
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
        layout=_layout(result),
        shift=moments.mean if moments else None,
        shift_sd=sd / math.sqrt(len(x)) if len(x) > 1 else None,
        covariate=None if case.control or not result.live else _best_covariate(case, result.cases),
    )
    found = {str(n): made.smallest(n) for n in ROUNDS} if len(x) > 1 else {}
    return msgspec.structs.replace(made, resolves={n: v for n, v in found.items() if v is not None})


def _log_ratios(case: CaseResult) -> list[float | None]:
    """The log ratio of every pair; None for a pair without one."""
    pairs = zip(case.primary.base, case.primary.test, strict=True)
    return [math.log(t / b) if b and t and b > 0 and t > 0 else None for b, t in pairs]


def _best_covariate(case: CaseResult, cases: Sequence[CaseResult]) -> Covariate | None:
    """The control of the same workload that correlates most with a case."""
    controls = [other for other in cases if other.control and other.workload == case.workload]
    found = filter(None, (_covariate(case, control) for control in controls))
    return max(found, key=lambda one: abs(one.correlation), default=None)


def _covariate(case: CaseResult, control: CaseResult) -> Covariate | None:
    """A control as a covariate of a case; None if one of them does not scatter."""
    pairs = [
        (z, x) for z, x in zip(_log_ratios(control), _log_ratios(case), strict=True) if z is not None and x is not None
    ]
    if len({z for z, _ in pairs}) < 2 or len({x for _, x in pairs}) < 2:
        return None
    z, x = zip(*pairs, strict=True)
    return Covariate(
        control=control.name, slope=linear_regression(z, x).slope, correlation=correlation(z, x), pairs=len(pairs)
    )  # fmt: skip


def _quantiles(x: Sequence[float]) -> dict[str, float]:
    if len(x) < 2:
        return {}
    cuts = quantiles(x, n=100, method="inclusive")
    return {str(share): math.exp(cuts[share - 1]) for share in _SHARES}


# ---- keeping them


def keep(made: Sequence[Certificate]) -> None:
    """Store certificates, by the host's fingerprint; newer ones take the place of older ones."""
    for one in made:
        built = name_of(one.layout) if one.layout else None
        how = "-".join(filter(None, (one.mode, one.accelerator, "duet" if one.duet else None, built)))
        records.save(paths.data_dir("certificates", one.fingerprint) / f"{one.case.replace(':', '+')}-{how}.json", one)


def kept() -> list[Certificate]:
    """All certificates, newest first; an unreadable one is named, and passed over."""
    files = paths.data_dir("certificates").glob("*/*.json")
    return sorted((one for _, one in records.load_each(files, Certificate)), key=lambda one: one.made, reverse=True)


def changed(one: Certificate, present: Mapping[str, str]) -> list[str]:
    """The differences of the host to the time when a certificate was made."""
    names = dict.fromkeys((*one.setup, *present))
    return [
        f"{name}: {one.setup.get(name, 'unknown')} -> {present.get(name, 'unknown')}"
        for name in names
        if one.setup.get(name) != present.get(name)
    ]


def covariates(
    cases: Collection[str], present: Mapping[str, str], *, accelerator: str, duet: bool
) -> dict[str, Covariate]:
    """The covariates that this host's certificates know of these cases, as it is set up now."""
    found: dict[str, Covariate] = {}
    for one in _of_one_kernel(accelerator, duet=duet):
        known = one.helps
        if known and {one.case, known.control} <= {*cases} and one.case not in found and not changed(one, present):
            found[one.case] = known
    return found


def _of_one_kernel(accelerator: str, *, duet: bool) -> list[Certificate]:
    """This host's certificates of a kernel beside itself, newest first."""
    wanted = (accelerator, duet, platform.node(), 0)
    return [one for one in kept() if (one.accelerator, one.duet, one.host, one.layout) == wanted]


def quote(case: str, present: Mapping[str, str], *, accelerator: str, duet: bool, rounds: int) -> str | None:
    """The quote from this host's certificate for a verdict over so many rounds; None without one.

    It is the certificate of the host's present setup; else the newest, with the changes since.
    """
    fitting = [one for one in _of_one_kernel(accelerator, duet=duet) if one.case == case]
    if not fitting:
        return None
    best = next((one for one in fitting if not changed(one, present)), fitting[0])
    found = best.smallest(rounds)
    told = "nothing yet" if found is None else f"{100 * found:.1f} %"
    day = datetime.fromisoformat(best.made).strftime("%Y-%m-%d")
    text = f"by its noise certificate ({day}, {best.pairs} rounds) this host resolves {told} in {rounds} rounds"
    since = changed(best, present)
    return f"{text}; but the host has changed since ({'; '.join(since)}): lab aa makes a new one" if since else text


def layouts_sd(case: str, metric: str, present: Mapping[str, str], *, accelerator: str) -> float | None:
    """The standard deviation of the logs of kernels that differ in their layout alone; None if it is not known.

    By this host's certificates of builds, as it is set up now. A shift is the difference of two such kernels, so it has
    twice their variance, and the variance of its own error.
    """
    squares = [
        (one.shift**2 - one.shift_sd**2) / 2
        for one in kept()
        if (one.case, one.metric, one.accelerator, one.host) == (case, metric, accelerator, platform.node())
        and one.layout
        and one.shift is not None
        and one.shift_sd is not None
        and not changed(one, present)
    ]
    return math.sqrt(max(0.0, math.fsum(squares) / len(squares))) if squares else None
