"""Results that nobody measured, stored as measured ones are: every kind of case, and words that attack the reader."""

import io
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from lab.compare.live_results import Command, Live, LiveRound, RoundState
from lab.compare.plan import ArmPlan, Plan
from lab.compare.results import AbResult, ArmResult, CaseResult, FailedCase, GuestShape, ResultEnvironment
from lab.compare.rounds import Sampling
from lab.compare.runs import Run
from lab.core import records
from lab.core.errors import GuestFailure
from lab.guests.channel import CaseOutcome, GuestReport
from lab.guests.host import HostFact, RoundHost
from lab.guests.topology import CpuSet, Shape
from lab.kernels.build import TreeSource
from lab.kernels.kernel import KernelSpec
from lab.report.inputs import Comparisons, StoredComparison
from lab.stats import multiple, verdict
from lab.stats.iterations import WarmUp
from lab.stats.verdict import Comparison, Metric
from lab.stats.whole import Amount, Whole

CYCLES = Metric(name="cycles_per_op", unit="modelled cycles/op", better="lower", primary=True)
RATE = Metric(name="throughput", unit="op/s", better="higher", primary=True)
INSTRUCTIONS = Metric(name="instructions_per_op", unit="instructions/op", better="lower")
FAULTS = Metric(name="page_faults", unit="faults", better="lower")
VMAS = Metric(name="vmas", unit="VMAs", better="neither")
SHARE = Metric(name="hit_rate", unit="%", better="higher")
LATENCIES = tuple(Metric(name=f"latency_p{share}", unit="ns", better="lower") for share in (50, 95, 99))

MODEL = "full made-up-machine 0123abcd 4567ef89"
# A terminal's escape, markup, an override of the writing direction, and what formulas, mentions and tables begin with.
HOSTILE = "=<script>alert(1)</script>\x1b[31m\u202eevil\u2066 `|` @all # & \"'\r\nX-Injected: yes\x00\ufeff"


def compared(metric: Metric, base: list[float], test: list[float]) -> Comparison:
    """A comparison as the lab makes it."""
    return verdict.compare_metric(metric, base, test, exact=True)


def case(
    name: str, base: list[float], test: list[float], *, primary: Metric = CYCLES, count: float = 0, **more: Any
) -> CaseResult:
    """A case with counters beside its primary metric; its verdict follows from the numbers.

    count: the ratio of the instructions, where they are counted.
    """
    first = compared(primary, base, test)
    assert first.verdict is not None
    n = len(base)
    others = [
        compared(FAULTS, [10.0] * n, [75.0] * n),
        compared(VMAS, [1.0] * n, [1.0] * n),
        compared(SHARE, [50.0] * n, [47.5] * n),
        *(compared(m, [100.0 * (i + 1)] * n, [120.0 * (i + 1)] * n) for i, m in enumerate(LATENCIES)),
    ]
    if count:
        others.append(compared(INSTRUCTIONS, [1000.0] * n, [1000.0 * count] * n))
        first = verdict.beside_count(first, others[-1], 0.02)
        assert first.verdict is not None
    return CaseResult(
        case=name, verdict=first.verdict, metrics=multiple.mark_secondary([first, *others]),
        **{"workload": "alloc-burst", "control": False, **more},
    )  # fmt: skip


SLOWER = case("layout-4632k", [100.0 + i for i in range(6)], [160.0 + i for i in range(6)], holm=True)
FASTER = case("single-2052k", [200.0 + i for i in range(6)], [100.0 + i for i in range(6)], holm=True)
DISPUTED = case("fork", [100.0] * 6, [93.0] * 6, count=1.26)
EQUAL = case("layout-512k", [5000.0] * 6, [5000.0] * 6, control=True)
UNSURE = case("burst-2m-8m", [100.0] * 6, [80.0, 120.0, 90.0, 130.0, 70.0, 125.0])
UNMEASURED = case("layout-0k", [float("nan")] * 6, [float("nan")] * 6)
FAILED = msgspec.structs.replace(
    case("layout-1m", [], []),
    failed=FailedCase(
        arms=["test"], kind=GuestFailure.WORKLOAD, log="guests/alloc-burst-test-0001/report.jsonl",
        message="test arm, seed 1: alloc-burst:layout-1m exited with status 3: no",
    ),
)  # fmt: skip
UNSUPPORTED = msgspec.structs.replace(
    case("layout-2m", [], []),
    failed=FailedCase(
        arms=["base"], kind=GuestFailure.UNSUPPORTED,
        message="base arm, seed 1: alloc-burst:layout-2m is not supported on this kernel: mmap: Invalid argument",
    ),
)  # fmt: skip
WHOLE = Whole(
    caller=Amount(base=1000, test=1580, ratio=1.58),
    deferred=Amount(base=100, test=250, ratio=2.5),
    together=Amount(base=1000, test=1730, ratio=1.73),
    elapsed=Amount(base=2_000_000, test=2_500_000, ratio=1.25),
    waited=Amount(base=0, test=400_000, ratio=None),
)
EVERY_KIND = (SLOWER, FASTER, EQUAL, UNSURE, UNMEASURED)


def arm(spec: str, digit: str, *, subject: str | None = None, **more: Any) -> ArmResult:
    values: dict[str, Any] = {
        "spec": spec, "commit": digit * 40, "release": "6.12.117", "build": f"build-{digit}", "subject": subject,
        "compiler": "gcc 12.2.0", "settings": {"thp": "always"},
    }  # fmt: skip
    return ArmResult(**{**values, **more})


def result(
    *cases: CaseResult, name: str = "20261121-090000-aaaa", fingerprint: str = "f" * 16, **more: Any
) -> AbResult:
    cases = cases or EVERY_KIND
    shape = GuestShape(
        vcpus=1, memory_mb=640, initrd_sha256="0", fingerprint="f1", model=MODEL, env={"GLIBC_TUNABLES": "a b"},
        commands={one.case: ["/usr/bin/alloc-burst", "--case", one.case] for one in cases},
    )  # fmt: skip
    shapes = {one.workload: shape for one in cases}
    around = ResultEnvironment(
        fingerprint=fingerprint, qemu="7.2.22 (Debian)", machine="microvm", cpu="Nehalem", shift=4,
        cmdline=["quiet", "nokaslr"], settings={"thp": "always"}, image="i" * 64, lab="0.1.0", guests=shapes,
        model=MODEL,
    )  # fmt: skip
    found = multiple.overall([multiple.case_verdict(c.name, c.metrics, control=c.control) for c in cases])
    values: dict[str, Any] = {
        "mode": "exact", "threshold": 0.02, "alpha": 0.01,
        "base": arm("v1^", "1", subject="mm: before"), "test": arm("v1", "2", subject="mm: the change"),
        "environment": around, "seeds": [1, 2, 3, 4, 5, 6], "cases": list(cases),
        "verdict": found.verdict, "reason": found.reason, "started": "2026-11-21T09:00:00+00:00", "seconds": 12.5,
        "result": name, "reproduce": f"lab replay {name}",
    }  # fmt: skip
    return AbResult(**{**values, **more})


def hostile() -> AbResult:
    """A result in which every name that comes from elsewhere is an attack."""
    words = HOSTILE
    slower = case(words, [100.0 + i for i in range(6)], [160.0 + i for i in range(6)], holm=True, workload=words)
    return result(
        slower,
        base=arm(words, "1", subject=words, note=words, compiler=words, release=words, settings={words: words}),
        test=arm(words, "2", subject=words, note=words),
    )


def large(pairs: int) -> AbResult:
    """A regression of one case with many pairs of numbers."""
    chance = random.Random(pairs)  # noqa: S311
    base = [chance.gauss(1000, 30) for _ in range(pairs)]
    test = [chance.gauss(1100, 40) for _ in range(pairs)]
    # Judged by the first of them: how long a verdict over so many takes is not what this is for.
    few = case("many", base[:50], test[:50], holm=True)
    metrics = [msgspec.structs.replace(m, base=base, test=test) if m.primary else m for m in few.metrics]
    return result(msgspec.structs.replace(few, metrics=metrics), seeds=list(range(1, pairs + 1)))


def store(folder: Path, document: AbResult, *, commits: tuple[str, str] = ("1" * 40, "2" * 40)) -> StoredComparison:
    """Put a result into a folder as `lab ab` would, with its plan and the records of its runs."""
    (folder / "runs").mkdir(parents=True)
    records.save(folder / "result.json", document)
    records.save(folder / "plan.json", plan(document, commits))
    for seed in document.seeds[:10]:
        for name in ("base", "test"):
            run = _run(document, name, seed)
            records.save(folder / "runs" / f"alloc-burst-{name}-{seed:04d}.json", run)
    return StoredComparison(raw=document, folder=folder)


def plan(document: AbResult, commits: tuple[str, str] = ("1" * 40, "2" * 40)) -> Plan:
    arms = []
    for one, commit in zip((document.base, document.test), commits, strict=True):
        source = TreeSource(
            tree="default", commit=commit, tree_id=f"tree of {commit}", build_commit=commit, subject=one.subject or "",
            describe=commit[:12],
        )  # fmt: skip
        arms.append(ArmPlan(cc="gcc", spec=KernelSpec(text=one.spec, source=source)))
    return Plan(
        mode="exact", base=arms[0], test=arms[1], workloads=["alloc-burst"], threshold=0.02, alpha=0.01, seeds=6,
        max_seeds=24, fixed_seeds=False, qemu="qemu-system-x86_64", guest_timeout_s=300.0, model="full",
        machine="made-up-machine",
    )  # fmt: skip


def _run(document: AbResult, name: str, seed: int) -> Run:
    argv = [
        "/usr/bin/qemu-system-x86_64", "-cpu", "Nehalem,-spec-ctrl", "-chardev",
        f"file,id=report,path=/home/somebody/results/x/guests/alloc-burst-{name}-0001/report.jsonl",
        "-kernel", "/home/somebody/kernels/k/vmlinux", "-initrd", "/home/somebody/x/initrd.cpio",
        "-append", "quiet init=/init",
    ]  # fmt: skip
    names = [one.case for one in document.cases]
    vmstat = {"pgfault": 5 if name == "base" else 500, "nr_free_pages": seed}
    outcomes = [CaseOutcome(name=one, begin_ns=0, end_ns=1, ended=True, status=0, vmstat=vmstat) for one in names]
    return Run(
        arm=name, workload="alloc-burst", seed=seed, cases=names, kernel=f"build of {name}", fingerprint="f1",
        wall_s=1.0, argv=argv, report=GuestReport(cases=outcomes, settings={"thp": "always"}, complete=True),
    )  # fmt: skip


def reports(folder: Path, *documents: AbResult, mark: str = "") -> Comparisons:
    """Stored results as the formats take them."""
    items = [store(folder / f"r{i}", document) for i, document in enumerate(documents)]
    return Comparisons(items=items, mark=mark)


def printed(show: Callable[[Any, Console], None], document: Any, width: int | None = None) -> str:
    """The output for people without its colours: of a terminal of that width, else of a pipe."""
    stream = io.StringIO()
    show(document, Console(file=stream, width=width, force_terminal=width is not None, no_color=True))
    return re.sub(r"\x1b\[\d*m", "", stream.getvalue())


def live() -> Live:
    """Five rounds that were tried, of which three count, on a host that adds noise."""
    states: list[RoundState] = ["kept", "repeated", "disturbed", "died", "kept"]
    numbers = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)]
    host = RoundHost(steal=0.011, load=1.8, throttled=None, suspended_s=0.0, reasons=[])
    rounds = [
        LiveRound(
            number=number, attempt=attempt, order=["base", "test"], iterations=3, state=state,
            reasons=[] if state == "kept" else ["others kept 1.8 CPUs busy"],
            host=None if state == "died" else host, seconds=20.5, boots=[],
        )
        for (number, attempt), state in zip(numbers, states, strict=True)
    ]  # fmt: skip
    adds = HostFact(name="governor", value="none", state="limited", text="no one's", remedy="measure on bare metal")
    facts = [HostFact(name="SMT", value="off", state="ok", text="no CPU shares a core"), adds]
    noise = Sampling(
        blocks=3, iterations=[3, 3, 4], boot_sd=0.02, iteration_sd=None, warm_up=WarmUp(boots=6, shift=1.1, dropped=1),
        outliers=[1],
    )  # fmt: skip
    command = Command(vng=["vng", "--qemu", "/usr/bin/qemu"], qemu=["qemu"])
    return Live(
        accelerator="tcg", virtme_ng="1.42", duet=False, shapes={"alloc-burst": Shape(cores=1)},
        cpu_sets={"alloc-burst": [CpuSet(cpus=[0], others=[1], nodes=[])]}, hugepage_kb=None,
        commands={"alloc-burst": {"base": command, "test": command}}, host=facts, rounds=rounds,
        sampling={"alloc-burst:layout-4632k": noise},
    )  # fmt: skip
